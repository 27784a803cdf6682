#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzzers and runs each of them from its seeds; the first crash ends the run with its
# input in a file.
#
#   tests/fuzz/run.sh [seconds per fuzzer, 20 if not given]
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${1:-20}
build=${VOCABPIPE_BUILD_DIR:-build}-fuzz
fuzzers=(adapter_config compressed_text graph_file imported_run json_lines length_distribution loss_weights model_config npy
    safetensors schedule_csv schedule_json shard_index stage_layout tokenizer_json training_state)

# Benchmarks need libraries that fuzzing does not. With tools there are tokenizers.
cmake -G Ninja -B "$build" -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DVOCABPIPE_SANITIZE=address,undefined,fuzzer-no-link -DVOCABPIPE_BUILD_FUZZERS=ON \
    -DVOCABPIPE_ENABLE_MPI=OFF -DVOCABPIPE_BUILD_TESTS=OFF -DVOCABPIPE_BUILD_BENCHMARKS=OFF \
    -DVOCABPIPE_BUILD_TOOLS=ON -DVOCABPIPE_BUILD_EXAMPLES=OFF >/dev/null
cmake --build "$build" --target "${fuzzers[@]/%/_fuzz}"

for fuzzer in "${fuzzers[@]}"; do
    found=$build/fuzz/$fuzzer # grows from run to run
    mkdir -p "$found"
    echo "fuzzing $fuzzer for $seconds s"
    log=$build/fuzz/$fuzzer.log
    if ! "$build/bin/${fuzzer}_fuzz" -max_total_time="$seconds" -max_len=2048 -timeout=10 \
        -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 -artifact_prefix="$found-" \
        "$found" "tests/fuzz/seeds/$fuzzer" >"$log" 2>&1; then
        grep -E 'ERROR|SUMMARY|Test unit' "$log" >&2 || true
        echo "tests/fuzz/run.sh: error: $fuzzer failed: see $log" >&2
        exit 1
    fi
    grep number_of_executed_units "$log"
done
