#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Does training on chosen samples help? After examples/select.sh, trains its small model on the chosen
# samples, on as many at random and on all, the same number of steps, and prints the validation losses:
# mean, least and most over seeds of weights, data order and random choice.
#
#   benchmarks/compare_subsets.sh [--steps N] [--seeds N] [--fraction X]
#
# Fifteen runs of one thread each; about 20 minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${VOCABPIPE_BUILD_DIR:-build}
work=$build/select
steps=1000 seeds=3 fraction=0.3
while [ $# -gt 0 ]; do
    case $1 in
        --steps) steps=$2 ;;
        --seeds) seeds=$2 ;;
        --fraction) fraction=$2 ;;
        *)
            echo "compare_subsets.sh: error: $1: the options are --steps, --seeds and --fraction" >&2
            exit 2
            ;;
    esac
    shift 2
done
[ -f "$work/subset.safetensors" ] || {
    echo "compare_subsets.sh: error: $work/subset.safetensors is missing; run examples/select.sh" >&2
    exit 3
}
runs=$work/compare
mkdir -p "$runs"
vocabpipe=$build/bin/vocabpipe

choose() { # output, flags
    local output=$1
    shift
    "$vocabpipe" select run --graph "$work/graph.safetensors" --fraction "$fraction" --output "$output" \
        "$@" >"$output.log" 2>&1 || {
        tail -n 3 "$output.log" >&2
        exit 1
    }
}
# What else one could choose: without the graph (the largest utilities alone), and at random, which is
# the same with utilities that are random numbers.
choose "$runs/both.safetensors" --utility "$work/scores.safetensors" --alpha 9 --beta 1 --bounding quota:0.3 \
    --partitions 4 --rounds 8 --adaptive
choose "$runs/diverse.safetensors" --utility "$work/scores.safetensors" --alpha 1 --beta 1 --bounding quota:0.3 \
    --partitions 4 --rounds 8 --adaptive
choose "$runs/utility.safetensors" --utility "$work/scores.safetensors" --alpha 1 --beta 0
samples=$(sed -n 's/^samples *\([0-9]*\).*/\1/p' "$runs/both.safetensors.log")
for seed in $(seq "$seeds"); do
    python3 - "$runs/random-$seed.npy" "$samples" "$seed" <<'PYTHON'
import random, struct, sys
path, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
header = "{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }" % count
header += " " * (-(len(header) + 11) % 64) + "\n"
source = random.Random(seed)
with open(path, "wb") as file:
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
    file.write(struct.pack("<%dd" % count, *(source.random() for _ in range(count))))
PYTHON
    choose "$runs/random-$seed.safetensors" --utility "$runs/random-$seed.npy" --alpha 1 --beta 0
done

# As many runs at a time as there are cores: losses do not depend on it.
for seed in $(seq "$seeds"); do
    for which in all random both diverse utility; do
        chosen=$runs/$which.safetensors
        [ $which = random ] && chosen=$runs/random-$seed.safetensors
        subset=()
        [ $which = all ] || subset=(--data-subset "$chosen")
        echo "--seed" "$seed" --metrics "$runs/$which-$seed.jsonl" "${subset[@]}"
    done
done | xargs -P "$(nproc)" -L 1 "$build/bin/train_gpt" --transport threads --ranks 1 --threads-per-rank 1 \
    --data-path "$work/kjv" --split 95,5,0 --seq-length 32 --vocab-size 4000 --num-layers 2 --hidden-size 128 \
    --num-attention-heads 2 --micro-batch-size 64 --global-batch-size 64 --train-iters "$steps" \
    --lr 2e-3 --lr-warmup-iters 20 --min-lr 2e-4 --lr-decay-style cosine --log-interval "$steps" \
    --eval-interval "$((steps / 4))" --eval-iters 20 >"$runs/log"
python3 - "$runs" "$seeds" <<'PYTHON'
import json, sys
folder, seeds = sys.argv[1], int(sys.argv[2])
names = {"all": "all samples", "random": "at random", "both": "alpha 9, beta 1", "diverse": "alpha 1, beta 1",
         "utility": "utility alone"}
table = {}
for name in names:
    for seed in range(1, seeds + 1):
        for line in open(f"{folder}/{name}-{seed}.jsonl"):
            values = json.loads(line)
            if "eval_loss" in values:
                table.setdefault(values["step"], {}).setdefault(name, []).append(values["eval_loss"])
print("| step | " + " | ".join(names.values()) + " |")
print("|---" * (len(names) + 1) + "|")
for step, row in sorted(table.items()):
    cells = [f"{sum(v) / len(v):.4f} ({min(v):.4f} .. {max(v):.4f})" for v in (row[name] for name in names)]
    print(f"| {step} | " + " | ".join(cells) + " |")
PYTHON
