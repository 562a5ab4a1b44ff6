#!/bin/sh
# Runs a command with a line for each session that fails, its name and the reason: how to react to amux over
# D-Bus without any library. For example:  on-failure.sh espeak
set -eu

signal="SessionStateChanged (objectpath '[^']*', '[^']*', ['\"]\(.*\)['\"], '[a-z]*', 'failed', ['\"]\(.*\)['\"], uint32"
gdbus monitor --session --dest org.amux.Amux1 --object-path /org/amux/Amux1 |
    sed -un "s/^.*$signal .*/\1: \2/p" |
    while read -r line; do
        "$@" "$line"
    done
