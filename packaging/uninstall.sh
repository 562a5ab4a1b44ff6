#!/usr/bin/env bash
# Takes away what install.sh put there, and leaves the sessions' data.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/lib.sh

bin=$HOME/.local/bin
data=$(data_directory)
state=${XDG_STATE_HOME:-$HOME/.local/state}/amux

running='' end=''
if has_user_manager; then
    quietly systemctl --user disable amuxd.service amuxd.socket amux-clean.timer || true
    systemctl --user stop amux-clean.timer amuxd.socket amuxd.service 2>/dev/null || true
    running=$(systemctl --user list-units --plain --no-legend --state=running 'amux-*.service' | awk '{print $1}')
    end="systemctl --user stop 'amux-*.service'"
elif [[ -x $data/amux/venv/bin/python ]]; then
    embedded() { "$data/amux/venv/bin/python" -I packaging/embedded.py "$@"; }
    embedded end || note "amuxd is still running."
    running=$(embedded sessions)
    end="tmux -S SOCKET kill-server"
fi

for program in amux amuxd; do
    [[ $(readlink "$bin/$program" || true) == "$data/amux/venv/bin/$program" ]] && rm -f "$bin/$program"
done
for unit in systemd/*; do rm -f "$data/systemd/user/$(basename "$unit")" "${XDG_RUNTIME_DIR:-/nowhere}/systemd/user/$(basename "$unit")"; done
rm -f "$data/dbus-1/services/org.amux.Amux1.service" "${XDG_RUNTIME_DIR:-/nowhere}/dbus-1/services/org.amux.Amux1.service"
rm -f "$data"/dbus-1/interfaces/org.amux.Amux1.*.xml
rm -f "$data/man/man1/amux.1" "$data/man/man8/amuxd.8" "$data/man/man5/org.amux.Amux1.5"
rm -f "$data/bash-completion/completions/amux" "$data/zsh/site-functions/_amux" "$data/fish/vendor_completions.d/amux.fish"
# When it last ran, which systemd keeps.
rm -f "$data/systemd/timers/stamp-amux-clean.timer"
rm -rf "${data:?}/amux"
# Directories that are empty now are of no use; those of others are not empty.
if [[ -d $data ]]; then
    (
        cd "$data"
        rmdir -p --ignore-fail-on-non-empty systemd/user systemd/timers dbus-1/services dbus-1/interfaces man/man{1,5,8} \
            bash-completion/completions zsh/site-functions fish/vendor_completions.d 2>/dev/null
    ) || true
fi

if has_user_manager; then
    systemctl --user daemon-reload
    systemctl --user reset-failed amuxd.service 2>/dev/null || true
    busctl --user --quiet call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus ReloadConfig || true
fi

step "amux is uninstalled"
[[ ! -d $state ]] || note "The sessions' data is still in $state"
if [[ -n $running ]]; then
    note "Still running, as they were:"
    while IFS= read -r unit; do note "  $unit"; done <<<"$running"
    note "To end them:  $end"
fi
