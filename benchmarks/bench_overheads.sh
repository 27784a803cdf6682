#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a training step of GPT-2 124M pays for data, metrics and checkpoints, in turns, in one run.
#
#   benchmarks/bench_overheads.sh [--rounds 3] [--steps 100] [--dtype fp32] [--threads 2]
#                                 [--scratch FOLDER] [--model-flags FLAGS]
#
#   bare      bench_step: model, loss, optimizer; one batch that is in memory; nothing printed or written
#   plain     train_gpt: loads every step's data, prints a line per step
#   with      the same with --metrics, TensorBoard events where this build has them, and one
#             asynchronous checkpoint of weights, optimizer and data position in so many steps
#
# 4 sequences of 64 tokens per step, one rank. Time: from the end of the last warm-up step to that of the
# last step, over the steps, as a clock outside of the program sees them, so that everything between two
# steps counts; bench_step's by its own clock. ratio: over bare of the same round; the table has the
# medians over rounds. Files go to a folder in --scratch (default: $TMPDIR or /tmp): 1.5 GB per checkpoint.
#
# VOCABPIPE_BUILD_DIR: build folder (build). Exit code: 0; 1 if a program failed; 2 usage.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { # message, exit code
    echo "benchmarks/bench_overheads.sh: error: $1" >&2
    exit "$2"
}

rounds=3 steps=100 warm_up=5 dtype=fp32 threads=2 scratch=${TMPDIR:-/tmp}
seq_length=64 sequences=4
model="--num-layers 12 --hidden-size 768 --num-attention-heads 12 --vocab-size 50257"
while [ $# -gt 0 ]; do
    case "$1" in
        --rounds | --steps | --dtype | --threads | --scratch | --model-flags) ;;
        *) fail "$1: the options are --rounds --steps --dtype --threads --scratch --model-flags" 2 ;;
    esac
    [ $# -ge 2 ] || fail "$1: needs a value" 2
    case "$1" in
        --rounds) rounds=$2 ;;
        --steps) steps=$2 ;;
        --dtype) dtype=$2 ;;
        --threads) threads=$2 ;;
        --scratch) scratch=$2 ;;
        --model-flags) model=$2 ;;
    esac
    shift 2
done
bin=$(realpath "${VOCABPIPE_BUILD_DIR:-build}")/bin
for program in train_gpt bench_step vocabpipe; do
    [ -x "$bin/$program" ] || fail "$bin/$program: is missing; build it, or set VOCABPIPE_BUILD_DIR" 2
done
scratch=$(mktemp -d "$scratch/vocabpipe-overheads-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export OMP_NUM_THREADS=$threads
cat README.md docs/*.md >"$scratch/text.txt"
"$bin/vocabpipe" data prepare --input "$scratch/text.txt" --output "$scratch/text" --tokenizer bytes >/dev/null

with=(--metrics "$scratch/metrics" --save "$scratch/saved" --async-save
    --save-interval $((warm_up + steps / 2)))
if "$bin/train_gpt" --help | grep -q -- --tensorboard-dir; then with+=(--tensorboard-dir "$scratch/events"); fi

bare() {
    # shellcheck disable=SC2086
    "$bin/bench_step" $model --seq-length $seq_length --micro-batch-size $sequences --dtype "$dtype" \
        --threads-per-rank "$threads" --steps "$steps" --json "$scratch/bare.json" >/dev/null
    sed 's/.*"mean_step_seconds":\([^,}]*\).*/\1/' "$scratch/bare.json"
}

trainer() { # further flags
    rm -rf "$scratch/saved" "$scratch/metrics" "$scratch/events"
    # shellcheck disable=SC2086
    "$bin/train_gpt" $model --seq-length $seq_length --micro-batch-size $sequences \
        --global-batch-size $sequences --dtype "$dtype" --threads-per-rank "$threads" --vocab-mode none \
        --data-path "$scratch/text" --train-iters $((warm_up + steps)) "$@" |
        while IFS= read -r line; do
            case "$line" in
                " iteration "*) echo "$EPOCHREALTIME" ;;
                "saved "*) echo "#   $line" >&2 ;;
            esac
        done >"$scratch/stamps"
    awk -v first=$warm_up 'NR == first { begin = $1 } { end = $1 }
        END { printf "%.6f\n", (end - begin) / (NR - first) }' "$scratch/stamps"
}

echo "# bench_overheads: $model, $sequences x $seq_length tokens, $dtype, $threads threads, a checkpoint in $steps steps; $(date -u +%Y-%m-%d)"
echo "# $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), load $(cut -d' ' -f1 /proc/loadavg), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
printf '# %5s %10s %10s %10s %8s %8s\n' round bare plain with plain with '' ms ms ms ratio ratio
for ((round = 1; round <= rounds; ++round)); do
    kinds=(bare plain with)
    [ $((round % 2)) = 1 ] || kinds=(with plain bare)
    for kind in "${kinds[@]}"; do
        case $kind in
            bare) bare_seconds=$(bare) ;;
            plain) plain_seconds=$(trainer) ;;
            with) with_seconds=$(trainer "${with[@]}") ;;
        esac
    done
    echo "$round $bare_seconds $plain_seconds $with_seconds" | tee -a "$scratch/rounds" |
        awk '{ printf "  %5s %10.1f %10.1f %10.1f %8.3f %8.3f\n", $1, 1e3 * $2, 1e3 * $3, 1e3 * $4, $3 / $2, $4 / $2 }'
done
middle() { # awk expression of a row
    awk "{ print $1 }" "$scratch/rounds" | sort -g | sed -n "$(((rounds + 1) / 2))p"
}
printf '# %5s %10.1f %10.1f %10.1f %8.3f %8.3f\n' median "$(middle '1e3 * $2')" "$(middle '1e3 * $3')" \
    "$(middle '1e3 * $4')" "$(middle '$3 / $2')" "$(middle '$4 / $2')"
