#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs every experiment of the five papers (docs/papers.md) that needs no GPU, and writes a page with what came
# out beside the published figures: FOLDER/index.html. Builds what is missing first.
#
#   benchmarks/reproduce.sh [--list] [--only NAME,...] [FOLDER]
#
#   --list   names the experiments and ends
#   --only   runs these, and keeps what FOLDER has of others
#   FOLDER   work/reproduce; what an experiment printed and made is in FOLDER/NAME
#
# About three minutes on two cores, without the build. An experiment fails where a program does. A figure that is
# not the published one is no failure: the page shows it.
#
# VOCABPIPE_BUILD_DIR: build folder (build). Exit code: 0; 1 if an experiment failed; 2 usage.
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/.."

# name, paper, what
experiments="
tables     2411.05288  tables 5 and 6: step time and memory of 103 published runs, predicted
passes     2411.05288  the 20 runs on 8 GPUs, simulated from their published pass times
artifact   2411.05288  the artifact's experiment: MFU with s 4096, V 256k, predicted
ablation   2411.05288  interlaced without the cost of its collectives, predicted
memory     2411.05288  activations alive and bubbles of each vocabulary mode, simulated
losses     2411.05288  losses of one, two and four ranks in every vocabulary mode
hidden     2502.19811  share of communication hidden, in virtual time
ratios     2502.19811  the same over link / computing, against chunks of FasterMoE and Tutel
imbalance  2502.19811  time of a layer of experts over the deviation of their loads, two ranks
link       2503.20313  the same by the clock, two ranks, on a modelled link
pieces     2503.20313  losses of tensor and expert ranks by pieces and whole messages
scores     2402.16442  figures 3 and 4: scores by parts and rounds, made-up samples
bounding   2402.16442  table 2: what bounding decides, made-up samples
optimum    2402.16442  the choice against brute force, on 25 graphs
lists      2412.14374  schedules pass by pass as JaxPP's rules make them
own        2412.14374  a schedule of one's own, as a file: the losses of 1F1B
gpt3       2412.14374  GPT-3 175B on 64 to 1024 GPUs, predicted
"

fail() { # message, exit code
    echo "benchmarks/reproduce.sh: error: $1" >&2
    exit "$2"
}
names() { awk 'NF { print $1 }' <<<"$experiments"; }
about() { awk -v name="$1" '$1 == name { $1 = $2 = ""; sub(/^ */, ""); print }' <<<"$experiments"; }

