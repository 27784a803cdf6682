#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Does training on chosen samples help? After examples/select.sh, trains its small model on the chosen
# samples, on as many at random and on all, the same number of steps, and prints the validation losses:
# mean, least and most over seeds of weights, data order and random choice.
#
#   benchmarks/compare_subsets.sh [--steps N] [--seeds N] [--fraction X] [--copies X]
#
# --copies replaces so large a share of the training samples by copies of others with 3 of 32 tokens changed.
# Fifteen runs of one thread each; about 20 minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${VOCABPIPE_BUILD_DIR:-build}
work=$build/select
steps=1000 seeds=3 fraction=0.3 copies=0
while [ $# -gt 0 ]; do
    case $1 in
        --steps) steps=$2 ;;
        --seeds) seeds=$2 ;;
        --fraction) fraction=$2 ;;
        --copies) copies=$2 ;;
        *)
            echo "compare_subsets.sh: error: $1: the options are --steps, --seeds, --fraction, --copies" >&2
            exit 2
            ;;
    esac
    shift 2
done
[ -f "$work/subset.safetensors" ] || {
    echo "compare_subsets.sh: error: $work/subset.safetensors is missing; run examples/select.sh" >&2
    exit 3
}
vocabpipe=$build/bin/vocabpipe
data=$work/kjv scores=$work/scores.safetensors graph=$work/graph.safetensors
runs=$work/compare
if [ "$copies" != 0 ]; then
    runs=$work/compare-copies
    data=$runs/text scores=$runs/scores.safetensors graph=$runs/graph.safetensors
    mkdir -p "$runs"
    rm -f "$runs"/*.txt  # tables say not who wrote them, so none is replaced
    "$vocabpipe" select export "$work/scores.safetensors" --column utility --output "$runs/every.txt"
    cp "$work/kjv.idx" "$data.idx"
    # Tokens are replaced in their places, so the index stays as it is.
    python3 - "$work/kjv.bin" "$data.bin" "$runs/original.txt" "$(wc -l <"$runs/every.txt")" "$copies" <<'PYTHON'
import array, random, sys
tokens = array.array("H", open(sys.argv[1], "rb").read())
samples, share, source = int(sys.argv[4]), float(sys.argv[5]), random.Random(1)
order = random.Random(2).sample(range(samples), samples)
copies = order[: int(share * samples)]
original = list(range(samples))
for copy in copies:
    original[copy] = source.choice(order[len(copies):])
    tokens[32 * copy: 32 * copy + 32] = tokens[32 * original[copy]: 32 * original[copy] + 32]
    for place in source.sample(range(32), 3):
        tokens[32 * copy + place] = source.choice(tokens)
open(sys.argv[2], "wb").write(tokens.tobytes())
open(sys.argv[3], "w").writelines(f"{number}\n" for number in original)
PYTHON
    "$vocabpipe" select score --load "$work/scorer" --data-path "$data" --split 95,5,0 --seq-length 32 \
        --output "$scores" >"$runs/score.log"
    "$vocabpipe" select knn --embeddings "$scores" --neighbours 10 --centre --output "$graph" >"$runs/knn.log"
fi
mkdir -p "$runs"

choose() { # output, flags
    local output=$1
    shift
    "$vocabpipe" select run --graph "$graph" --fraction "$fraction" --output "$output" \
        "$@" >"$output.log" 2>&1 || {
        tail -n 3 "$output.log" >&2
        exit 1
    }
}
# What else one could choose: without the graph (the largest utilities alone), and at random, which is
# the same with utilities that are random numbers.
choose "$runs/both.safetensors" --utility "$scores" --alpha 9 --beta 1 --bounding quota:0.3 \
    --partitions 4 --rounds 8 --adaptive
choose "$runs/diverse.safetensors" --utility "$scores" --alpha 1 --beta 1 --bounding quota:0.3 \
    --partitions 4 --rounds 8 --adaptive
choose "$runs/utility.safetensors" --utility "$scores" --alpha 1 --beta 0
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
    --data-path "$data" --split 95,5,0 --seq-length 32 --vocab-size 4000 --num-layers 2 --hidden-size 128 \
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
[ "$copies" = 0 ] && exit
for which in random-1 both diverse utility; do
    "$vocabpipe" select export "$runs/$which.safetensors" --output "$runs/$which.txt" >"$runs/export.log"
done
python3 - "$runs" <<'PYTHON'
import sys
folder = sys.argv[1]
original = [int(line) for line in open(f"{folder}/original.txt")]
print("\nof what was chosen, neither the same nor copies of each other:")
for name in ("random-1", "both", "diverse", "utility"):
    chosen = [original[int(line)] for line in open(f"{folder}/{name}.txt")]
    print(f"{name}: {100 * len(set(chosen)) / len(chosen):.0f} %")
PYTHON
