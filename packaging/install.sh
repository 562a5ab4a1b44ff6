#!/usr/bin/env bash
# Installs amux for this user, or upgrades it under a running amuxd.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/lib.sh

bin=$HOME/.local/bin
data=$(data_directory)
home=$data/amux
venv=$home/venv

for program in amux amuxd; do
    if [[ -e $bin/$program && $(readlink "$bin/$program" || true) != "$venv/bin/$program" ]]; then
        die "$bin/$program is there and is not from make install." "Move it away and try again."
    fi
done
if (($(id -u) == 0)) && [[ -n ${SUDO_USER:-} ]]; then
    note "Installing for root. For yourself, run make install without sudo."
fi
for program in tmux dbus-daemon; do
    has "$program" || note "$program is missing: make run installs what amux needs, or your package manager does."
done

# The new one is made beside the old one, which a running amuxd goes on using, and takes its place in one step.
mkdir -p "$home" "$bin"
previous=$(readlink "$venv" || true)
new=venv-$(date +%Y%m%d%H%M%S)-$$
trap 'rm -rf "${home:?}/$new"' EXIT
packaging/venv.sh "$home/$new"

put() { mkdir -p "$2"; cp -f "$1" "$2/.new.$$"; chmod 644 "$2/.new.$$"; mv -f "$2/.new.$$" "$2/${3:-$(basename "$1")}"; }
point() { ln -sfn "$1" "$2.new.$$"; mv -fT "$2.new.$$" "$2"; }
version_in() { "$home/$1/bin/python" -I -c 'import amuxd; print(amuxd.__version__)'; }

step "Installing amux $(version_in "$new") under $HOME/.local"
point "$new" "$venv"
trap - EXIT
point "$venv/bin/amux" "$bin/amux"
point "$venv/bin/amuxd" "$bin/amuxd"
for unit in systemd/*; do fill_in "$unit" "$data/systemd/user/$(basename "$unit")" "$venv/bin"; done
fill_in packaging/org.amux.Amux1.service.in "$data/dbus-1/services/org.amux.Amux1.service" "$venv/bin"
for interface in amuxd/bus/interfaces/org.amux.*.xml; do put "$interface" "$data/dbus-1/interfaces"; done
for page in man/*.[1-8]; do put "$page" "$data/man/man${page##*.}"; done
completion() {
    if "$venv/bin/amux" completion "$1" >"$home/completion.new"; then
        put "$home/completion.new" "$2" "$3"
    else
        note "No completion for $1 was made."
    fi
    rm -f "$home/completion.new"
}
completion bash "$data/bash-completion/completions" amux
completion zsh "$data/zsh/site-functions" _amux
completion fish "$data/fish/vendor_completions.d" amux.fish

call() { busctl --user --timeout=30s "$@" 2>&1; }
is_known_by_name() {
    call call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus ListActivatableNames | grep -q '"org.amux.Amux1"'
}

# Whether amuxd, of the version in this environment, starts and answers on the bus; if it did not run before, then
# also when the bus starts it, as the first amux will have it.
answers_as_unit() {
    local wanted answer since
    wanted=$(version_in "$1") since=$(date +%s)
    systemctl --user reset-failed amuxd.service 2>/dev/null || true
    answer=$(systemctl --user restart amuxd.service 2>&1) && answer=$(stop_again 2>&1) &&
        answer=$(call --auto-start="$(runs && echo no || echo yes)" call org.amux.Amux1 /org/amux/Amux1 \
            org.freedesktop.DBus.Properties Get ss org.amux.Amux1.Manager Version) &&
        [[ $answer == "v s \"$wanted\"" ]] && has_started && return
    printf '%s\n' "$answer" >&2
    systemctl --user --no-pager --full --lines=0 status amuxd.service >&2 || true
    journalctl --quiet --no-pager --lines=20 --since="@$since" --identifier=amuxd "_UID=$(id -u)" >&2 || true
    systemctl --user stop amuxd.service 2>/dev/null || true
    return 1
}
# It answers a moment before systemd has heard that it is ready.
has_started() { systemctl --user start amuxd.service && runs; }
runs() { systemctl --user --quiet is-active amuxd.service; }
stop_again() { [[ $was != inactive ]] || ! is_known_by_name || systemctl --user stop amuxd.service; }

embedded() { "$venv/bin/python" -I packaging/embedded.py "$@"; }
answers_without_units() {
    local wanted answer
    wanted=$(version_in "$1")
    embedded stop || true
    answer=$("$venv/bin/amux" ls 2>&1) && answer=$(embedded version) && [[ $answer == "$wanted" ]] && return
    printf '%s\n' "$answer" >&2
    # One that hangs while it starts would keep the bus from starting another.
    embedded end || true
    return 1
}

# Puts the environment from before back unless the new one answers, to this function.
expect() {
    local answers=$1 what="What it said is above; sessions were not touched."
    "$answers" "$new" && return
    if [[ -z $previous || ! -x $home/$previous/bin/amuxd ]]; then
        die "amux is installed, and amuxd does not work." "$what"
    fi
    point "$previous" "$venv"
    rm -rf "${home:?}/$new"
    "$answers" "$previous" || die "The new amuxd does not work, and the one from before, which is back, does not either." "$what"
    die "The new amuxd does not work, so the one from before is back." "$what"
}
was_restarted="amuxd was restarted; the sessions went on."

if has_user_manager; then
    need_session_bus
    # What make run put there only for a look would be taken before what is installed.
    for unit in systemd/*; do rm -f "$XDG_RUNTIME_DIR/systemd/user/$(basename "$unit")"; done
    rm -f "$XDG_RUNTIME_DIR/dbus-1/services/org.amux.Amux1.service"
    systemctl --user daemon-reload
    call --quiet call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus ReloadConfig || true
    # amuxd itself as well: what is to come back by itself after a reboot waits for nobody's call.
    quietly systemctl --user enable amuxd.service amuxd.socket amux-clean.timer
    quietly systemctl --user start amux-clean.timer
    was=$(systemctl --user is-active amuxd.service || true)
    expect answers_as_unit
    [[ $was == inactive ]] || note "$was_restarted"
    is_known_by_name || note "The session bus starts amuxd by itself from the next login on. Until then:  systemctl --user start amuxd"
    if has loginctl && [[ $(loginctl show-user "$(id -un)" --property=Linger --value 2>/dev/null || true) == no ]]; then
        note "A logout ends the sessions. To keep them:  loginctl enable-linger"
    fi
else
    note "There is no systemd user manager here: amux starts amuxd by itself, and sessions run without units."
    if embedded version >/dev/null; then
        expect answers_without_units
        note "$was_restarted"
    fi
fi

# Whatever still runs from an older one keeps it until the next upgrade.
for old in "$home"/venv-*; do
    [[ $old == "$home/$new" ]] && continue
    if ! grep -qsF "$old/" /proc/[0-9]*/cmdline /proc/[0-9]*/maps; then rm -rf "$old"; fi
done

case ":$PATH:" in
    *":$bin:"*) note "Try:  amux run -n hello -- top" ;;
    *)
        note "$bin is not in your PATH. Add this line to ~/.profile or your shell's configuration:"
        # shellcheck disable=SC2016  # for the user's shell to expand
        printf '        %s\n' 'export PATH="$HOME/.local/bin:$PATH"'
        ;;
esac
