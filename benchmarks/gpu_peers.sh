#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# VocabPipe and PyTorch on the same GPU, in turns: the output layer, training steps of GPT-2, the grouped
# products of a mixture of experts. Prints a table of ratios. docs/gpu-measurements.md, "Comparing with PyTorch on the GPU".
#
#   benchmarks/gpu_peers.sh --programs FOLDER [OPTION...] [PART...]
#
#   PART               of: vocab gpt2-124m gpt2-1.5b experts small-vocab, in this order; without one all
#   --programs FOLDER  with bin/, and lib/ where a bundle has one
#   --logs FOLDER      peers_table.md and peers_*.log go there (build-gpu/peers)
#   --budget SECONDS   of the whole call (150); what does not fit is left out
#   --python PYTHON    one that has torch (python3)
#   --device cpu       PyTorch on the CPU, our programs on the host: shows that this script works, no more
#   --toy              tiny sizes
#
# ratio: PyTorch's best time over ours, above 1 where VocabPipe is faster. Every program has a time limit, and
# one that fails does not stop the others.
# Exit code: 0; 1 if something failed or losses differ; 2 usage; 6 no GPU; 77 this Python has no torch.
set -uo pipefail
caller=$PWD
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=benchmarks/gpu_machine.sh
. benchmarks/gpu_machine.sh

fail() { # message, exit code
    echo "benchmarks/gpu_peers.sh: error: $1" >&2
    exit "$2"
}

