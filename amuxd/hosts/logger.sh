#!/bin/sh
# Copies the terminal's output to the log: $1 the log, $2 the size at which it becomes log.1, $3 where to say
# that it is ready. Where a log.1 was dropped for that, log.dropped says so, and is empty. Beside that stands a file "full" while there is no room. dd writes what it read at once, and
# what it could not write is gone with it: so room for all that it may read is reserved in the log before it reads.
# Until there is room, what comes waits in the terminal's own buffer.
log=$1
cap=$2
full=${3%/*}/full
least=256
most=1024
# Kept back for the last words.
spare=4096
reserves=yes
reserved=0
lost='the disk was full, output is missing here'
# Messages are looked into.
LC_ALL=C
export LC_ALL

# Whatever ends the session must not end the log before the last line.
trap '' TERM HUP INT
size() {
    wc -c <"$log" 2>/dev/null || echo 0
}
# Nothing is printed by that, and the log's time is not to say so.
quietly() {
    at=
    [ "$before" -eq 0 ] || at=$(stat -c %y "$log" 2>/dev/null)
    why=$("$@" "$log" 2>&1)
    code=$?
    [ -z "$at" ] || touch -m -d "$at" "$log" 2>/dev/null
    return $code
}
reserve() {
    wanted=$((blocks * block))
    [ "$reserves" = no ] || [ "$reserved" -ge $((before + wanted + spare)) ] && return 0
    # For twice as much, so that it is seldom done.
    if quietly fallocate -n -o "$before" -l $((2 * wanted + spare)); then
        reserved=$((before + 2 * wanted + spare))
        return 0
    fi
    case $why in
    # By such a file system, or on such a system.
    *unsupported* | *'not supported'* | *'not found'*) reserves=no ;;
    *) return 1 ;;
    esac
}
# What is less is for changes of state.
reserve_a_little() {
    block=$least
    blocks=256
    reserve
}
give_back() {
    reserved=0
    quietly truncate -c -s +0
}
say() {
    printf '\r\n[amux: %s]\r\n' "$1" >>"$log"
}
# Of the terminal's memory, in bytes.
used() {
    read -r _ pages _ <"/proc/$PPID/statm" && echo $((pages * page)) || echo 0
}
# Until this is done, or the session ends.
wait_to() {
    trap 'rm -f "$log.room"; say "the disk was full to the end, output may be missing here"; give_back; exit 1' TERM
    : >"$full"
    page=$(getconf PAGESIZE)
    most_used=$(($(used) + cap))
    missing=no
    until "$@"; do
        if [ "$(used)" -gt "$most_used" ]; then
            # More waits than the log would keep: without its terminal the session could not go on.
            missing=yes
            timeout 1 dd bs=65536 of=/dev/null 2>/dev/null
        fi
        sleep 1 &
        wait $!
    done
    [ "$missing" = no ] || say "$lost"
    rm -f "$full"
    trap '' TERM
}
say_what_is_missing() {
    dd if=/dev/zero of="$log.room" bs=65536 count=2 2>/dev/null &&
        rm -f "$log.room" && say "$lost" && return
    rm -f "$log.room"
    return 1
}

# Few near the cap, so that the log passes it by little; many elsewhere, so that dd seldom starts.
plan() {
    blocks=$(((cap - before) / block))
    [ "$blocks" -lt 1024 ] || blocks=1024
    [ "$blocks" -gt 64 ] || blocks=64
}

# There is no moment at which the beginning is gone and nothing says so, nor the other way round.
put_aside() {
    [ ! -e "$log.1" ] || mv -f "$log.1" "$log.dropped" || return
    mv -f "$log" "$log.1" || return
    before=0
    command : >"$log"
    # Not emptied itself: whoever reads it still goes on with it.
    [ ! -s "$log.dropped" ] || { command : >"$log.empty" && mv -f "$log.empty" "$log.dropped"; }
}

command : >>"$log"
before=$(size)
block=$least
plan
# Before anybody watches: to the kernel that is a change like what is printed.
reserve
printf 'log\n' >"$3"
while :; do
    plan
    reserve || reserve_a_little || wait_to reserve_a_little
    if dd bs="$block" count="$blocks" 2>/dev/null >>"$log"; then
        after=$(size)
        if [ "$after" -le "$before" ]; then
            give_back
            exit 0
        fi
        # By how much is printed at once.
        if [ $((after - before)) -ge $((blocks * block / 2)) ]; then
            [ "$block" -ge "$most" ] || block=$((block * 4))
        else
            block=$least
        fi
    elif [ $? -gt 128 ]; then
        # Somebody killed dd. Whoever kills the whole session is about to kill this script as well.
        sleep 0.1
        say 'what takes down the output was killed, some of it may be missing here'
        after=$(size)
    else
        # Nothing could be reserved, or the disk fails: what dd held is lost, and the log says so.
        wait_to say_what_is_missing
        after=$(size)
    fi
    before=$after
    if [ "$before" -ge "$cap" ]; then
        give_back
        put_aside
    fi
done
