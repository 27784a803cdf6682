#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Draws the pictures of docs/schedules.md and docs/vocabulary-parallelism.md: every built-in schedule
# for 4 ranks and 8 microbatches, F = 1, B = 2, vocabulary passes 0; and 1F1B in every vocabulary mode,
# 8 layers, an even share of S and of T 1/2 each. And of docs/overlap.md 1F1B with a hop of 0.2 F, by
# whole messages and by 8 pieces. And of README.md what plain 1F1B and one barrier wait for. And of
# docs/multi-token-prediction.md 15 layers and a depth, whose output layer has two rows per token.
#
#   docs/pictures/draw.sh [--check] [build/bin/vocabpipe]
#
# --check draws them to a temporary folder, and fails where they differ from those in docs/pictures.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
check=
if [ "${1:-}" = --check ]; then
    check=1
    shift
fi
tool=${1:-build/bin/vocabpipe}
folder=$here
if [ -n "$check" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi

draw() { # name of the picture, runs
    "$tool" timeline "${@:2}" --pp 4 --microbatches 8 --svg "$folder/$1.svg" >/dev/null
    [ -z "$check" ] || cmp "$folder/$1.svg" "$here/$1.svg" || {
        echo "draw.sh: docs/pictures/$1.svg is not what the tool draws today; run docs/pictures/draw.sh" >&2
        exit 1
    }
}

for schedule in $("$tool" schedule list | awk 'NR > 1 && /^[^ ]/ { print $1 }'); do draw "$schedule" "$schedule" --costs 1,2,0; done
modes=()
for mode in none redistributed interlaced one_barrier two_barriers; do modes+=("1f1b,vocab-mode=$mode"); done
draw streams 1f1b,tile-pieces=1 1f1b,tile-pieces=8 --num-layers 8 --costs 10,20,0 --hop 2
draw critical-path "${modes[0]}" "${modes[3]}" --num-layers 8 --costs 2,4,1 --critical-path
draw vocabulary-modes "${modes[@]}" --num-layers 8 --costs 2,4,1
draw policy-loss "${modes[4]}" "${modes[3]}" --num-layers 8 --costs 2,4,1
draw several-tokens "${modes[0]}" "${modes[1]}" "${modes[3]}" --num-layers 15 --mtp-num-layers 1 --costs 8,16,2