absolute() { # path, relative to the caller's folder
    case "$1" in /*) echo "$1" ;; *) echo "$caller/$1" ;; esac
}

command_line="benchmarks/gpu_peers.sh $*"
all_parts=(vocab gpt2-124m gpt2-1.5b experts small-vocab) # most wanted first
parts=()
programs='' logs=build-gpu/peers budget=150 python=python3 device=cuda toy=0
while [ $# -gt 0 ]; do
    case "$1" in
        --toy) toy=1 && shift && continue ;;
        --programs | --logs | --budget | --python | --device) [ $# -ge 2 ] || fail "$1 needs a value" 2 ;;
        *)
            [[ " ${all_parts[*]} " == *" $1 "* ]] ||
                fail "$1: neither an option (head benchmarks/gpu_peers.sh) nor a part: ${all_parts[*]}" 2
            parts+=("$1") && shift && continue
            ;;
    esac
    case "$1" in
        --programs) programs=$(absolute "$2") ;;
        --logs) logs=$(absolute "$2") ;;
        --budget) budget=$2 ;;
        --python) python=$2 ;;
        --device) device=$2 ;;
    esac
    shift 2
done
[ -n "$programs" ] || fail "--programs FOLDER: must be given" 2
[ -d "$programs/bin" ] || fail "--programs $programs: there is no bin/ in it" 2
[[ $budget =~ ^[1-9][0-9]*$ ]] || fail "--budget $budget: seconds, please" 2
case "$device" in
    cuda) ours_on=cuda ;;
    cpu) ours_on=host ;;
    *) fail "--device $device: cuda or cpu" 2 ;;
esac
mkdir -p "$logs" || fail "--logs $logs: cannot be made" 1
rm -f "$logs"/peers_*
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A bundle's libcudart or libgomp must not get into PyTorch, which brings its own.
with_torch=(env -u LD_LIBRARY_PATH PYTHONUNBUFFERED=1 "TORCHINDUCTOR_CACHE_DIR=$scratch/inductor"
    "TRITON_CACHE_DIR=$scratch/triton" "$python")

# --- running

failed=()
left_out=()
child=''

# Whoever ends this script wants what is known so far, and the GPU for something else.
interrupted() {
    [ -z "$child" ] || kill "$child"
    left_out+=("the rest")
    publish
    cat "$logs/peers_table.md"
    exit 143
}
trap interrupted INT TERM

# Runs a command with its output on the screen and in a log. A time limit that the budget has shortened is no
# failure.
attempt() { # name, seconds at most, seconds at least, command...
    local name=$1 most=$2 least=$3 limit=$((budget - SECONDS)) begin=$SECONDS code=0
    shift 3
    if [ $limit -lt "$least" ]; then
        echo "--- $name: left out, $limit s are left"
        left_out+=("$name")
        return 1
    fi
    [ $limit -lt "$most" ] || limit=$most
    echo "--- $name: $*"
    timeout --kill-after=5 "$limit" "$@" >"$logs/peers_$name.log" 2>"$logs/peers_$name.err.log" &
    child=$!
    wait "$child" || code=$?
    child=
    cat "$logs/peers_$name.log"
    [ $code = 0 ] || tail -n 5 "$logs/peers_$name.err.log"
    echo "--- $name: exit code $code, $((SECONDS - begin)) s"
    if [ $code = 124 ] || [ $code = 137 ]; then
        if [ "$limit" -lt "$most" ]; then left_out+=("the rest of $name"); else failed+=("$name (no end within $limit s)"); fi
    elif [ $code != 0 ]; then
        failed+=("$name (exit code $code)")
    fi
    publish
    return $code
}

# With cuDNN's attention, where there are such programs; cutlass/NAME: with CUTLASS's products.
program_of() { # name
    if [[ $1 = cutlass/* ]]; then
        echo "$programs/cutlass/bin/${1#cutlass/}"
    elif [ "$device" = cuda ] && [ -x "$programs/cudnn/bin/$1" ]; then
        echo "$programs/cudnn/bin/$1"
    else
        echo "$programs/bin/$1"
    fi
}

ours() { # name, seconds at most, program, arguments...
    local name=$1 most=$2 program
    program=$(program_of "$3")
    shift 3
    if [ ! -x "$program" ]; then
        echo "--- $name: there is no $program"
        return 1
    fi
    attempt "$name" "$most" 5 "$program" "$@"
}

torch() { # name, seconds at most, arguments...
    local name=$1 most=$2 seconds=$((budget - SECONDS))
    shift 2
    [ $seconds -lt "$most" ] || seconds=$most
    attempt "$name" "$most" 10 "${with_torch[@]}" benchmarks/gpu_peer_torch.py "$@" --device "$device" --seconds $((seconds - 3))
}

# --- the table

of_variants() { # log: variant, milliseconds, losses, note of each result, the fastest first
    [ ! -e "$logs/peers_$1.log" ] || sed -n 's/^result\t//p' "$logs/peers_$1.log" | sort -t$'\t' -g -k 2,2
}

numbers() { # number... : with slashes between, or -
    local text
    text=$(printf '%s\n' "$@" | grep . | paste -sd/ | sed 's,/, / ,g')
    echo "${text:--}"
}

# The turns' mean counts.
row() { # what, our milliseconds by spaces, torch's log, losses, FLOPs of it in GFLOP where MFU is asked
    local what=$1 mine=$2 log=$3 losses=$4 gflop=${5:-} first best='' best_name=-
    first=$(of_variants "$log" | head -n 1)
    if [ -n "$first" ]; then
        best_name=$(cut -f1 <<<"$first")
        best=$(cut -f2 <<<"$first")
    fi
    [ -n "$mine$best" ] || return 0
    # shellcheck disable=SC2086
    awk -v what="$what" -v mine="$mine" -v turns="$(numbers $mine)" -v best="$best" -v name="$best_name" \
        -v losses="$losses" -v gflop="$gflop" -v peak=$peak -v all="$(all_variants "$log")" '
        BEGIN {
            n = split(mine, turn, " ")
            for (i = 1; i <= n; ++i) sum += turn[i] / n
            ratio = sum && best ? sprintf("%.2f", best / sum) : "-"
            mfu = "-"
            if (gflop && peak && sum) mfu = sprintf("%.3f", gflop / sum / peak)
            if (gflop && peak && best) mfu = mfu sprintf(" / %.3f", gflop / best / peak)
            printf "| %s | %s | %s | %s | %s | %s | %s |\n", what, turns,
                best ? sprintf("%.2f (%s)", best, name) : "-", ratio, mfu, losses, all
        }'
}

all_variants() { # log
    {
        of_variants "$1" | awk -F '\t' '{ printf "%s %.2f\n", $1, $2 }'
        sed -n 's/^none\t\([^\t]*\)\t\(.*\)/\1: \2/p' "$logs/peers_$1.log" 2>/dev/null
    } | awk '{ printf "%s%s", separator, $0; separator = "; " }'
}

# How far apart are the losses of all variants, and from others?
distance() { # log, other losses by spaces
    { [ -z "$2" ] || echo "$2"; of_variants "$1" | cut -f3; } | awk '
        { for (i = 1; i <= NF; ++i) {
            if (!(i in low) || $i < low[i]) low[i] = $i
            if (!(i in high) || $i > high[i]) high[i] = $i } }
        /nan|inf/ { wrong = 1 }
        END { for (i in low) if (high[i] - low[i] > most) most = high[i] - low[i]
            if (wrong) print "nan"; else printf "%.4f\n", most }'
}

loss_bound=1e-2 # bf16
within() { # distance, bound
    awk -v d="$1" -v b="$2" 'BEGIN { exit !(d != "nan" && d + 0 <= b + 0) }'
}

losses_of() { # log: of its fastest variant
    of_variants "$1" | head -n 1 | cut -f3
}

judged() { # what, distance, bound
    if within "$2" "$3"; then
        echo "apart by $2, bound $3"
    else
        echo "WRONG: apart by $2, bound $3"
        grep -qxF "$1" "$scratch/wrong" 2>/dev/null || echo "$1" >>"$scratch/wrong"
    fi
}

print_table() {
    local each
    echo
    echo "    $command_line"
    echo
    echo "$(date -u +%Y-%m-%d), $card; $torch_version; commit $(sed -n 's/^commit: //p' "$programs/manifest.txt" 2>/dev/null |
        grep . || git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    echo
    echo "| what | ours, ms, by turns | PyTorch's best, ms | ratio | MFU: ours / PyTorch | losses | PyTorch's variants, ms |"
    echo "|---|---|---|---|---|---|---|"
    for each in $large_vocab; do row_vocab "$each"; done
    for each in $small_model $large_model; do row_step "$each"; done
    row_experts
    for each in $small_vocab; do row_vocab "$each"; done
    [ ${#left_out[@]} = 0 ] || printf '\nNo time left for: %s\n' "$(commas "${left_out[@]}")"
    [ ${#failed[@]} = 0 ] || printf '\nFAILED: %s\n' "$(commas "${failed[@]}")"
}

commas() { printf '%s\n' "$@" | paste -sd, | sed 's/,/, /g'; }

publish() {
    print_table >"$scratch/table" && cp "$scratch/table" "$logs/peers_table.md"
}

# --- the output layer

vocab_stage() { # rows, seconds at most for torch
    local again=0
    ours "vocab-$1-1" 30 bench_vocab_cuda "${vocab_sizes[@]}" --rows "$1" || again=$?
    torch "vocab-$1-torch" "$2" output-layer "${vocab_sizes[@]}" --chunk "$chunk" --rows "$1"
    [ $again != 0 ] || ours "vocab-$1-2" 30 bench_vocab_cuda "${vocab_sizes[@]}" --rows "$1"
}

row_vocab() { # rows
    local mine wrong losses
    mine=$(cat "$logs/peers_vocab-$1"-[12].log 2>/dev/null | awk '!/^#/ && NF == 12 { print $8 }' | paste -sd' ')
    wrong=$(cat "$logs/peers_vocab-$1"-[12].log 2>/dev/null | awk '!/^#/ && NF == 12 { n += $12 } END { print n + 0 }')
    losses=$(losses_of "vocab-$1-torch")
    # Logits are normal numbers, whose exponentials have the mean e^0.5.
    [ -z "$losses" ] || losses="torch $losses of log V + 1/2 = $(awk -v v="$1" 'BEGIN { printf "%.2f", log(v) + 0.5 }'), $(
        judged "vocab-$1" "$(distance "vocab-$1-torch" "")" $loss_bound)"
    row "S and T, V = $1" "$mine" "vocab-$1-torch" "${mine:+ours $wrong wrong; }$losses"
}

# --- steps

step_stage() { # model, seconds at most for torch
    local again=0
    # shellcheck disable=SC2086
    ours "step-$1-1" 60 bench_step --device "$ours_on" --dtype bf16 "${free_attention[@]}" ${step_flags[$1]} || again=$?
    # shellcheck disable=SC2086
    torch "step-$1-torch" "$2" step ${torch_flags[$1]} --lr "${rates[$1]}" ${train_flags[$1]:+--write "$scratch/model-$1"}
    # Our losses, of the same weights and tokens.
    # shellcheck disable=SC2086
    [ ! -e "$scratch/model-$1/tokens.bin" ] ||
        ours "losses-$1" 40 train_gpt --device "$ours_on" --transport threads --ranks 1 --load "$scratch/model-$1" \
            --data-path "$scratch/model-$1/tokens.bin" --data-format raw-u16 --dtype bf16 --vocab-mode none \
            --train-iters 3 --lr "${rates[$1]}" --min-lr "${rates[$1]}" ${train_flags[$1]} --metrics "$logs/peers_losses-$1.jsonl"
    rm -rf "$scratch/model-$1"
    # shellcheck disable=SC2086
    [ $again != 0 ] || ours "step-$1-2" 60 bench_step --device "$ours_on" --dtype bf16 "${free_attention[@]}" ${step_flags[$1]}
}

row_step() { # model
    local mine gflop losses='' trained='' metrics=$logs/peers_losses-$1.jsonl
    mine=$(cat "$logs/peers_step-$1"-[12].log 2>/dev/null | awk '!/^#/ && NF == 10 { print $2 }' | paste -sd' ')
    gflop=$(cat "$logs/peers_step-$1"-[12].log 2>/dev/null | awk '!/^#/ && NF == 10 { print $2 * $5 / 1e3; exit }')
    [ ! -e "$metrics" ] || trained=$(sed 's/.*"loss":\([^,}]*\).*/\1/' "$metrics" |
        awk 'NR <= 3 { printf "%s%.5f", separator, $1; separator = " " }')
    [ -z "$(losses_of "step-$1-torch")" ] || losses="${trained:+ours $trained, }torch $(losses_of "step-$1-torch"), $(
        judged "step-$1" "$(distance "step-$1-torch" "$trained")" $loss_bound)"
    row "step, $1" "$mine" "step-$1-torch" "${losses:--}" "$gflop"
}

