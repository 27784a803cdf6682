#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same training step by VocabPipe, by PyTorch and by whoever else is named, in turns, in one run.
#
#   benchmarks/compare_peers.sh [--rounds 5] [--steps 12] [--warm-up 3] [--dtype fp32,bf16] [--seq-length 64]
#                               [--without-torch] [--best] [--python PYTHON] [--peer NAME=COMMAND]...
#
# GPT-2 124M, 4 sequences of 64 (--seq-length) random tokens, AdamW and clipping of the global gradient norm
# included: with 2 threads, and on 2 ranks of one thread each: pipelines on microbatches of one sequence,
# replicas with two sequences each, tensor ranks that share all four. Everybody begins with the same weights,
# which VocabPipe writes, and trains on the same tokens. Table: median and least time of a step over all
# rounds without warm-up steps; ratio: median over VocabPipe's for the same type and ranks, above 1 where
# VocabPipe is faster; loss before the first and the last update; #wrong: losses too far from VocabPipe's.
#
#   --rounds         every program is started so often, in turns forwards and backwards
#   --best           PyTorch also with what may make it faster: compiled with max-autotune (minutes per program),
#                    a loss by chunks, and bf16 weights with fp32 masters
#   --python         one that has torch; without it a virtual environment is made in
#                    $VOCABPIPE_PEERS_DIR (default: ~/.cache/vocabpipe-peers), with torch from PyPI
#   --model-flags    another model than the 124M one, as flags of train_gpt
#   --peer           another trainer (see below)
#
# VOCABPIPE_BUILD_DIR: build folder (build). Exit code: 0; 1 if a program failed or #wrong is not 0.
#
# A peer: COMMAND is run by bash for every type and for both 2 threads and 2 ranks, with
#   VOCABPIPE_PEER_DTYPE       fp32 or bf16
#   VOCABPIPE_PEER_RANKS       1 or 2, each with
#   VOCABPIPE_PEER_THREADS     2 or 1 threads (OMP_NUM_THREADS, too)
#   VOCABPIPE_PEER_MODEL       folder with config.json and model.safetensors, as transformers has them
#   VOCABPIPE_PEER_TOKENS      file of u16 tokens: the 4 sequences one after the other and one token more;
#                              a token's label is the one behind it; each step trains on all of them
#   VOCABPIPE_PEER_SEQ_LENGTH, VOCABPIPE_PEER_STEPS, VOCABPIPE_PEER_SCRATCH (an empty folder),
#   VOCABPIPE_PEER_PYTHON      the one of --python, or with torch
# and prints for every step one line "step N loss L seconds S": mean loss before the update, time with
# the update; other lines are ignored. Exit code 77: not offered. Learning rate 1e-4, betas 0.9 and 0.95,
# epsilon 1e-8, weight decay 0.1 of matrices, gradient norm clipped at 1.
#
# bf16: VocabPipe keeps weights and activations in bf16 with fp32 master weights, gradients and moments.
# PyTorch runs under autocast: fp32 weights, converted for each product; "pure" is VocabPipe's way
# (benchmarks/peer_torch.py).
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { # message, exit code
    echo "benchmarks/compare_peers.sh: error: $1" >&2
    exit "$2"
}

rounds=5 steps=12 warm_up=3 dtypes=fp32,bf16 python= with_torch=1 best=0
seq_length=64 sequences=4
model="--num-layers 12 --hidden-size 768 --num-attention-heads 12 --vocab-size 50257"
peers=()
while [ $# -gt 0 ]; do
    case "$1" in
        --without-torch) with_torch=0 && shift && continue ;;
        --best) best=1 && shift && continue ;;
        --rounds | --steps | --warm-up | --dtype | --seq-length | --python | --model-flags | --peer) ;;
        *) fail "$1: the options are --rounds --steps --warm-up --dtype --seq-length --without-torch --best --python --model-flags --peer" 2 ;;
    esac
    [ $# -ge 2 ] || fail "$1: needs a value" 2
    case "$1" in
        --rounds) rounds=$2 ;;
        --steps) steps=$2 ;;
        --warm-up) warm_up=$2 ;;
        --dtype) dtypes=$2 ;;
        --seq-length) seq_length=$2 ;;
        --python) python=$2 ;;
        --model-flags) model=$2 ;;
        --peer)
            [[ "$2" =~ ^[A-Za-z0-9._-]+=. ]] || fail "--peer $2: must be NAME=COMMAND" 2
            peers+=("$2")
            ;;
    esac
    shift 2
done
[ "$steps" -gt "$warm_up" ] || fail "--steps $steps: must be more than the --warm-up steps, $warm_up" 2

