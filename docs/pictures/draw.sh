#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Draws the pictures of docs/schedules.md and docs/vocabulary-parallelism.md: every built-in schedule
# for 4 ranks and 8 microbatches, F = 1, B = 2, vocabulary passes 0; and 1F1B in every vocabulary mode,
# 8 layers, an even share of S and of T 1/2 each. And of docs/overlap.md 1F1B with a hop of 0.2 F, by
# whole messages and by 8 pieces. And of README.md what plain 1F1B and one barrier wait for. And of
# docs/multi-token-prediction.md 15 layers and a depth, whose output layer has two rows per token. And
# of docs/reinforcement-learning.md the rewards that examples/grpo.cpp has printed there.
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

compare() { # name of the picture
    [ -z "$check" ] || cmp "$folder/$1.svg" "$here/$1.svg" || {
        echo "draw.sh: docs/pictures/$1.svg is not what is drawn today; run docs/pictures/draw.sh" >&2
        exit 1
    }
}

draw() { # name of the picture, runs
    "$tool" timeline "${@:2}" --pp 4 --microbatches 8 --svg "$folder/$1.svg" >/dev/null
    compare "$1"
}

draw_rewards() { # name of the picture; reads lines such as "step  5   reward 0.059"
    awk '
        BEGIN {
            print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 400 150\" width=\"400\" font-family=\"sans-serif\" font-size=\"11\">"
            print "<style>text { fill: #1c2330 } .line { stroke: #d9dde3 } @media (prefers-color-scheme: dark) {"
            print "text { fill: #e6eaf1 } .back { fill: #14171d } .line { stroke: #323a47 } } .e { text-anchor: end }</style>"
            print "<rect width=\"100%\" height=\"100%\" class=\"back\" fill=\"#fff\"/>"
            for (tenth = 0; tenth <= 10; tenth += 5) {
                y = 120 - 10 * tenth
                printf "<text x=\"30\" y=\"%d\" class=\"e\">%.1f</text><path class=\"line\" d=\"M36 %dH390\"/>\n", y + 4, tenth / 10, y
            }
        }
        /^ *step +[0-9]+ +reward [0-9.]+$/ {
            x = 36 + 11 * $2; y = 120 - 100 * $4
            points = points sprintf(" %g,%g", x, y)
            printf "<circle cx=\"%g\" cy=\"%g\" r=\"3\" fill=\"#4878d0\"/><text x=\"%g\" y=\"138\" text-anchor=\"middle\">%d</text>\n", x, y, x, $2
        }
        END {
            print "<polyline points=\"" points "\" fill=\"none\" stroke=\"#4878d0\" stroke-width=\"2\"/>"
            print "<text x=\"390\" y=\"14\" class=\"e\">mean reward of 16 answers, by step</text></svg>"
        }' >"$folder/$1.svg"
    compare "$1"
}

for schedule in $("$tool" schedule list | awk 'NR > 1 && /^[^ ]/ { print $1 }'); do draw "$schedule" "$schedule" --costs 1,2,0; done
modes=()
for mode in none redistributed interlaced one_barrier two_barriers; do modes+=("1f1b,vocab-mode=$mode"); done
draw streams 1f1b,tile-pieces=1 1f1b,tile-pieces=8 --num-layers 8 --costs 10,20,0 --hop 2
draw critical-path "${modes[0]}" "${modes[3]}" --num-layers 8 --costs 2,4,1 --critical-path
draw vocabulary-modes "${modes[@]}" --num-layers 8 --costs 2,4,1
draw policy-loss "${modes[4]}" "${modes[3]}" --num-layers 8 --costs 2,4,1
draw_rewards grpo-rewards <"$here/../reinforcement-learning.md"
draw several-tokens "${modes[0]}" "${modes[1]}" "${modes[3]}" --num-layers 15 --mtp-num-layers 1 --costs 8,16,2
