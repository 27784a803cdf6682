#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compiles every source and every header by itself. Most builds compile several sources together, where one
# has what another includes; who builds without CMAKE_UNITY_BUILD, or includes a header first, has not.
#
#   tests/standalone/check.sh [--products] [BUILD]     works in BUILD-alone (build-alone); compiles what has changed
#
# --products: without tests and benchmarks, which take three quarters of the time.
#
# Syntax alone, by a build.ninja that ninja.awk makes of the commands that CMake would run.
set -euo pipefail
cd "$(dirname "$0")/../.."

folders=(include src kernels schedules examples)
if [ "${1:-}" = --products ]; then shift; else folders+=(tests benchmarks); fi
build=${1:-build}-alone
examples/configure.sh "$build" --preset dev -DCMAKE_UNITY_BUILD=OFF >/dev/null
checks=$build/checks
mkdir -p "$checks"

# Whoever installs them has no other headers of ours.
private=$(grep -rn '^ *#include "' include | grep -v '"vocabpipe/') && {
    echo "$private" >&2
    echo "tests/standalone/check.sh: error: a public header includes one that is not" >&2
    exit 1
}

# What this configuration does not have, and cannot without more packages.
needs_more='^kernels/cuda/(attention_cudnn[.]cpp|grouped_gemm_cutlass[.]cu)$'
needs_more+='|^src/select/files/parquet/|^src/support/parquet_rows[.]|^src/train/text/parquet_texts[.]'
needs_more+='|^src/tool/wasm/|^src/bindings/python/'

files=$(find "${folders[@]}" -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.h' |
    grep -Ev "$needs_more" | sort)
# Lines for ninja.awk, by their first letter: file and command, file, file and what it includes.
{
    sed -n 's/^ *"command": "\(.*\)",$/C\1/p; s/^ *"file": "\(.*\)",\{0,1\}$/F\1/p' "$build/compile_commands.json" |
        sed 's/\\\(["\\]\)/\1/g'
    awk '{ print "S" $0 }' <<<"$files"
    xargs grep -H '^ *#include [<"]' <<<"$files" | sed 's/^\([^:]*\):[^<"]*[<"]\([^>"]*\).*/I\1 \2/'
} | awk -v root="$PWD" -v checks="$PWD/$checks" -f tests/standalone/ninja.awk >"$checks/build.ninja"

# Half of a test's time is GoogleTest's headers.
for name in gtest gmock; do
    [ -e "$checks/$name.hpp" ] || echo "#include <$name/$name.h>" >"$checks/$name.hpp"
done
ninja -C "$checks" -k 0 --quiet
tail -n 1 "$checks/build.ninja"
