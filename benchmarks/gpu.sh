#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# On a machine with a GPU: builds, tests, measures, and prints the table for docs/performance.md.
#
#   benchmarks/gpu.sh [--quick] [--no-build] [PART...] [-- CMAKE_ARGUMENT...]
#
#   PART        of: build tests loss vocab step comm sanitizers; all of them without one. A table holds
#               what earlier calls measured in the same build folder, too; a call without PART begins anew.
#   --quick     fewer sizes and steps, no sanitizers
#   --no-build  the programs are there already
#   --          what follows goes to CMake, such as -DCMAKE_PREFIX_PATH=... for dependencies that were
#               copied here, or -DVOCABPIPE_ENABLE_CUDNN=ON; the network is only used where CMake misses
#               a package
#
# VOCABPIPE_BUILD_DIR: build folder (build-gpu). Every command has a time limit, and the whole of it 25
# minutes; a part that fails does not stop the others. Exit code: 0; 1 if a part failed; 2 usage; 6 no GPU.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

fail() { # message, exit code
    echo "benchmarks/gpu.sh: error: $1" >&2
    exit "$2"
}

command_line="benchmarks/gpu.sh $*"
quick=0
build=1
parts=()
while [ $# -gt 0 ]; do
    case "$1" in
        --quick) quick=1 ;;
        --no-build) build=0 ;;
        --) shift && break ;;
        build | tests | loss | vocab | step | comm | sanitizers) parts+=("$1") ;;
        *) fail "$1: the options are --quick, --no-build, -- and parts: build tests loss vocab step comm sanitizers" 2 ;;
    esac
    shift
done

gpus=$(nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader 2>/dev/null) || gpus=
[ -n "$gpus" ] || fail "no GPU: nvidia-smi names none; check the driver, or run it on another machine" 6
gpu_count=$(wc -l <<<"$gpus")
PATH=$PATH:/usr/local/cuda/bin