bin=$(realpath "${VOCABPIPE_BUILD_DIR:-build}")/bin
[ -x "$bin/train_gpt" ] || fail "$bin/train_gpt: is missing; build it, or set VOCABPIPE_BUILD_DIR" 2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Everybody computes on the same cores; two ranks on one each.
cores=$(taskset -pc $$ | sed 's/.*: //' | tr ',' '\n' | while IFS=- read -r a b; do seq "$a" "${b:-$a}"; done | head -n 2 | paste -sd,)
. examples/mpi_environment.sh
export GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:-lo} TORCHINDUCTOR_CACHE_DIR=$scratch/inductor

# --- trainers

vocabpipe() { # pipeline or replicas, where there are several ranks
    local flags=(--load "$VOCABPIPE_PEER_MODEL" --seq-length $seq_length --global-batch-size $sequences
        --data-path "$VOCABPIPE_PEER_TOKENS" --data-format raw-u16 --dtype "$VOCABPIPE_PEER_DTYPE"
        --lr 1e-4 --min-lr 1e-4 --train-iters "$VOCABPIPE_PEER_STEPS"
        --threads-per-rank "$VOCABPIPE_PEER_THREADS" --metrics "$VOCABPIPE_PEER_SCRATCH/metrics")
    case "$1 $VOCABPIPE_PEER_RANKS" in
        "pipeline 1") "$bin/train_gpt" "${flags[@]}" --micro-batch-size $sequences --vocab-mode none ;;
        "pipeline 2") mpirun -np 2 --bind-to none "$bin/train_gpt" "${flags[@]}" --micro-batch-size 1 ;;
        "replicas 2")
            mpirun -np 2 --bind-to none "$bin/train_gpt" "${flags[@]}" --vocab-mode none \
                --pipeline-model-parallel-size 1 --micro-batch-size $((sequences / 2))
            ;;
        "tensor 2")
            mpirun -np 2 --bind-to none "$bin/train_gpt" "${flags[@]}" --vocab-mode one_barrier \
                --tensor-model-parallel-size 2 --micro-batch-size $sequences
            ;;
        *) return 77 ;;
    esac || return
    awk '{ print "step", value("step"), "loss", value("loss"), "seconds", value("step_seconds") }
        function value(key) {
            match($0, "\"" key "\":[^,}]*")
            return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
        }' "$VOCABPIPE_PEER_SCRATCH/metrics"
}

from_torch() { # ranks, how
    [ "$VOCABPIPE_PEER_RANKS" = "$1" ] || return 77
    "$python" benchmarks/peer_torch.py "$2"
}

names=(vocabpipe vocabpipe-replicas vocabpipe-tensor)
declare -A command=([vocabpipe]="vocabpipe pipeline" [vocabpipe-replicas]="vocabpipe replicas"
    [vocabpipe-tensor]="vocabpipe tensor")
