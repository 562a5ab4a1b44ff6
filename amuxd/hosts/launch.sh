#!/bin/sh
# Runs in the pane: $1 is the run's directory, $2 the one with the gates.
# The command waits behind a gate until amuxd holds its process and has written down that it runs,
# so that no end comes too early to be seen.
run=$1
gates=$2

exec 8<"$gates/gate"
printf '%s %s\n' "$$" "$PPID" >"$gates/up"
# A gate that closes without a word is an amuxd that went away: the next one opens it.
until read -r word <&8 && [ "$word" = go ]; do
    exec 8<"$gates/gate"
done
exec 8<&-

refuse() {
    printf '%s\n' "$1" >"$run/not_started"
    exit 127
}

directory='' shell='' line=''
# Sets the positional parameters to the command, and directory, shell and line.
# shellcheck source=/dev/null
. "$run/command"

cd -- "$directory" 2>/dev/null || refuse "the directory $directory cannot be entered"

if [ -n "$shell" ]; then
    trap 'exit 143' TERM
    trap : INT
    # With job control this shell takes the terminal back from whatever had it last; the next one hangs without.
    set -m
    "$shell" -i -c "$line"
    code=$?
    # Stopped by Ctrl-Z it has not ended, and there is nobody else to let it go on.
    while [ "$code" -gt 128 ] && kill -0 %% 2>/dev/null; do
        fg %% >/dev/null
        code=$?
    done
    set +m
    printf '%s\n' "$code" >"$run/exit_status.new"
    # The user's PATH need not lead to it.
    command -p mv -f "$run/exit_status.new" "$run/exit_status"
    trap - TERM INT
    set -- "$shell" -i
fi

trap 'refuse "$1 is not a program that this machine can run, or its interpreter is missing"' EXIT
command exec "$@"