folder=
only=
while [ $# -gt 0 ]; do
    case $1 in
        --list)
            awk 'NF' <<<"$experiments"
            exit
            ;;
        --only)
            [ $# -ge 2 ] || fail "--only: needs a name" 2
            only=${2//,/ }
            for name in $only; do
                [ -n "$(about "$name")" ] || fail "--only $name: the experiments are $(names | tr '\n' ' ')" 2
            done
            shift
            ;;
        -*) fail "$1: the options are --list and --only" 2 ;;
        *)
            [ -z "$folder" ] || fail "$1: there is one folder" 2
            folder=$(realpath -m --relative-base="$PWD" "$from/$1")
            [[ $1 != /* ]] || folder=$(realpath -m --relative-base="$PWD" "$1")
            ;;
    esac
    shift
done
[ -n "$folder" ] || folder=work/reproduce
[ -n "$only" ] || only=$(names)
mkdir -p "$folder"

build=${VOCABPIPE_BUILD_DIR:-build}
bin=$build/bin
programs=(vocabpipe train_gpt bench_plan_published bench_published bench_overlap bench_select)
for program in "${programs[@]}"; do
    [ -x "$bin/$program" ] && continue
    echo "building, because $bin/$program is missing: $folder/build.log"
    {
        examples/install_packages.sh &&
            examples/configure.sh "$build" -DVOCABPIPE_BUILD_TOOLS=ON -DVOCABPIPE_ENABLE_MPI=ON \
                -DVOCABPIPE_BUILD_BENCHMARKS=ON &&
            cmake --build "$build" --target vocabpipe_tool "${programs[@]:1}"
    } >"$folder/build.log" 2>&1 || fail "the build failed: $folder/build.log" 1
    break
done

. examples/mpi_environment.sh

# Runs a command whose output goes to a file of the experiment, and notes it as one would type it.
to() { # file, command
    local file=$here/$1
    shift
    printf '%s\n' "$*" >>"$here/commands"
    "$@" >"$file" 2>"$here/errors" || {
        echo "exit code $? of: $*: $(grep -v '^ *$' "$here/errors" | tail -n 1)" >"$here/failed"
        return 1
    }
}
inputs() { to inputs.log python3 benchmarks/reproduce_inputs.py "$1" "$2"; }

# --- vocabulary parallelism

run_tables() { to rows.txt "$bin/bench_plan_published" --rows benchmarks/data/published_steps.csv; }

run_passes() { to rows.txt "$bin/bench_published"; }

run_artifact() {
    inputs models "$here"
    to plan.json "$bin/vocabpipe" plan --model "$here/4b.json" --gpus 8 --pipeline-model-parallel-size 8 --gpu a100 \
        --seq-length 4096 --global-batch-size 128 --schedules 1f1b --kernels 2023 --receive-ahead 1 --json
}

run_ablation() {
    inputs models "$here"
    local plan=("$bin/vocabpipe" plan --model "$here/21b.json" --gpus 32 --pipeline-model-parallel-size 32 --gpu a100
        --seq-length 2048 --global-batch-size 128 --schedules 1f1b --kernels 2023 --receive-ahead 1 --json)
    to plan.json "${plan[@]}"
    to free.json "${plan[@]}" --free-vocabulary-collectives
}

run_memory() {
    local mode ranks
    local model=(--vocab-size 256000 --num-layers 32 --hidden-size 3072)
    for mode in none redistributed interlaced one_barrier two_barriers; do
        for ranks in 4 8 16 32; do
            to "1f1b-$mode-$ranks.schedule" "$bin/vocabpipe" schedule show 1f1b --pp $ranks --microbatches 64 \
                --vocab-mode $mode "${model[@]}" --format json
        done
        to "1f1b-$mode.json" "$bin/vocabpipe" simulate 1f1b --pp 8 --microbatches 32 --vocab-mode $mode \
            "${model[@]}" --json
    done
    for mode in none one_barrier two_barriers; do
        to "v-half-$mode-8.schedule" "$bin/vocabpipe" schedule show v-half --pp 8 --microbatches 64 --vocab-mode $mode \
            "${model[@]}" --format json
        to "v-half-$mode.json" "$bin/vocabpipe" simulate v-half --pp 8 --microbatches 32 --vocab-mode $mode \
            "${model[@]}" --json
    done
    to timeline.txt "$bin/vocabpipe" timeline 1f1b,vocab-mode=none 1f1b,vocab-mode=interlaced \
        1f1b,vocab-mode=two_barriers 1f1b,vocab-mode=one_barrier v-half,vocab-mode=one_barrier --pp 4 \
        --microbatches 8 --num-layers 8 --costs 2,4,1 --svg "$here/timeline.svg"
}

# A text, a small model, and whatever a run does differently.
train() { # name, ranks, steps, flags
    local name=$1 ranks=$2 steps=$3
    shift 3
    if [ ! -f "$here/text.idx" ]; then
        inputs text "$here"
        to data.log "$bin/vocabpipe" data prepare --input "$here/text.txt" --output "$here/text" --tokenizer bytes
    fi
    to "$name.log" mpirun -np "$ranks" "$bin/train_gpt" --data-path "$here/text" --vocab-size 8000 --num-layers 4 \
        --hidden-size 64 --num-attention-heads 4 --seq-length 128 --global-batch-size 8 --train-iters "$steps" \
        --lr 2e-3 --threads-per-rank 1 --metrics "$here/$name.jsonl" "$@"
}

run_losses() {
    local flags=(--untie-embeddings-and-output-weights --micro-batch-size 1) mode
    train 1-none 1 100 "${flags[@]}" --schedule 1f1b --vocab-mode none
    for mode in none redistributed interlaced one_barrier two_barriers; do
        train 2-$mode 2 100 "${flags[@]}" --schedule 1f1b --vocab-mode $mode
    done
    for mode in one_barrier two_barriers; do
        train 2-v-half-$mode 2 100 "${flags[@]}" --schedule v-half --vocab-mode $mode
        train 4-$mode 4 100 "${flags[@]}" --schedule 1f1b --vocab-mode $mode
    done
}

# --- overlap

run_hidden() {
    to rows.txt "$bin/bench_overlap" --virtual --ranks 8 --ratio 0.5 1 2 --pieces 1 2 4 8 \
        --op all_gather_gemm gemm_reduce_scatter dispatch_gemm gemm_combine
}

run_ratios() {
    local op=(--op dispatch_gemm gemm_combine --ranks 8 --ratio 0.25 0.5 1 2 4 --pieces 1 2 4 8)
    to rows.txt "$bin/bench_overlap" --virtual "${op[@]}"
    to launches.txt "$bin/bench_overlap" --virtual "${op[@]}" --piece-us 20
}

run_imbalance() {
    to rows.txt mpirun -np 2 "$bin/bench_overlap" --link modelled:0.5 --rows 512 --inner 512 --columns 512 --rounds 60 \
        --pieces 1 4 --load-std 0 0.02 0.04 0.06 0.08 --op dispatch_gemm gemm_combine
}

run_link() {
    to rows.txt mpirun -np 2 "$bin/bench_overlap" --link modelled:0.5 --rounds 30 --pieces 1 4 8 \
        --op all_gather_gemm gemm_reduce_scatter dispatch_gemm gemm_combine
}

run_pieces() {
    local pieces
    local experts=(--model-type mixtral --num-experts 8 --moe-aux-loss-coeff 0.01 --pipeline-model-parallel-size 1)
    for pieces in 1 2 4; do
        train tensor-$pieces 2 30 --micro-batch-size 2 --tensor-model-parallel-size 2 --tile-pieces $pieces
        train experts-$pieces 2 30 --micro-batch-size 2 "${experts[@]}" --expert-model-parallel-size 2 \
            --tile-pieces $pieces
    done
    train tensor-none 1 30 --micro-batch-size 2
    train experts-none 2 30 --micro-batch-size 2 "${experts[@]}"
}

# --- subset selection

samples() { # the made-up samples, which two experiments use
    [ -f "$folder/samples/done" ] && return
    inputs samples "$folder/samples"
    to knn.log "$bin/vocabpipe" select knn --embeddings "$folder/samples/x.npy" --neighbours 10 \
        --output "$folder/samples/graph.safetensors"
    touch "$folder/samples/done"
}
chosen_from=(--graph "$folder/samples/graph.safetensors" --utility "$folder/samples/u.npy")

run_scores() {
    samples
    to rows.txt "$bin/bench_select" scores "${chosen_from[@]}" --fraction 0.1 0.5
}

run_bounding() {
    samples
    local fraction weights rule ranks
    for fraction in 0.1 0.5 0.8; do
        for weights in 9:1 1:1 1:9; do
            for rule in off exact bernoulli:0.3 quota:0.3; do
                to "$fraction-$weights-$rule.log" "$bin/vocabpipe" select run "${chosen_from[@]}" \
                    --fraction $fraction --alpha ${weights%:*} --beta ${weights#*:} --bounding $rule --rounds 1 \
                    --output "$here/chosen" --report "$here/$fraction-$weights-$rule.json"
            done
        done
    done
    for ranks in 1 2 4; do
        to $ranks-ranks.log mpirun -np $ranks "$bin/vocabpipe" select run --transport mpi "${chosen_from[@]}" \
            --fraction 0.1 --bounding quota:0.3 --partitions 8 --adaptive --output "$here/chosen-$ranks"
    done
    to sums.txt sha256sum "$here/chosen-1" "$here/chosen-2" "$here/chosen-4"
}

run_optimum() {
    inputs graphs "$here"
    local i
    for i in $(seq 0 24); do
        to import.log "$bin/vocabpipe" select import --edges "$here/edges$i.npy" --samples 14 \
            --output "$here/graph$i.safetensors"
        to run.log "$bin/vocabpipe" select run --graph "$here/graph$i.safetensors" --utility "$here/u$i.npy" \
            --subset-size 5 --alpha 3 --beta 1 --output "$here/chosen" --report "$here/report$i.json"
    done
}

# --- schedules

run_lists() {
    inputs jaxpp "$here"
    local size family
    for size in 2:4 3:6 4:8 4:12 8:16; do
        for family in gpipe 1f1b eager-1f1b interleaved zb-h1; do
            to "$family-${size%:*}-${size#*:}.json" "$bin/vocabpipe" schedule show $family --pp ${size%:*} \
                --microbatches ${size#*:} --format json
        done
    done
}

run_own() {
    inputs schedule "$here"
    local mode
    for mode in none two_barriers one_barrier; do
        train 1f1b-$mode 2 60 --micro-batch-size 1 --schedule 1f1b --vocab-mode $mode
        train own-$mode 2 60 --micro-batch-size 1 --schedule "$here/own.csv" --vocab-mode $mode
    done
    to timeline.txt "$bin/vocabpipe" timeline 1f1b,vocab-mode=none "$here/own.csv" --pp 2 --microbatches 8 \
        --costs 2,4,1 --svg "$here/timeline.svg"
}

run_gpt3() {
    local gpus mesh
    for gpus in 64 128 256 512 1024; do
        mesh=(--model gpt3-175b --gpus "$gpus" --gpu h100 --seq-length 2048 --global-batch-size $((gpus * 2))
            --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --vocab-modes none --json)
        to interleaved-$gpus.json "$bin/vocabpipe" plan "${mesh[@]}" --schedules interleaved --chunks 6 \
            --micro-batch-size 4 --recompute-granularity selective
        to 1f1b-$gpus.json "$bin/vocabpipe" plan "${mesh[@]}" --schedules 1f1b --micro-batch-size 1 \
            --recompute-granularity selective
        to gpipe-$gpus.json "$bin/vocabpipe" plan "${mesh[@]}" --schedules looped-bfs --chunks 6 \
            --micro-batch-size 4 --recompute-granularity full
    done
    # What SPMD can express best: no pipeline, every layer shared by all ranks.
    to fsdp-64.json "$bin/vocabpipe" plan --model gpt3-175b --gpus 64 --gpu h100 --seq-length 2048 \
        --global-batch-size 128 --data-parallel-size 64 --micro-batch-size 2 --vocab-modes none --json \
        --zero-stage 3 --schedules interleaved --chunks 96 --recompute-granularity full
}

# --- all of them

failed=()
for name in $(names); do
    [[ " ${only//$'\n'/ } " == *" $name "* ]] || continue
    here=$folder/$name
    rm -rf "$here"
    mkdir -p "$here"
    begin=$(date +%s%N)
    # In a shell of its own, which ends with its first command that fails.
    set +e
    (
        set -e
        "run_$name"
    )
    code=$?
    set -e
    tenths=$((($(date +%s%N) - begin) / 100000000))
    seconds=$((tenths / 10)).$((tenths % 10))
    echo "$seconds" >"$here/seconds"
    printf '%6s s  %-9s %s\n' "$seconds" "$name" "$(about "$name")"
    if [ $code != 0 ]; then
        failed+=("$name")
        [ -s "$here/failed" ] || echo "exit code $code" >"$here/failed"
        echo "benchmarks/reproduce.sh: error: $name: $(cat "$here/failed")" >&2
    fi
done
awk 'NF' <<<"$experiments" >"$folder/experiments.txt"
python3 benchmarks/reproduce_page.py "$folder" || failed+=(page)
echo "$SECONDS s; the page is $folder/index.html"
[ ${#failed[@]} = 0 ]
