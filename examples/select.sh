#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Chooses the 30 % of a real text to train on, and trains with them: scores from a small model, a graph
# of similar samples, the selection on two ranks, and the training run (docs/data-selection.md). Needs
# root or sudo on a machine without the packages. A second run reuses what is there.
#
#   examples/select.sh
#
# VOCABPIPE_SELECT_STEPS changes the number of training steps (400), VOCABPIPE_SELECT_FRACTION what is
# chosen (0.3).
set -euo pipefail
cd "$(dirname "$0")/.."

build=${VOCABPIPE_BUILD_DIR:-build}
work=$build/select
steps=${VOCABPIPE_SELECT_STEPS:-400}
fraction=${VOCABPIPE_SELECT_FRACTION:-0.3}
. examples/phases.sh

begin "packages and build"
examples/install_packages.sh
examples/configure.sh "$build" -DVOCABPIPE_BUILD_TOOLS=ON -DVOCABPIPE_ENABLE_MPI=ON
cmake --build "$build" --target train_gpt vocabpipe_tool
finish

begin "data"
mkdir -p "$work"
examples/make_text.sh "$work/kjv.txt"
if [ ! -f "$work/kjv.idx" ]; then
    "$build/bin/vocabpipe" data prepare --input "$work/kjv.txt" --output "$work/kjv" \
        --tokenizer sentencepiece --vocab-size 4000 --document-separator blank-lines
fi
finish

. examples/mpi_environment.sh
# Samples of 32 tokens: about 30,000 of them in the training part.
data=(--data-path "$work/kjv" --split 95,5,0 --seq-length 32)
train() { # folder or none, further flags
    mpirun -np 2 "$build/bin/train_gpt" "${data[@]}" --vocab-size 4000 --num-layers 2 --hidden-size 128 \
        --num-attention-heads 2 --micro-batch-size 16 --global-batch-size 64 --train-iters "$steps" \
        --lr 2e-3 --lr-warmup-iters 10 --vocab-mode one_barrier --log-interval 25 \
        --eval-interval "$steps" --eval-iters 10 "$@"
}

begin "train the model that scores"
[ -d "$work/scorer" ] || train --save "$work/scorer"
finish

begin "select score: how much the model doubts, and where samples lie"
mpirun -np 2 "$build/bin/vocabpipe" select score --load "$work/scorer" "${data[@]}" \
    --output "$work/scores.safetensors"
finish

begin "select knn: similar samples"
mpirun -np 2 "$build/bin/vocabpipe" select knn --embeddings "$work/scores.safetensors" --neighbours 10 --centre \
    --output "$work/graph.safetensors"
"$build/bin/vocabpipe" select stats --graph "$work/graph.safetensors" \
    --utility "$work/scores.safetensors" --fraction "$fraction"
finish

begin "select run: the best $fraction of the samples"
mpirun -np 2 "$build/bin/vocabpipe" select run --graph "$work/graph.safetensors" \
    --utility "$work/scores.safetensors" --fraction "$fraction" --alpha 9 --beta 1 \
    --bounding quota:0.3 --partitions 4 --rounds 8 --adaptive --seed 1 \
    --output "$work/subset.safetensors" --report "$work/report.json"
"$build/bin/vocabpipe" select page --report "$work/report.json" --html "$work/selection.html" \
    --subset "$work/subset.safetensors" --graph "$work/graph.safetensors" "${data[@]:0:4}"
finish

begin "train on the chosen samples"
train --data-subset "$work/subset.safetensors"
finish

print_phases
cat <<END

What to look at:
  $work/selection.html          what was kept of which chapter, in a browser
What to try next:
  benchmarks/compare_subsets.sh            does it help? chosen, random and all samples, by validation loss
  $build/bin/vocabpipe select run --help   other weights and bounds
END