if [ $with_torch = 1 ]; then
    if [ -z "$python" ]; then
        folder=${VOCABPIPE_PEERS_DIR:-$HOME/.cache/vocabpipe-peers}
        python=$folder/bin/python
        if ! "$python" -c 'import torch' 2>/dev/null; then
            echo "installing torch into $folder"
            python3 -m venv "$folder"
            "$folder/bin/pip" install --quiet torch numpy
        fi
    fi
    "$python" -c 'import torch' || fail "--python $python: cannot import torch; pip install torch" 2
    ways=("1 eager" "1 compiled" "2 pipelined" "2 replicated" "2 tensor") # ranks, how
    [ $best = 1 ] && ways+=("1 autotuned" "1 eager+chunked" "1 eager+pure" "1 compiled+pure" "1 autotuned+pure")
    for way in "${ways[@]}"; do
        names+=("torch-${way#* }")
        command[torch-${way#* }]="from_torch $way"
    done
fi
for peer in ${peers[@]+"${peers[@]}"}; do
    names+=("${peer%%=*}")
    command[${peer%%=*}]="bash -c $(printf %q "${peer#*=}")"
done

# --- the same weights and tokens for everybody

echo "# compare_peers: $model, $sequences x $seq_length tokens; $(date -u +%Y-%m-%d)"
echo "# $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), cores $cores, load $(cut -d' ' -f1 /proc/loadavg)"
echo "# VocabPipe $("$bin/train_gpt" --version), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
[ $with_torch = 1 ] && echo "# PyTorch $("$python" -c 'import torch; print(torch.__version__)')"
od -An -v -tu2 -w2 -N $((2 * (sequences * seq_length + 1))) /dev/urandom |
    awk -v rows="$(sed -n 's/.*--vocab-size \([0-9]*\).*/\1/p' <<<"$model")" '{
        token = $1 % rows; printf "\\x%02x\\x%02x", token % 256, int(token / 256) }' >"$scratch/tokens.txt"
printf "$(cat "$scratch/tokens.txt")" >"$scratch/tokens.bin"
# shellcheck disable=SC2086
"$bin/train_gpt" $model --seq-length $seq_length --global-batch-size $sequences --data-path "$scratch/tokens.bin" \
    --data-format raw-u16 --train-iters 1 --lr 1e-5 --save "$scratch/made" >"$scratch/made.log" ||
    fail "the model cannot be made: $(tail -n 1 "$scratch/made.log")" 1
mkdir "$scratch/model"
mv "$scratch/made/step-00000001/"{config.json,model.safetensors} "$scratch/model"
rm -r "$scratch/made"

# --- rounds

mkdir "$scratch/runs"
failed=()
run() { # trainer, type, ranks: appends the steps' lines to a file
    local file=$scratch/runs/$1.$2.$3 code=0
    rm -rf "$scratch/own" && mkdir "$scratch/own"
    (
        export VOCABPIPE_PEER_DTYPE=$2 VOCABPIPE_PEER_RANKS=$3 VOCABPIPE_PEER_THREADS=$((2 / $3))
        export VOCABPIPE_PEER_MODEL=$scratch/model VOCABPIPE_PEER_TOKENS=$scratch/tokens.bin
        export VOCABPIPE_PEER_SEQ_LENGTH=$seq_length VOCABPIPE_PEER_STEPS=$steps
        export VOCABPIPE_PEER_SCRATCH=$scratch/own OMP_NUM_THREADS=$((2 / $3)) VOCABPIPE_PEER_PYTHON=${python:-python3}
        taskset -pc "$cores" "$BASHPID" >/dev/null
        eval "${command[$1]}"
    ) >"$scratch/log" 2>"$scratch/error" || code=$?
    [ $code = 77 ] && return
    if [ $code != 0 ] || [ "$(grep -c '^step [0-9]* loss ' "$scratch/log")" != "$steps" ]; then
        failed+=("$1 $2 $3 ranks: exit code $code: $(tail -n 1 "$scratch/error")")
        echo "# FAILED ${failed[-1]}"
        return
    fi
    grep '^step [0-9]* loss ' "$scratch/log" >>"$file"
    awk -v who="$1 $2, $3 rank(s)" -v warm="$warm_up" '/^step [0-9]+ loss / && $2 > warm { n++; sum += $6 }
        END { printf "#   %s: %.1f ms\n", who, 1e3 * sum / n }' "$scratch/log"
}

order=()
for dtype in ${dtypes//,/ }; do
    for ranks in 1 2; do
        for name in "${names[@]}"; do order+=("$name $dtype $ranks"); done
    done
done
for ((round = 1; round <= rounds; ++round)); do
    echo "# round $round of $rounds"
    for ((i = 0; i < ${#order[@]}; ++i)); do
        [ $((round % 2)) = 1 ] && at=$i || at=$((${#order[@]} - 1 - i))
        # shellcheck disable=SC2086
        run ${order[$at]}
    done
done

# --- table

printf '# %-21s %5s %5s %7s %10s %10s %10s %8s %10s %10s %6s\n' trainer dtype ranks threads step best tokens/s \
    ratio loss loss '#wrong'
printf '# %-21s %5s %5s %7s %10s %10s %10s %8s %10s %10s %6s\n' '' '' '' '' ms ms '' median first last ''
wrong_total=0
for row in "${order[@]}"; do
    read -r name dtype ranks <<<"$row"
    file=$scratch/runs/$name.$dtype.$ranks
    [ -f "$file" ] || continue
    # fp32: sums in another order. bf16: other places where numbers are rounded to 2^-9 of themselves. After
    # some updates ten times that.
    [ "$dtype" = fp32 ] && bound=1e-4 || bound=5e-3
    line=$(awk -v warm="$warm_up" -v steps="$steps" -v bound="$bound" -v tokens=$((sequences * seq_length)) '
        function median(values, n,    i, j, v) {
            for (i = 2; i <= n; ++i) {
                v = values[i]
                for (j = i - 1; j >= 1 && values[j] > v; --j) values[j + 1] = values[j]
                values[j + 1] = v
            }
            return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
        }
        FNR == 1 { ++source }
        $2 == 1 { first[source] = $4 }
        $2 == steps { last[source] = $4 }
        $2 > warm && source == 1 { ours[++m] = $6 }
        $2 > warm && source == 2 { mine[++n] = $6 }
        END {
            reference = median(ours, m); step = median(mine, n)
            wrong = (d(first[1], first[2]) > bound) + (d(last[1], last[2]) > 10 * bound)
            printf "%10.1f %10.1f %10.1f %8.2f %10.5f %10.5f %6d", 1e3 * step, 1e3 * mine[1], tokens / step,
                step / reference, first[2], last[2], wrong
        }
        function d(a, b) { return a > b ? a - b : b - a }' "$scratch/runs/vocabpipe.$dtype.$ranks" "$file")
    printf '  %-21s %5s %5s %7s %s\n' "$name" "$dtype" "$ranks" $((2 / ranks)) "$line"
    wrong_total=$((wrong_total + ${line##* }))
done
echo "# wrong: $wrong_total"
for failure in ${failed[@]+"${failed[@]}"}; do echo "FAILED $failure"; done
[ "$wrong_total" = 0 ] && [ ${#failed[@]} = 0 ]
