#!/usr/bin/env bash
# Installs the system packages that are missing, and only those. Usage: system-packages.sh run|test
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/lib.sh

purpose=${1:-run}
AMUX_ROOT=${AMUX_ROOT:-}   # another tree's files, for the tests of this script

distribution() {
    local id='' like='' key value
    while IFS='=' read -r key value; do
        value=${value//[\"\']/}
        case $key in ID) id=$value ;; ID_LIKE) like=$value ;; esac
    done <"$AMUX_ROOT/etc/os-release"
    case " $id $like " in
        *' debian '* | *' ubuntu '*) echo debian ;;
        *' fedora '* | *' rhel '*) echo fedora ;;
        *' arch '*) echo arch ;;
        *) echo "$id" ;;
    esac
}

has_user_bus() {
    local directory
    for directory in /etc /usr/lib /lib; do
        [[ -e $AMUX_ROOT$directory/systemd/user/dbus.socket ]] && return 0
    done
    return 1
}

# What is needed, by the names that the three families give it: debian, fedora, arch.
missing=()
need() {
    case $family in
        debian) missing+=("$1") ;;
        fedora) missing+=("$2") ;;
        arch) missing+=("$3") ;;
        *) missing+=("$1") ;;
    esac
}

look() {
    missing=()
    has tmux || need tmux tmux tmux
    has git || need git git-core git
    has dbus-daemon || need dbus-daemon dbus-daemon dbus
    if ! packaging/find-python.sh >/dev/null 2>&1; then
        case $family in
            # Ubuntu 22.04's own python3 is too old, but it has a 3.11 beside it.
            debian) if has apt-cache && [[ $(debian_python) == python3.11 ]]; then
                missing+=(python3.11 python3.11-venv)
            else
                missing+=(python3 python3-venv)
            fi ;;
            *) need python3 python3 python ;;
        esac
    fi
    # Without systemd there is no user manager that could use a bus: amux then runs in embedded mode.
    if [[ $purpose == test || -d $AMUX_ROOT/run/systemd/system ]] && ! has_user_bus; then
        need dbus-user-session dbus-broker dbus
    fi
    if [[ $purpose == test ]]; then
        [[ -x $AMUX_ROOT/usr/lib/systemd/systemd || -x $AMUX_ROOT/lib/systemd/systemd ]] || need systemd systemd systemd
        has systemd-nspawn || need systemd-container systemd-container systemd
        has debootstrap || need debootstrap debootstrap debootstrap
        has shellcheck || need shellcheck ShellCheck shellcheck
        has xmllint || need libxml2-utils libxml2 libxml2
        has mkfs.btrfs || need btrfs-progs btrfs-progs btrfs-progs
        has unshare || need util-linux util-linux util-linux
        has busctl || need systemd systemd systemd
        has ps || need procps procps-ng procps-ng
        has Xvfb || need xvfb xorg-x11-server-Xvfb xorg-server-xvfb
        has dunst || need dunst dunst dunst
        has import || need imagemagick ImageMagick imagemagick
        has gdbus || need libglib2.0-bin glib2 glib2
        has zsh || need zsh zsh zsh
        has fish || need fish fish fish
        has dash || need dash dash dash
        has busybox || need busybox busybox busybox
        # With npm come the real agents, and with Node.js some of them run; whoever has npm has both.
        has npm || {
            need nodejs nodejs nodejs
            need npm nodejs-npm npm
        }
        # One that somebody who is not root may run: another's may be in root's own home.
        [[ -x $AMUX_ROOT/usr/bin/python3 ]] || need python3 python3 python
    fi
}

debian_python() {
    local candidate
    candidate=$(apt-cache policy python3 2>/dev/null | sed -n 's/^ *Candidate: //p')
    if [[ -n $candidate && $candidate == 3.@([0-9]|10)[.-]* ]] && apt-cache show python3.11 >/dev/null 2>&1; then
        echo python3.11
    else
        echo python3
    fi
}

install() {
    local packages=("$@")
    case $family in
        debian)
            quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"
            ;;
        fedora) quietly as_root dnf install -y --setopt=install_weak_deps=False "${packages[@]}" ;;
        arch)
            # With the lists that are there if they do: a fresh list under an old system is a partial upgrade.
            as_root pacman -S --needed --noconfirm "${packages[@]}" >/dev/null 2>&1 ||
                quietly as_root pacman -Sy --needed --noconfirm "${packages[@]}"
            ;;
    esac
}

[[ $purpose != test ]] || (($(id -u) == 0)) || has sudo ||
    die "The tests need root, to make namespaces and cgroups, and there is no sudo here: run them as root." \
        "make check needs neither."
family=$(distribution)
look
if ((${#missing[@]})); then
    case $family in
        debian | fedora | arch) ;;
        *) die "Missing here: ${missing[*]} (Debian's names)." \
            "This script installs packages on Debian, Ubuntu, Fedora and Arch; install them your way and try again." ;;
    esac
    (($(id -u) == 0)) || has sudo ||
        die "Missing here: ${missing[*]}, and there is no sudo to install them with." "Run this once as root: $0 $purpose"
    if [[ $family == debian ]]; then
        step "Refreshing the package lists"
        # A third party's broken source is no reason to stop: the install says whether ours were found.
        quietly as_root apt-get update || note "apt-get update did not work throughout; going on"
        look
    fi
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    step "Installing ${missing[*]}"
    wanted=("${missing[@]}")
    install "${wanted[@]}" || die "These system packages could not be installed: ${wanted[*]}"
    hash -r
    look
    ((${#missing[@]} == 0)) || die "Still missing after the installation: ${missing[*]}"
fi

version=$(tmux -V)
[[ $version =~ ([0-9]+)\.([0-9]+) ]] || die "Cannot tell the version of tmux from '$version'."
if ((BASH_REMATCH[1] * 100 + BASH_REMATCH[2] < 303)); then
    die "tmux 3.3 or newer is needed and this system has $version." \
        "Only from 3.3 does tmux say how a command ended. Ubuntu 24.04, Debian 12 and all newer ones have it."
fi