build_dir=${VOCABPIPE_BUILD_DIR:-build-gpu}
bin=$build_dir/bin
out=$build_dir/gpu
if [ ${#parts[@]} -eq 0 ]; then
    parts=(build tests loss vocab step comm sanitizers) # what may take long comes last
    rm -rf "$out"
fi
mkdir -p "$out"
[ $quick = 1 ] && sizes=quick || sizes=full
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
failed=()
budget=1500 # seconds

# Runs a command with its output on the screen and in $out/NAME.log; notes a failure.
attempt() { # name, seconds, command...
    local name=$1 limit=$2 begin=$SECONDS code left=$((budget - SECONDS))
    shift 2
    rm -f "$out/$name.log"
    [ $left -lt "$limit" ] && limit=$left
    if [ "$limit" -le 0 ]; then
        echo "--- $name: left out, $budget s are over"
        : >"$out/$name.log"
        failed+=("$name (left out: $budget s were over)")
        return 1
    fi
    echo "--- $name: $*"
    timeout --kill-after=10 "$limit" "$@" 2>&1 | tee "$out/$name.log"
    code=${PIPESTATUS[0]}
    [ "$code" = 124 ] && echo "$name: no end within $limit s"
    if [ "$code" = 0 ] && grep -q '\] 0 tests from' "$out/$name.log"; then
        echo "$name: no test ran"
        code=1
    fi
    [ "$code" = 0 ] || failed+=("$name (exit code $code)")
    echo "--- $name: exit code $code, $((SECONDS - begin)) s"
    return "$code"
}

skip() { # name, reason
    echo "SKIPPED $1: $2"
    row "$1" "SKIPPED: $2" "" ""
}

# Rows of the table lie in $out/rows.PART until it is printed.
part=
row() { # what, measured, asked, ratio
    echo "| $1 | $2 | $3 | $4 |" >>"$out/rows.$part"
}

# --- parts

configure() {
    local architectures mpi=ON
    architectures=$(cut -d, -f3 <<<"$gpus" | tr -d ' .' | sort -u | sed 's/$/-real/' | paste -sd';')
    if ! command -v mpirun >/dev/null; then
        echo "no mpirun: without the MPI transport; install openmpi-bin and libopenmpi-dev to have it"
        mpi=OFF
    fi
    cmake -G Ninja -B "$build_dir" -DVOCABPIPE_ENABLE_CUDA=ON -DVOCABPIPE_ENABLE_MPI=$mpi \
        -DVOCABPIPE_CUDA_ARCHITECTURES="$architectures" -DVOCABPIPE_BUILD_TESTS=ON \
        -DVOCABPIPE_BUILD_BENCHMARKS=ON -DVOCABPIPE_BUILD_EXAMPLES=OFF "$@"
}

part_build() {
    if [ $build = 0 ]; then
        echo "as it is in $build_dir"
        return 0
    fi
    if ! configure "$@" >"$out/configure.log" 2>&1; then
        grep -A 3 'CMake Error' "$out/configure.log" || tail -n 5 "$out/configure.log"
        echo "something is missing: examples/install_packages.sh --tests"
        examples/install_packages.sh --tests
        configure "$@" >"$out/configure.log" 2>&1 || {
            tail -n 15 "$out/configure.log"
            failed+=("configure")
            return 1
        }
    fi
    attempt build 540 cmake --build "$build_dir" --target cuda_programs
}

part_tests() {
    attempt tests 240 ctest --test-dir "$build_dir" -L cuda -E NOT_BUILT --no-tests=error \
        --output-on-failure --timeout 120 -j 4
    local summary skipped
    summary=$(grep 'tests passed' "$out/tests.log" || echo "no result")
    skipped=$(grep -c '(Skipped)' "$out/tests.log")
    row "\`ctest -L cuda\`" "$summary, $skipped skipped" "all pass" ""
}

part_sanitizers() {
    local tool filter
    if [ $quick = 1 ]; then
        echo "not with --quick"
        return 0
    fi
    if ! command -v compute-sanitizer >/dev/null; then
        skip compute-sanitizer "not found; it comes with the CUDA toolkit (cuda-sanitizer-<version>)"
        return 0
    fi
    # Whole steps are slow under it: one family on two ranks. Its exit code tells its own findings from
    # the program's.
    filter='Threads/CudaEquality.*/1f1b_one_barrier_p2_*'
    for tool in memcheck racecheck; do
        attempt "$tool-kernels" 240 compute-sanitizer --tool $tool --error-exitcode 9 \
            "$bin/cuda_kernels_test" --gtest_brief=1
        row "compute-sanitizer $tool, operators" "$(verdict "$tool-kernels")" "0 errors" ""
        attempt "$tool-steps" 120 env VOCABPIPE_FULL=1 compute-sanitizer --tool $tool --error-exitcode 9 \
            "$bin/cuda_equality_test" --gtest_brief=1 --gtest_filter="$filter"
        row "compute-sanitizer $tool, steps" "$(verdict "$tool-steps")" "0 errors" ""
    done
}

verdict() { # log: what compute-sanitizer counted
    sed -n 's/^=* *\(ERROR\|RACECHECK\) SUMMARY: //p' "$out/$1.log" | tail -n 1 | grep . || echo "no result"
}

# The largest distance of two loss curves, relative to the first one's loss.
loss_distance() { # metrics of the host, of the GPU
    paste <(sed 's/.*"loss":\([^,}]*\).*/\1/' "$1") <(sed 's/.*"loss":\([^,}]*\).*/\1/' "$2") | awk '
        NF != 2 || $1 + 0 <= 0 || $2 + 0 <= 0 { wrong = 1; next }
        { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > worst) worst = d }
        END { if (wrong || NR == 0) print "nan"; else printf "%.2e\n", worst }'
}

# fp32, so that only the order of sums differs. bound: docs/performance.md, "GPUs".
part_loss() {
    local steps=50 bound=1e-4 ranks distance ranks_tried="1 2 4"
    [ $quick = 1 ] && steps=20 ranks_tried="2"
    cat README.md docs/*.md >"$out/text.txt"
    attempt data 60 "$bin/vocabpipe" data prepare --input "$out/text.txt" --output "$out/text" \
        --tokenizer bytes || return
    train() { # name, flags
        local name=$1
        shift
        attempt "$name" 90 "$bin/train_gpt" --data-path "$out/text" --vocab-size 257 --num-layers 4 \
            --hidden-size 128 --num-attention-heads 4 --seq-length 128 --dtype fp32 \
            --micro-batch-size 2 --global-batch-size 16 --train-iters $steps --lr 1e-3 \
            --lr-warmup-iters 5 --log-interval 10 --transport threads --metrics "$out/$name.jsonl" "$@"
    }
    train loss-host --ranks 1 || return
    for ranks in $ranks_tried; do
        train "loss-cuda-$ranks" --device cuda --ranks "$ranks" || continue
        distance=$(loss_distance "$out/loss-host.jsonl" "$out/loss-cuda-$ranks.jsonl")
        echo "largest difference of the loss over $steps steps: $distance of it, bound $bound"
        if ! awk -v d="$distance" -v b="$bound" 'BEGIN { exit !(d != "nan" && d + 0 <= b + 0) }'; then
            failed+=("loss-cuda-$ranks: $distance is beyond $bound")
        fi
        row "loss, fp32, $ranks ranks on a GPU against the host, $steps steps" "$distance apart" \
            "<= $bound" "$(awk -v d="$distance" -v b="$bound" 'BEGIN { printf "%.2f", d / b }')"
    done
}

part_vocab() {
    local rows=16384,32768,131072
    [ $quick = 1 ] && rows=16384
    attempt vocab 90 "$bin/bench_vocab_cuda" --rows $rows
    grep -v '^#' "$out/vocab.log" | awk 'NF == 12 {
        printf "| S and T, v = %s | %s of %s TFLOP/s | 0.90 | %s |\n", $1, $9, $3, $10
        printf "| memory of S and T over the numerator, v = %s | %s | 1.25 | |\n", $1, $11 }' \
        >>"$out/rows.$part"
}

part_step() {
    local model models="gpt2-124m gpt2-1.5b"
    [ $quick = 1 ] && models=gpt2-124m
    for model in $models; do
        attempt "step-$model" 150 "$bin/bench_step" --device cuda --model "$model"
        grep -v '^#' "$out/step-$model.log" | awk -v model="$model" 'NF == 10 {
            printf "| step, %s, %s: %.0f ms (%.0f on the GPU), %.0f tokens/s | %.1f of %.1f TFLOP/s | %s | %s |\n",
                model, $1, $2, $3, $4, $5 / 1e3, $6 / 1e3, $9, $7 }' >>"$out/rows.$part"
    done
}

# Latency from the smallest message, bandwidth from the largest one.
comm_rows() { # name, label
    awk -v label="$2" '
        /^# (sendrecv|broadcast|all_gather|exchange|gather)$/ { operation = $2; first = 1; next }
        /^#/ || NF != 9 { next }
        first { latency[operation] = $6; order[++count] = operation; first = 0 }
        { bandwidth[operation] = $8; bytes[operation] = $1 }
        END { for (i = 1; i <= count; ++i) { o = order[i]
            printf "| %s, %s | %s us, bus %s GB/s at %d MiB | reported | |\n", label, o, latency[o],
                bandwidth[o], bytes[o] / 1048576 } }' "$out/$1.log" >>"$out/rows.$part"
}

part_comm() {
    local last=64M
    [ $quick = 1 ] && last=4M
    attempt comm-copies 60 "$bin/bench_comm" --transport copies --ranks 2 -b 8 -e $last -f 8
    comm_rows comm-copies "copies, 2 ranks"
    if [ "$gpu_count" -lt 2 ]; then
        skip "bench_comm over NCCL" "it needs a GPU per rank, and this machine has one"
        return 0
    fi
    attempt comm-nccl 60 "$bin/bench_comm" --transport nccl --ranks "$gpu_count" -b 8 -e $last -f 8
    comm_rows comm-nccl "NCCL, $gpu_count ranks"
    if command -v mpirun >/dev/null; then
        attempt comm-nccl-mpi 60 mpirun -np "$gpu_count" "$bin/bench_comm" --transport nccl -b 8 -e $last -f 8
        comm_rows comm-nccl-mpi "NCCL under mpirun, $gpu_count ranks"
    fi
}

# --- the table

version_in() { # header, macro of the major number, minor, patch
    [ -f "$1" ] || return 0
    sed -n "s/^#define $2 *\([0-9]*\).*/\1/p; s/^#define $3 *\([0-9]*\).*/\1/p; s/^#define $4 *\([0-9]*\).*/\1/p" "$1" |
        paste -sd.
}

print_table() {
    local nccl_header blas_header
    nccl_header=$(sed -n 's/^NCCL_INCLUDE_DIR:[A-Z]*=//p' "$build_dir/CMakeCache.txt" 2>/dev/null)/nccl.h
    blas_header=$(sed -n 's/^CUDAToolkit_INCLUDE_DIR:[A-Z]*=//p' "$build_dir/CMakeCache.txt" 2>/dev/null)/cublas_api.h
    [ -f "$blas_header" ] || blas_header=$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/../include/cublas_api.h
    echo
    echo "    $command_line"
    echo
    echo "$(date -u +%Y-%m-%d), $gpu_count x $(head -n 1 <<<"$gpus" | awk -F', ' '{
        print $1 ", " $4 ", driver " $2 }'), CUDA $(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p'), NCCL $(
        version_in "$nccl_header" NCCL_MAJOR NCCL_MINOR NCCL_PATCH), cuBLAS(Lt) $(
        version_in "$blas_header" CUBLAS_VER_MAJOR CUBLAS_VER_MINOR CUBLAS_VER_PATCH), $(nproc) cores, commit $(
        git rev-parse --short HEAD 2>/dev/null || echo unknown), $sizes sizes"
    echo
    echo "| what | measured | asked | ratio |"
    echo "|---|---|---|---|"
    for part in tests sanitizers loss vocab step comm; do # as a reader wants them
        cat "$out/rows.$part" 2>/dev/null
    done
}

for part in "${parts[@]}"; do
    echo
    echo "=== $part ($SECONDS s)"
    rm -f "$out/rows.$part"
    if ! "part_$part" "$@" && [ "$part" = build ]; then
        echo "nothing was built: the other parts are left out"
        break
    fi
done
print_table
echo
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED %s\n' "${failed[@]}"
    exit 1
fi
echo "all parts passed ($SECONDS s)"
