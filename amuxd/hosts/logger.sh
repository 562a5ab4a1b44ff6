#!/bin/sh
# Copies the terminal's output to the log: $1 the log, $2 the size at which it becomes log.1, $3 where to say
# that it is ready; beside that stands a file "full" while there is no room. dd writes what it read at once, and
# never reads more than it writes.
log=$1
cap=$2
full=${3%/*}/full
block=65536

# Whatever ends the session must not end the log before the last line.
trap '' TERM HUP INT
size() {
    wc -c <"$log" 2>/dev/null || echo 0
}

command : >>"$log"
printf 'log\n' >"$3"
before=$(size)
while :; do
    # Small near the cap, so that the log passes it by little; large elsewhere, so that dd seldom starts.
    blocks=$(((cap - before) / block))
    [ "$blocks" -gt 16 ] || blocks=16
    if dd bs="$block" count="$blocks" 2>/dev/null >>"$log"; then
        after=$(size)
        [ "$after" -gt "$before" ] || exit 0
    elif [ $? -gt 128 ]; then
        # Somebody killed dd. Whoever kills the whole session is about to kill this script as well.
        sleep 0.1
        printf '\r\n[amux: what takes down the output was killed, some of it may be missing here]\r\n' >>"$log"
        after=$(size)
    else
        # A full disk, or one that cannot be written now. What dd held is lost, and the log says so; what comes
        # next waits in the terminal's own buffer until there is room for some of it, or until the session ends.
        trap 'rm -f "$log.room"; exit 1' TERM
        : >"$full"
        until dd if=/dev/zero of="$log.room" bs="$block" count=2 2>/dev/null &&
            rm -f "$log.room" && printf '\r\n[amux: the disk was full, output is missing here]\r\n' >>"$log"; do
            rm -f "$log.room"
            sleep 1 &
            wait $!
        done
        rm -f "$full"
        trap '' TERM
        after=$(size)
    fi
    before=$after
    if [ "$before" -ge "$cap" ] && mv -f "$log" "$log.1"; then
        : >"$log"
        before=0
    fi
done
