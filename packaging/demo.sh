#!/usr/bin/env bash
# Shows amux at its main job, with the amux in the given directory. Usage: demo.sh BINDIR
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/lib.sh

bin=$(cd "${1:-.venv/bin}" && pwd)
data=$(data_directory)

if has_user_manager; then
    need_session_bus
    if [[ -e $data/systemd/user/amuxd.service || -e ${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user/amuxd.service ]]; then
        note "amux is installed for this user already: this is the installed amuxd at work."
    else
        # Only until the next boot, and nothing in the home directory: make install is for more than a look.
        changed=no
        for file in systemd/amuxd.* systemd/*.slice packaging/*.service.in; do
            case $file in
                *.in) target=$XDG_RUNTIME_DIR/dbus-1/services/$(basename "$file" .in) ;;
                *) target=$XDG_RUNTIME_DIR/systemd/user/$(basename "$file") ;;
            esac
            before=$(cat "$target" 2>/dev/null || true)
            fill_in "$file" "$target" "$bin"
            [[ $before == "$(<"$target")" ]] || changed=yes
        done
        if [[ $changed == yes ]]; then
            systemctl --user daemon-reload
            busctl --user --quiet call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus ReloadConfig || true
        fi
        # An amuxd from before the last change here makes way for the new one; sessions do not notice.
        since=$(systemctl --user show --property=ActiveEnterTimestamp --value amuxd.service)
        since=$(date --date="$since" +%s 2>/dev/null || echo 0)
        if [[ $changed == yes ]] || ((since <= $(stat --format=%Y "$bin/../.amux-source"))); then
            systemctl --user try-restart amuxd.service
        fi
    fi
elif [[ ! -e $data/amux/venv ]]; then
    "$bin/python" -I packaging/embedded.py stop "$bin/../.amux-source" || true
fi

# Begins a session, or begins it again if it is left from the last time.
session() {
    local name=$1 state output
    shift
    state=$("$bin/amux" show "$name" --json 2>/dev/null | sed -n 's/^ *"state": *"\([a-z]*\)".*/\1/p' || true)
    case $state in
        starting | running) return ;;
        # The name of one that was put away is free, and one that never began has nothing to begin again.
        '' | archived | created)
            if [[ $state == created ]]; then "$bin/amux" rm "$name" >/dev/null; fi
            output=$("$bin/amux" run -n "$name" "$@" 2>&1) || { printf '%s\n' "$output" >&2; return 1; }
            ;;
        *) output=$("$bin/amux" restart "$name" 2>&1) || { printf '%s\n' "$output" >&2; return 1; } ;;
    esac
}

step "Three sessions: one that works on, one that completes, one that crashes"
# shellcheck disable=SC2016  # the variables are for the shell in the session
session demo-work -- sh -c 'n=0; while :; do n=$((n + 1)); echo "step $n"; sleep 1; done'
session demo-done -- sh -c 'echo "3 files built"'
# shellcheck disable=SC2016
session demo-crash -- sh -c 'echo "about to crash"; kill -s SEGV $$'

# Their own codes: 0, and 128 + 11 for SIGSEGV.
status=0; "$bin/amux" wait demo-done --timeout 20 >/dev/null || status=$?
((status == 0)) || die "demo-done should have ended with 0 and amux wait says $status."
status=0; "$bin/amux" wait demo-crash --timeout 20 >/dev/null || status=$?
((status == 139)) || die "demo-crash should have ended with 139 (SIGSEGV) and amux wait says $status."

echo
"$bin/amux" ls
echo
if ! on_path=$(command -v amux) || [[ $on_path != "$bin/amux" ]]; then
    note "To go on:  export PATH=\"$bin:\$PATH\""
    note "then, say:  amux attach demo-work      (Ctrl-b d leaves it running)"
else
    note "To go on:  amux attach demo-work      (Ctrl-b d leaves it running)"
fi
note "            amux show demo-crash       amux run -n build -- make       amux rm --force demo-work"
note "To keep it:  make install"
