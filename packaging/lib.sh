# shellcheck shell=bash
# What the scripts here share. Sourced, never run.

if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
    bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'
else
    bold='' dim='' red='' green='' plain=''
fi

step() { printf '%s==>%s %s\n' "$green$bold" "$plain" "$*"; }
note() { printf '    %s%s%s\n' "$dim" "$*" "$plain"; }

# What is wrong, and what to do about it.
die() {
    printf '%s%s%s\n' "$red$bold" "$1" "$plain" >&2
    shift
    for hint in "$@"; do printf '    %s\n' "$hint" >&2; done
    exit 1
}

# Runs a command whose output matters only when it fails; then all of it is shown.
quietly() {
    local output status=0
    output=$(mktemp)
    "$@" >"$output" 2>&1 || status=$?
    if ((status)); then
        printf '%s$ %s%s\n' "$red" "$*" "$plain" >&2
        cat "$output" >&2
    fi
    rm -f "$output"
    return "$status"
}

has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if (($(id -u) == 0)); then
        "$@"
    else
        sudo "$@"
    fi
}

# Runs tests as root: with what says where packages come from, and without leaving anything here that this user
# could not remove.
tests_as_root() {
    local name status=0 settings=()
    (($(id -u))) || { "$@"; return; }
    while IFS= read -r name; do
        case ${name,,} in pip_* | amux_* | *_proxy | ci) settings+=("$name=${!name}") ;; esac
    done < <(compgen -e)
    [[ -n ${PIP_CONFIG_FILE:-} || ! -r $HOME/.config/pip/pip.conf ]] || settings+=("PIP_CONFIG_FILE=$HOME/.config/pip/pip.conf")
    sudo env "${settings[@]}" "$@" || status=$?
    sudo chown -Rh --from=0 "$(id -u):$(id -g)" .
    return "$status"
}

# A user manager that answers; the variable is often missing after su, sudo and in cron.
has_user_manager() {
    : "${XDG_RUNTIME_DIR:=/run/user/$(id -u)}"
    export XDG_RUNTIME_DIR
    has systemctl && timeout 10 systemctl --user show-environment >/dev/null 2>&1
}

# A package that has just been installed starts nobody's bus; at the next login it would be there.
need_session_bus() {
    # The one that the manager and its services use, whatever else the shell may know of.
    local ask=(busctl --quiet --timeout=10s --address="unix:path=$XDG_RUNTIME_DIR/bus")
    "${ask[@]}" call org.freedesktop.DBus / org.freedesktop.DBus GetId 2>/dev/null && return
    systemctl --user daemon-reload
    quietly systemctl --user start dbus.socket ||
        die "There is no session bus for $(id -un), and systemd cannot start one." "make run installs what is missing."
}

# Where the user manager and the session bus look for what a user installs: with the manager's own idea of
# XDG_DATA_HOME, which need not be that of the shell.
data_directory() {
    local value=${XDG_DATA_HOME:-}
    if has_user_manager; then
        value=$(systemctl --user show-environment | sed -n 's/^XDG_DATA_HOME=//p')
    fi
    [[ $value == /* ]] || value=$HOME/.local/share
    printf '%s\n' "$value"
}

# Where the units and the D-Bus file say @BINDIR@, this directory. A percent sign is special to systemd.
fill_in() {
    local template=$1 target=$2 bindir=$3
    [[ $bindir != *[[:space:]\"\'\\]* ]] ||
        die "amux cannot be installed under $bindir: systemd units cannot name a path with spaces or quotes in it."
    [[ $template == *.service.in ]] || bindir=${bindir//%/%%}
    local text
    text=$(<"$template")
    text=${text//@BINDIR@/"$bindir"}
    # The same again is left alone: systemd asks for a reload when a file's time changes.
    [[ ! -e $target || $(<"$target") != "$text" ]] || return 0
    mkdir -p "${target%/*}"
    printf '%s\n' "$text" >"$target.new"
    mv -f "$target.new" "$target"
}
