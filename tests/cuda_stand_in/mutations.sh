#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Leaves out one barrier or wait of the CUDA backend at a time and shows whether the tests on the
# stand-in toolkit turn red. Prints a Markdown table; exit code 1 if more than one in twenty goes
# unnoticed. Not part of tests/run.sh: it builds twice and runs tests some thirty times.
#
#   tests/cuda_stand_in/mutations.sh            everything
#   tests/cuda_stand_in/mutations.sh kernels    barriers between the threads of a kernel
#   tests/cuda_stand_in/mutations.sh streams    waits of streams, and of the host for streams
#   tests/cuda_stand_in/mutations.sh links      those of tile links, under ThreadSanitizer alone
#   tests/cuda_stand_in/mutations.sh pieces     those of streamed edges, under ThreadSanitizer alone
#   tests/cuda_stand_in/mutations.sh tensor     those in steps of tensor ranks, by bits alone
#   tests/cuda_stand_in/mutations.sh experts    those in steps of expert ranks, likewise
#
# It works on a copy of the working tree, where every place asks at run time whether it is the one to
# leave out: one build serves all. VOCABPIPE_MUTATIONS_DIR keeps the copy (default: build-mutations).
# VOCABPIPE_MUTATIONS: a regular expression that the place (file:line) must match.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

case "${1:-all}" in
    all) groups="kernels streams links pieces tensor experts" ;;
    kernels | streams | links | pieces | tensor | experts) groups=$1 ;;
    *)
        echo "mutations.sh: error: $1: kernels, streams, links, pieces, tensor, experts or nothing" >&2
        exit 2
        ;;
esac
work=$PWD/${VOCABPIPE_MUTATIONS_DIR:-build-mutations}
tree=$work/tree
log=$work/log
limit=1800 # seconds for the tests of one mutation
export OMP_NUM_THREADS=1
export TSAN_OPTIONS=halt_on_error=1

say() { echo "$*" >&2; }

# Barriers are found by their names, wherever they are; a name that is written in a comment is none.
barriers='__syncthreads\(\)|__syncwarp\(\w*\)'
stream_waits='cudaStreamWaitEvent\(|lanes\.wait\('
row_waits='[ )]await_rows\('
host_waits='cudaStreamSynchronize\(|cudaEventSynchronize\('
places() { # group: file:line
    case $1 in
        kernels) grep -rnE "$barriers" kernels/cuda --include='*.cu' --include='*.cuh' ;;
        streams)
            grep -rnE "$stream_waits|$host_waits" src/runtime/device/cuda src/runtime/transport \
                src/runtime/run_step.cpp --include='*.cpp' --exclude=link_steps.cpp
            ;;
        links) # and the waits that steps share with other messages
            grep -rnE "$stream_waits|$host_waits" src/runtime/tile_link src/runtime/transport/nccl/link_steps.cpp \
                --include='*.cpp'
            grep -nHE "$stream_waits" src/runtime/transport/device_copies/transport.cpp
            ;;
        pieces) # and the waits that streamed edges share with others
            grep -nHE "$row_waits" src/runtime/run_step.cpp src/runtime/run_streams.cpp
            grep -nHE "$stream_waits" src/runtime/device/cuda/lanes.cpp src/runtime/run_step.cpp \
                src/runtime/transport/device_copies/transport.cpp
            ;;
        tensor | experts)
            grep -nHE "$stream_waits" src/runtime/tile_link/stream_exchange.cpp src/runtime/run_step.cpp \
                src/runtime/transport/nccl/link_steps.cpp src/runtime/transport/device_copies/transport.cpp
            ;;
    esac | grep -vE '^[^:]*:[0-9]*: *//' | cut -d: -f1,2
}

# The working tree with a question at every place. Files that have not changed keep their times.
copy_tree() {
    local file line place number=0
    rm -rf "$work/fresh"
    mkdir -p "$tree" "$work/fresh"
    git ls-files -z --cached --others --exclude-standard |
        while IFS= read -r -d '' file; do [ -f "$file" ] && printf '%s\0' "$file"; done >"$work/files"
    xargs -0 -a "$work/files" cp -p --parents -t "$work/fresh"
    cat >"$work/fresh/left_out.hpp" <<'END'
#pragma once
#include <cstdlib>
inline const int left_out = std::getenv("LEFT_OUT") ? std::atoi(std::getenv("LEFT_OUT")) : 0;
END
    for place in "${all[@]}"; do
        file=${place%:*}
        line=${place#*:}
        number=$((number + 1))
        perl -i -pe 's/^/#include "left_out.hpp" \/\/ / if $. == 1 && !/left_out/;
            if ($. == '"$line"') {
                s/(__syncthreads\(\)|__syncwarp\(\w*\))/(left_out == '$number' ? (void)0 : $1)/
                or s/((?:\w+\.)*lanes\.wait|\bawait_rows)\(/[&](auto&&... a) { if (left_out != '$number') $1(a...); }(/
                or s/(cuda(StreamWaitEvent|StreamSynchronize|EventSynchronize))\(/[&](auto&&... a) { return left_out == '$number' ? cudaSuccess : $1(a...); }(/
            }' "$work/fresh/$file"
        sed -n "${line}p" "$work/fresh/$file" | grep -q left_out || {
            say "mutations.sh: error: $place cannot be left out: the line has another form"
            exit 2
        }
    done
    (cd "$work/fresh" && find . -type f -print0) | while IFS= read -r -d '' file; do
        cmp -s "$work/fresh/$file" "$tree/$file" || install -D "$work/fresh/$file" "$tree/$file"
    done
}

# Kernels tell the stand-in of their accesses in builds without a sanitizer. A missing wait of a stream
# gives wrong bits under random delays, or else ThreadSanitizer sees it.
variants() { # group
    case $1 in
        kernels | tensor | experts) echo plain ;;
        streams) echo plain tsan ;;
        links | pieces) echo tsan ;;
    esac
}
programs() { # group
    case $1 in
        kernels) echo cuda_kernels_on_stand_in_test ;;
        streams) echo cuda_step_on_stand_in_test cuda_equality_on_stand_in_test ;;
        links) echo cuda_tile_link_test ;;
        pieces) echo cuda_stream_on_stand_in_test ;;
        tensor) echo cuda_tensor_ranks_on_stand_in_test ;;
        experts) echo cuda_expert_ranks_on_stand_in_test ;;
    esac
}
# Of the equality matrix what covers every kind of message and lane. ThreadSanitizer sees a race however
# late the streams are, so it needs none of the many steps under random delays.
filter() { # variant group
    local streams='*gpipe_none_p3_*:*1f1b_interlaced_p3_*:*zb_h1_one_barrier_p3_*:*CudaStep*:*CudaFaults*:*CudaCopies*:*CudaEnds*'
    case $1-$2 in
        plain-kernels | tsan-links) echo '*' ;;
        plain-streams) echo "$streams" ;;
        tsan-streams) echo "$streams-*StreamsAreDelayed*" ;;
        plain-tensor | plain-experts) echo '*StreamsAreDelayed' ;;
        tsan-pieces) echo '*CudaPieces*:*/1f1b_two_barriers_*:*/zb_h1_one_barrier_*:*/gpipe_none_*' ;;
    esac
}