# --- a mixture of experts

experts_stage() {
    local on=() again=0
    if [ "$device" = cuda ]; then
        if ! "$programs/bin/bench_experts" --help 2>/dev/null | grep -e --device >/dev/null; then
            echo "--- experts: left out, there is no bench_experts that runs on GPUs"
            return 0
        fi
        on=(--device cuda)
    fi
    ours experts-1 30 bench_experts "${on[@]}" "${experts_sizes[@]}" || again=$?
    torch experts-torch 30 experts "${experts_sizes[@]}"
    [ $again != 0 ] || ours experts-2 30 bench_experts "${on[@]}" "${experts_sizes[@]}"
    [ ! -x "$programs/cutlass/bin/bench_experts" ] ||
        ours experts-cutlass 30 cutlass/bench_experts "${on[@]}" "${experts_sizes[@]}"
}

row_experts() {
    experts_row "grouped products of a layer, both directions" 1 2
    [ ! -e "$logs/peers_experts-cutlass.log" ] || experts_row "the same, all experts in one launch by CUTLASS" cutlass
}

experts_row() { # what, turns
    local what=$1 turn mine='' best
    shift
    for turn in "$@"; do
        [ ! -e "$logs/peers_experts-$turn.log" ] || mine="$mine $(awk -v products="$expert_products" '
            BEGIN { split(products, flop, " ") }
            $2 == "bf16" && NF == 6 && $5 > 0 { ms += 1e3 * flop[$1 == "gate_up" ? 1 : 2] / $5; ++n }
            END { if (n == 6) printf "%.3f", ms }' "$logs/peers_experts-$turn.log")"
    done
    best=$(of_variants experts-torch | awk -F '\t' '{ ms += $2 } END { if (NR == 6) print ms }')
    [ -n "${mine// /}$best" ] || return 0
    # shellcheck disable=SC2086
    awk -v what="$what" -v mine="$mine" -v turns="$(numbers $mine)" -v best="$best" -v all="$(all_variants experts-torch)" '
        BEGIN {
            n = split(mine, turn, " ")
            for (i = 1; i <= n; ++i) sum += turn[i] / n
            printf "| %s | %s | %s | %s | - | - | %s |\n", what, turns,
                best ? sprintf("%.2f (grouped_mm)", best) : "-", sum && best ? sprintf("%.2f", best / sum) : "-", all
        }'
}

