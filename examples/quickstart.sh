#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh Debian 12 or 13 machine (root or sudo) to a trained model: packages, build, real text, and three
# training runs under mpirun. A second run reuses what is there.
#
#   examples/quickstart.sh
#
# VOCABPIPE_QUICKSTART_STEPS changes the number of training steps (40).
set -euo pipefail
cd "$(dirname "$0")/.."

build=${VOCABPIPE_BUILD_DIR:-build}
work=$build/quickstart
steps=${VOCABPIPE_QUICKSTART_STEPS:-40}
vocab_size=16000
. examples/phases.sh

finish_aloud() {
    finish
    echo "=== $phase: $phase_seconds s"
}

begin "packages"
examples/install_packages.sh
finish_aloud

begin "build"
examples/configure.sh "$build" -DVOCABPIPE_BUILD_TOOLS=ON -DVOCABPIPE_ENABLE_MPI=ON
cmake --build "$build" --target train_gpt vocabpipe_tool
finish_aloud

begin "data"
mkdir -p "$work"
examples/make_text.sh "$work/kjv.txt"
if [ ! -f "$work/kjv.idx" ]; then
    "$build/bin/vocabpipe" data prepare --input "$work/kjv.txt" --output "$work/kjv" \
        --tokenizer sentencepiece --vocab-size $vocab_size --document-separator blank-lines
fi
"$build/bin/vocabpipe" data inspect "$work/kjv"
finish_aloud

. examples/mpi_environment.sh

train() { # ranks, vocab mode
    begin "train on $1 ranks, 1F1B, vocab mode $2"
    mpirun -np "$1" "$build/bin/train_gpt" --data-path "$work/kjv" --vocab-size $vocab_size \
        --num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 256 \
        --untie-embeddings-and-output-weights \
        --micro-batch-size 1 --global-batch-size 16 --train-iters "$steps" \
        --lr 2e-3 --lr-warmup-iters 5 --schedule 1f1b --vocab-mode "$2" \
        --trace-dir "$work/traces" --metrics "$work/$2-p$1.jsonl" --report "$work/$2-p$1.json"
    finish_aloud
}

train 2 none
train 2 one_barrier
echo
echo "2 ranks: plain 1F1B and 1F1B with vocabulary parallelism"
"$build/bin/vocabpipe" compare --simulated "$work/none-p2.json" "$work/one_barrier-p2.json"

train 4 one_barrier
echo
echo "4 ranks on $(nproc) cores, and what one core per rank would give"
"$build/bin/vocabpipe" compare --simulated "$work/one_barrier-p4.json"

print_phases

# Steps of both runs on 2 ranks above each other: the last rank's output layer, and the wait for it.
"$build/bin/vocabpipe" timeline "$work/traces/1f1b-none-p2.json" "$work/traces/1f1b-one_barrier-p2.json" \
    --html "$work/timelines.html" --title "1F1B without and with vocabulary parallelism"
echo
echo "where the time of the last traced step went"
"$build/bin/vocabpipe" explain "$work/traces/1f1b-one_barrier-p2.json"
cat <<END

What to look at:
  $work/timelines.html         both runs above each other, in a browser
  $work/traces/*.json          each run, in https://ui.perfetto.dev
What to try next:
  $build/bin/vocabpipe explain $work/traces/1f1b-none-p2.json   where the time went without it
  $build/bin/vocabpipe plan --help                        the best schedule for your model and GPUs
  $build/bin/vocabpipe generate --help                    text from a saved model
  docs/training.md                                        your own model and text
END