build() { # variant group
    # As tests/run.sh does it, so that a compiler cache knows most of it.
    local preset=dev
    [ "$1" = tsan ] && preset=tsan
    # shellcheck disable=SC2046
    cmake --preset $preset -S "$tree" -B "$tree/build-$1" -DVOCABPIPE_BUILD_TESTS=ON \
        -DVOCABPIPE_ENABLE_MPI=OFF -DVOCABPIPE_BUILD_BENCHMARKS=OFF -DVOCABPIPE_BUILD_TOOLS=OFF \
        -DVOCABPIPE_BUILD_EXAMPLES=OFF -DVOCABPIPE_INSTALL=OFF -DVOCABPIPE_SLOW_TESTS=ON >"$log" 2>&1 &&
        ninja -C "$tree/build-$1" $(programs "$2") >"$log" 2>&1
}

run_tests() { # variant group: 0 green, 1 red, 2 too slow
    local program
    for program in $(programs "$2"); do
        timeout -k 10 $limit "$tree/build-$1/bin/$program" --gtest_fail_fast --gtest_filter="$(filter "$1" "$2")" \
            >"$log" 2>&1
        case $? in
            0) ;;
            124 | 137) return 2 ;;
            *) return 1 ;;
        esac
    done
}

declare -A green=()
# Builds a variant, once, and sees to it that its tests pass with nothing left out.
prepare() { # variant group
    [ -n "${green[$1 $2]:-}" ] && return
    say "=== $2, $1: the tests as they are ($SECONDS s)"
    if ! { build "$1" "$2" && run_tests "$1" "$2"; }; then
        say "mutations.sh: error: the tests are not green with nothing left out; the end of $log:"
        tail -20 "$log" >&2
        exit 2
    fi
    green[$1 $2]=yes
}

# What turned red, and how it said so.
reason() {
    local test how
    # The first that failed, or the one that ran when the process ended.
    test=$(sed -n 's/^\[  FAILED  \] \([^ ,]*\).*/\1/p' "$log" | head -1)
    [ -n "$test" ] || test=$(sed -n 's/^\[ RUN      \] //p' "$log" | tail -1)
    how=$(grep -oE 'CUDA stand-in: .*|WARNING: ThreadSanitizer: [a-z ]*|: Failure' "$log" | head -1)
    case $how in
        *'race with'* | *'has not written'*) how='race in a kernel' ;;
        'CUDA stand-in: '*) how='the stand-in refuses' ;;
        *ThreadSanitizer*) how='race between streams' ;;
        ': Failure') how='wrong result' ;;
        *) how='exit code' ;;
    esac
    echo "$how in $test"
}

mapfile -t all < <(for group in kernels streams links pieces tensor experts; do places $group; done | awk '!seen[$0]++')
total=0
caught=0
table=
copy_tree
for group in $groups; do
    for place in $(places "$group" | grep -E "${VOCABPIPE_MUTATIONS:-.}"); do
        file=${place%:*}
        line=${place#*:}
        what=$(sed -n "${line}p" "$file" | grep -oE "$barriers|$stream_waits|$host_waits|$row_waits" | head -1 | tr -d ' )')
        number=0
        until [ "${all[number]}" = "$place" ]; do number=$((number + 1)); done
        for variant in $(variants "$group"); do
            prepare "$variant" "$group"
            LEFT_OUT=$((number + 1)) run_tests "$variant" "$group"
            case $? in
                0) verdict="**missed**" ;;
                1) verdict="caught: $(reason)" ;;
                *) verdict="caught: hangs in $(sed -n 's/^\[ RUN      \] //p' "$log" | tail -1)" ;;
            esac
            [[ $verdict == caught* ]] && break
        done
        total=$((total + 1))
        [[ $verdict == caught* ]] && caught=$((caught + 1))
        table+="| \`$place\` | \`${what%(*}\` | $verdict |"$'\n'
        say "$place: $verdict ($SECONDS s)"
    done
done

echo "| place | left out | verdict |"
echo "|---|---|---|"
printf '%s' "$table"
echo
echo "$caught of $total caught."
[ $((20 * caught)) -ge $((19 * total)) ]
