#!/bin/sh
# A command in the user's shell, which stays open afterwards: $1 is the run's directory, $2 the shell, $3 the line.
run=$1
shell=$2
line=$3

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
exec "$shell" -i
