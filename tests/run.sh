#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs, builds and runs all tests.
#
#   tests/run.sh          everything but what is slow or heavy
#   tests/run.sh --full   also tests that take more minutes than they find faults (VOCABPIPE_SLOW_TESTS), the
#                         sanitizers' whole suites, what is carried to a GPU, many more random cases, a soak of ten
#                         minutes, every test and benchmark compiled alone, fuzzing (where clang is installed),
#                         planted faults, pages in a browser, and jobs of Slurm
set -euo pipefail
cd "$(dirname "$0")/.."

full=0
if [ "${1:-}" = --full ]; then
    full=1
elif [ $# -gt 0 ]; then
    echo "tests/run.sh: error: $1: the only option is --full" >&2
    exit 2
fi
[ $full = 1 ] && export VOCABPIPE_FULL=1 VOCABPIPE_PROPERTY_CASES=50000

build=${VOCABPIPE_BUILD_DIR:-build}
. examples/mpi_environment.sh

step() { echo "=== $1 ($SECONDS s)"; }

step "packages"
if [ $full = 1 ]; then examples/install_packages.sh --full; else examples/install_packages.sh --tests; fi

# mpirun asks for it, and waits for a name server where nobody knows it.
getent hosts "$(hostname)" >/dev/null ||
    echo "note: the name of this machine, $(hostname), is unknown to it: mpirun starts seconds late, and" \
        "tests of deadlines fail; add it to /etc/hosts"

# In the folder of the quickstart, whose objects are the same.
step "build"
slow=$([ $full = 1 ] && echo ON || echo OFF)
examples/configure.sh "$build" --preset whole -DVOCABPIPE_SLOW_TESTS="$slow"
cmake --build "$build"

# What shares memory between threads under ThreadSanitizer: the fast run takes a slice of the equality
# matrix, --full all of it, stages that ranks share, and AddressSanitizer. Programs run as a whole: most
# tests are over before a sanitizer's process has begun.
sanitize() { # a preset, GoogleTest's filter, programs
    local folder=$build-$1 filter=$2 program checks=(-DVOCABPIPE_SLOW_TESTS="$slow")
    step "$1"
    # Checks for undefined behaviour double the compiler's minutes.
    [ "$1 $full" = "asan 1" ] && checks+=(-DVOCABPIPE_SANITIZE=address,undefined)
    examples/configure.sh "$folder" --preset "$1" "${checks[@]}" >/dev/null
    shift 2
    cmake --build "$folder" --target "$@"
    for program in "$@"; do
        if [ -z "$("$folder/bin/$program" --gtest_list_tests "--gtest_filter=$filter")" ]; then
            echo "tests/run.sh: error: the filter leaves $program no test: $filter" >&2
            exit 1
        fi
    done
    local entries="$*"
    GTEST_FILTER=$filter ctest --test-dir "$folder" --output-on-failure --no-tests=error -j 2 \
        -R "^(CudaStandIn\.)?(${entries// /|})(\.[0-9]+)?\$"
}
# g++ 14 looks for uses of variables after the return of their function, which misaligns vectors of 64 bytes.
export ASAN_OPTIONS=detect_stack_use_after_return=0
# Of vocabulary modes one with whole layers and one with shards; what runs them is the same for all.
slice='*redistributed_p3*:*one_barrier_p3*:*p4_*:*RunAgain*:*Transport*:*TileLink*:*Abort*:*Deadline*'
# Batches are made on a thread beside the steps.
loaders='*BatchLoader*'
# Links and memory that users open.
memories='*SymmetricMemory*:*TileOperation*'
# What one thread computes from schedules alone.
pure='-*EnqueueOrder*'
if [ $full = 0 ]; then
    sanitize tsan "$slice:$loaders:$memories$pure" \
        runtime_test transport_test tile_link_test open_tile_link_test symmetric_memory_test train_inputs_test
else
    sanitize tsan '*' runtime_test transport_test tile_link_test open_tile_link_test symmetric_memory_test \
        tensor_test expert_test mesh_test train_inputs_test soak_test expert_ranks_test
    # Streams of the stand-in toolkit are threads: a missing wait between lanes is a race. Its tests are
    # slow to build and to run here, so these alone.
    streams='*1f1b_interlaced_p3_copies*:*gpipe_redistributed_p3_copies*:*zb_h1_one_barrier_p3_copies*'
    streams="$streams:*gpipe_none_p3_nccl*:*llama_recompute_full*:*gemma2_recompute_full*"
    sanitize tsan "$streams" cuda_equality_on_stand_in_test
    sanitize asan '*' runtime_test mesh_test train_inputs_test soak_test expert_ranks_test \
        cuda_kernels_on_stand_in_test cuda_stand_in_test nccl_stand_in_test nccl_transport_test \
        schedule_test model_test
fi

# GPUs: what is carried to one is built and packed, as docs/gpu-measurements.md says, where there is a toolkit; what needs
# a GPU is skipped, visibly. Everything with MPI besides.
if [ $full = 1 ]; then
    step "cuda"
    if command -v nvcc >/dev/null; then
        VOCABPIPE_BUILD_DIR=$build-bundle benchmarks/gpu_bundle.sh --output "$build-bundle/packed"
        if [ -e /dev/nvidiactl ]; then
            ctest --test-dir "$build-bundle" -L cuda --no-tests=error -j 2 -E NOT_BUILT
        else
            for program in "$build-bundle"/bin/cuda_*_test; do "$program" --gtest_brief=1 | tail -n 2; done
        fi
        examples/configure.sh "$build-cuda" --preset cuda >/dev/null
        cmake --build "$build-cuda"
    else
        echo "SKIPPED: no nvcc; install the CUDA toolkit (12.3 or newer) and NCCL, or set PATH"
    fi
fi

step "tests"
ctest --test-dir "$build" --output-on-failure --no-tests=error -j 2
if [ $full = 1 ]; then
    step "parquet"
    # Arrow is in the package that pip installs; the fast run does without.
    if python3 -m venv "$build-parquet/venv" && "$build-parquet/venv/bin/pip" install -q pyarrow; then
        examples/configure.sh "$build-parquet" --preset dev -DVOCABPIPE_GROUP_TESTS=ON \
            -DVOCABPIPE_ENABLE_PARQUET=ON \
            "-DVOCABPIPE_PYARROW=$("$build-parquet/venv/bin/python" -c 'import pyarrow; print(pyarrow.__path__[0])')" >/dev/null
        cmake --build "$build-parquet" --target vocabpipe_tool foreign_files_test knn_command_test
        ctest --test-dir "$build-parquet" --output-on-failure --no-tests=error \
            -R '^(pyarrow_files|parquet_texts|foreign_files_test|knn_command_test)$'
    else
        echo "SKIPPED: pip could not install pyarrow"
    fi
    step "every file alone"
    tests/standalone/check.sh "$build"
    step "soak"
    OMP_NUM_THREADS=1 VOCABPIPE_SOAK_SECONDS=600 "$build/bin/soak_test"
    step "fuzzing"
    if command -v clang++ >/dev/null; then
        tests/fuzz/run.sh
    else
        echo "SKIPPED: no clang++; apt-get install clang libclang-rt-dev libomp-dev"
    fi
    step "faults that tests must notice"
    tests/mutation/run.py --folder "$build-mutation" --least 65
fi
step "done"