# --- what is compared

# PyTorch's attention is not deterministic either.
free_attention=()
[ "$(program_of bench_step)" = "$programs/bin/bench_step" ] || free_attention=(--nondeterministic-attention)
declare -A step_flags torch_flags train_flags rates
chunk=1024
# With 1e-4 the large model's loss grows by 2 in three steps, and variants are 0.012 apart.
rates[gpt2-124m]=1e-4 rates[gpt2-1.5b]=1e-5 rates[toy]=1e-3
if [ $toy = 1 ]; then
    large_vocab=100 small_vocab=24 small_model=toy large_model='' chunk=8
    vocab_sizes=(--tokens 16 --hidden-size 32 --rounds 3)
    sizes="--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --vocab-size 257"
    step_flags[toy]="$sizes --micro-batch-size 2 --microbatches 2 --steps 2"
    torch_flags[toy]=${step_flags[toy]}
    train_flags[toy]="--seq-length 16 --micro-batch-size 2 --global-batch-size 4"
    experts_sizes=(--tokens 1024 --experts 4 --top-k 2 --hidden-size 128 --ffn-hidden-size 64 --rounds 2)
    expert_products=$(awk 'BEGIN { n = 2e-9 * 1024 * 2 * 128 * 64; print 2 * n, n }')
else
    large_vocab=128256 small_vocab="32768 16384" small_model=gpt2-124m large_model=gpt2-1.5b
    vocab_sizes=(--tokens 4096 --hidden-size 4096)
    step_flags[gpt2-124m]="--model gpt2-124m --threads-per-rank $(nproc)" # which make the weights
    step_flags[gpt2-1.5b]="--model gpt2-1.5b --steps 4 --threads-per-rank $(nproc)"
    torch_flags[gpt2-124m]="--num-layers 12 --hidden-size 768 --num-attention-heads 12 --micro-batch-size 16"
    torch_flags[gpt2-1.5b]="--num-layers 48 --hidden-size 1600 --num-attention-heads 25 --micro-batch-size 8 --steps 4"
    train_flags[gpt2-124m]="--seq-length 1024 --micro-batch-size 16 --global-batch-size 64"
    experts_sizes=(--tokens 4096 --experts 128 --top-k 8 --hidden-size 2048 --ffn-hidden-size 768)
    expert_products=$(awk 'BEGIN { n = 2e-9 * 4096 * 8 * 2048 * 768; print 2 * n, n }') # GFLOP: gate and up, down
