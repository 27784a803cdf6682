#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# From chats as JSON lines to a model that answers: trains a tiny model on text, renders chats, learns what the
# assistant says in them, and asks (docs/instructions.md). Needs root or sudo on a machine without the packages.
# A second run reuses the model of the text.
#
#   examples/finetune.sh
#
# A wrong answer is an error. VOCABPIPE_FINETUNE_BIN names a folder with programs to use instead of building
# them.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${VOCABPIPE_BUILD_DIR:-build}
work=$build/finetune
bin=${VOCABPIPE_FINETUNE_BIN:-$build/bin}
. examples/phases.sh

if [ -z "${VOCABPIPE_FINETUNE_BIN:-}" ]; then
    begin "packages and build"
    examples/install_packages.sh
    examples/install_packages.sh --chats
    examples/configure.sh "$build" -DVOCABPIPE_BUILD_TOOLS=ON -DVOCABPIPE_ENABLE_MPI=ON
    cmake --build "$build" --target train_gpt vocabpipe_tool
    finish
fi
mkdir -p "$work"

. examples/mpi_environment.sh
train() { # data, folder, steps, further flags
    mpirun -np 2 "$bin/train_gpt" --data-path "$1" --save "$2" --train-iters "$3" --model-type llama \
        --num-layers 2 --hidden-size 128 --num-attention-heads 4 --vocab-size 257 --seq-length 256 \
        --micro-batch-size 4 --global-batch-size 16 --lr 3e-3 --lr-warmup-iters 10 --vocab-mode one_barrier \
        --log-interval 50 "${@:4}"
}

begin "a model of text"
if ! compgen -G "$work/pretrained/step-*" >/dev/null; then
    "$bin/vocabpipe" data prepare --input docs/*.md --output "$work/text"
    train "$work/text" "$work/pretrained" 100
fi
finish

begin "chats, rendered and tokenized"
questions=("What is the capital of %s?" "Name the capital of %s." "Tell me: which town governs %s?")
countries=("France Paris" "Japan Tokyo" "Peru Lima" "Austria Vienna" "Belgium Brussels" "Canada Ottawa"
    "Denmark Copenhagen" "Egypt Cairo" "Germany Berlin" "Hungary Budapest" "Italy Rome" "Kenya Nairobi"
    "Norway Oslo" "Poland Warsaw" "Spain Madrid" "Turkey Ankara")
chat() { # question with %s, country, capital
    # shellcheck disable=SC2059  # the format is ours
    printf "{\"messages\": [{\"role\": \"user\", \"content\": \"$1\"}, " "$2"
    printf '{"role": "assistant", "content": "%s."}]}\n' "$3"
}
for question in "${questions[@]}"; do
    for country in "${countries[@]}"; do chat "$question" "${country% *}" "${country#* }"; done
done >"$work/chats.jsonl"
template=(--chat-template examples/chats/chatml.jinja)
examples/chats/render_chats.py --input "$work/chats.jsonl" --output "$work/rendered.jsonl" "${template[@]}"
"$bin/vocabpipe" data prepare --input "$work/rendered.jsonl" --output "$work/chats"
"$bin/vocabpipe" data inspect "$work/chats" --html "$work/learnt.html"
finish

begin "learn the answers"
rm -rf "$work/finetuned"
train "$work/chats" "$work/finetuned" 400 --load "$work/pretrained" --finetune --packing-strategy bfd
finish

begin "ask"
wrong=0
for country in "${countries[@]:0:3}"; do
    # shellcheck disable=SC2059
    question=$(printf "${questions[0]}" "${country% *}")
    answer=$(examples/chats/render_chats.py --ask "$question" "${template[@]}" |
        "$bin/vocabpipe" generate --load "$work/finetuned" --tokenizer bytes --prompt - --temperature 0 \
            --max-new-tokens 24)
    answer=${answer##*assistant$'\n'}
    answer=${answer%%<|im_end|>*}
    echo "$question $answer"
    [ "$answer" = "${country#* }." ] || wrong=$((wrong + 1))
done
finish
[ $wrong -eq 0 ] || {
    echo "finetune.sh: error: $wrong wrong answers" >&2
    exit 1
}

print_phases
cat <<END

What to look at:
  $work/learnt.html    which tokens were learnt, in a browser
What to try next:
  examples/chats/render_chats.py --help    your own chats, with the template of your tokenizer
  docs/instructions.md
END
