#!/bin/sh
# Copies the terminal's output to the log: $1 the log, $2 the size at which it becomes log.1, $3 where to say that
# it is ready, $4 a Python for the one who stands in while no process can be had. In the place of another, $5 is the
# other's process, if it has still to bring what it read, and $6 what the log is to say of it. Where a log.1 was
# dropped, log.dropped says so, and is empty. Beside $3 stands a file "full" while there is no room.
#
# dd writes what it read at once, and what it could not write is gone with it: so room for all that it may read is
# reserved in the log before it reads. Until there is room, what comes waits in the terminal's own buffer.
log=$1
cap=$2
ready=$3
python=$4
former=$5
says=$6
full=${ready%/*}/full
# At first, for what prints little; twice as many each time that so many were filled.
least=256
few=120
most=1024
# Kept back for the last words.
spare=4096
reserves=yes
reserved=0
lost='the disk was full, output is missing here'
to_the_end='the disk was full to the end, output may be missing here'
# Messages are looked into.
LC_ALL=C
export LC_ALL

# Whatever ends the session must not end the log before the last line.
trap '' TERM HUP INT
# A process that is refused, at the session's own limit say, ends the shell.
stand_in() {
    trap '' TERM
    exec "$python" -I -S "${0%/*}/spare_logger.py" "$log" "$cap" "$ready" "$python" "$says"
}
trap stand_in EXIT
leave() {
    trap - EXIT
    exit "$1"
}
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
# What dd writes to. A redirection that fails ends the shell, but for what "command" runs.
open_log() {
    command exec 3>>"$log"
}
reserve() {
    open_log || return 1
    wanted=$((blocks * block))
    [ "$reserves" = no ] || [ "$reserved" -ge $((before + wanted + spare)) ] && return 0
    # For twice as much, so that it is seldom done.
    if quietly fallocate -n -o "$before" -l $((2 * wanted + spare)); then
        reserved=$((before + 2 * wanted + spare))
        return 0
    fi
    # Somebody killed it.
    [ "$code" -le 128 ] || return 1
    case $why in
    *'No space left on device' | *'uota exceeded' | *'Read-only file system' | *'nput/output error' | *'I/O error')
        return 1
        ;;
    # By such a file system, or on such a system: that says nothing of the room.
    *) reserves=no ;;
    esac
}
be_modest() {
    block=$least
    many=$few
}
# What is less is for changes of state.
reserve_a_little() {
    be_modest
    blocks=$few
    reserve
}
give_back() {
    reserved=0
    quietly truncate -c -s +0
}
say() {
    printf '\r\n[amux: %s]\r\n' "$1" >>"$log$2"
}
# Of the terminal's memory, in bytes.
used() {
    read -r _ pages _ <"/proc/$PPID/statm" && echo $((pages * page)) || echo 0
}
# So much may wait: what waits counts against the memory limit of the session.
bound() {
    bound=16777216
    [ "$cap" -ge "$bound" ] || bound=$cap
    cgroup=
    while read -r membership; do
        case $membership in
        0::*) cgroup=/sys/fs/cgroup${membership#0::} ;;
        esac
    done </proc/self/cgroup
    for name in memory.max memory.high; do
        read -r limit <"$cgroup/$name" || continue
        case $limit in
        *[!0-9]* | '') ;;
        *) [ $((limit / 4)) -ge "$bound" ] || bound=$((limit / 4)) ;;
        esac
    done
} 2>/dev/null
end_without_room() {
    rm -f "$log.room"
    say "$to_the_end" || say "$to_the_end" .1
    give_back
    leave 1
}
# Until this is done, or the session ends.
wait_to() {
    trap end_without_room TERM
    command : >"$full"
    page=$(getconf PAGESIZE)
    bound
    most_used=$(($(used) + bound))
    missing=no
    until "$@"; do
        if [ "$(used)" -gt "$most_used" ]; then
            # More waits than may: without its terminal the session could not go on.
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

# What dd took down, where the log was deleted or moved away meanwhile.
take_over() {
    # POSIX has it since 2024, dash, bash and busybox longer.
    # shellcheck disable=SC3013
    [ "/proc/$$/fd/3" -ef "$log" ] || tail -c "$bytes" "/proc/$$/fd/3" >>"$log"
}
# Few near the cap, so that the log passes it by little; many elsewhere, so that dd seldom starts.
plan() {
    blocks=$(((cap - before) / block))
    [ "$blocks" -lt "$many" ] || blocks=$many
    [ "$blocks" -gt 64 ] || blocks=64
}
# By how much is printed at once.
expect() {
    if [ $((after - before)) -lt $((blocks * block / 2)) ]; then
        be_modest
        [ $((reserved - before)) -le $((4 * few * most)) ] || give_back
    elif [ "$block" -lt "$most" ]; then
        block=$most
    elif [ "$many" -lt 960 ]; then
        many=$((many * 2))
    fi
}
# What dd says at its end: how many bytes it has copied.
copied() {
    bytes=${told##*out?}
    bytes=${bytes%% *}
}

# Not for ever: on a full disk it may never end.
wait_for_former() {
    patience=50
    while [ -n "$former" ] && kill -0 "$former" 2>/dev/null && [ "$patience" -gt 0 ]; do
        sleep 0.1
        patience=$((patience - 1))
    done
}
# There is no moment at which the beginning is gone and nothing says so, nor the other way round.
put_aside() {
    [ ! -e "$log.1" ] || mv -f "$log.1" "$log.dropped" || return
    mv -f "$log" "$log.1" || return
    # Without room for it now, it is made when there is some.
    before=0
    command : >"$log"
    # Not emptied itself: whoever reads it still goes on with it.
    [ ! -s "$log.dropped" ] || { command : >"$log.empty" && mv -f "$log.empty" "$log.dropped"; }
}

be_modest
open_log
before=$(size)
plan
# Before anybody watches: to the kernel that is a change like what is printed.
reserve
# Open for reading as well: whoever wanted to know may have gone.
printf 'log\n' 1<>"$ready"
wait_for_former
[ -z "$says" ] || say "$says" || wait_to say_what_is_missing
says=
before=$(size)
while :; do
    plan
    reserve || reserve_a_little || wait_to reserve_a_little
    if told=$(dd bs="$block" count="$blocks" 2>&1 >&3); then
        case $told in
        # The end of the input. Of the log that says nothing: somebody may have cut or deleted it.
        '0+0 records in'*)
            give_back
            leave 0
            ;;
        esac
        copied
        take_over || wait_to say_what_is_missing
        after=$(size)
        # What was reserved went with what was cut off.
        [ "$bytes" = $((after - before)) ] || reserved=0
        expect
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