fi

# --- the machine

# shellcheck disable=SC2034  # read by find_libraries
debs_prefix=''
find_libraries
card=$device peak=0
if [ "$device" = cuda ]; then
    card=$(timeout 60 "$programs/bin/gpu_probe" 2>/dev/null | sed -n 's/^gpu 0: //p')
    [ -n "$card" ] || card=$(timeout 20 nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
    [ -n "$card" ] || fail "no GPU: neither gpu_probe nor nvidia-smi names one" 6
    [[ $card =~ H[12]00 ]] && peak=989 # TFLOP/s of bf16, by the data sheet
fi
torch_version=$(timeout 60 "${with_torch[@]}" -c 'import importlib.metadata as m; print("torch", m.version("torch"))' \
    2>"$scratch/torch") || # without importing it, which takes seconds
    fail "--python $python: no torch: $(tail -n 1 "$scratch/torch")" 77

[ ${#parts[@]} -gt 0 ] || parts=("${all_parts[@]}")
for part in "${parts[@]}"; do
    echo "=== $part ($SECONDS s of $budget)"
    case "$part" in
        vocab) vocab_stage "$large_vocab" 40 ;;
        small-vocab) for each in $small_vocab; do vocab_stage "$each" 30; done ;;
        experts) experts_stage ;;
        gpt2-124m) step_stage "$small_model" 45 ;;
        gpt2-1.5b) [ -z "$large_model" ] || step_stage "$large_model" 75 ;;
    esac
done
publish
cat "$logs/peers_table.md"
[ ${#failed[@]} = 0 ] && [ ! -e "$scratch/wrong" ]
