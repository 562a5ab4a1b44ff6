#!/bin/sh
# A command in the user's shell, which stays open afterwards: $1 is the run's directory, $2 the shell, $3 the line,
# $4 what is said to the terminal between the two, which does not show it; in the log it is where the command ends.
run=$1
shell=$2
line=$3
opened=$4
new=$run/exit_status.new

# amuxd is to read it, whatever the session's own umask is.
own=$(umask)
umask 077
# As long as any code: what is written over it at the end needs no room, and no new file.
printf '   \n' 2>/dev/null >"$new"
umask "$own"

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

# From here on nothing else may be taken for the end of the command, nor a process that is refused.
trap 'exit "$code"' TERM EXIT
umask 077
at() {
    command -p touch -m -d "$1" "$new"
}
write() {
    # Read back: a disk may take less than it was given.
    printf '%3d\n' "$code" 1<>"$new" && read -r written <"$new" && [ "$written" = "$code" ] || return
    # When it ended, and not when there was room to say so; busybox knows whole seconds only.
    [ -z "$ended" ] || at "$ended" || at "${ended%.*}" || return
    # The user's PATH need not lead to it.
    command -p mv -f "$new" "$run/exit_status"
}
ended=
if ! write 2>/dev/null; then
    ended=$(command -p date +@%s.%N)
    printf '\r\n[amux: it exited with code %s, which cannot be written down; the shell opens when it is]\r\n' "$code"
    until write 2>/dev/null; do
        # Somebody may have taken it away.
        [ -d "$run" ] || command -p mkdir "$run" 2>/dev/null
        command -p sleep 1
    done
fi
umask "$own"
trap - TERM EXIT INT
printf '\033]%s\033\134' "$opened"
exec "$shell" -i
