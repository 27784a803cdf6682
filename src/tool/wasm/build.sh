#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compiles step_form.cpp, with the generators, lowering and simulation, to WebAssembly, and writes it
# as gzip in base64 to src/schedule/html/generators.txt, which is part of every timeline page. Run it
# after a change to what it compiles; tests/tool/step_form_test.cpp finds what the page makes
# otherwise than the tool. The build of VocabPipe itself needs none of this. Debian's packages:
#
#   clang-19 lld-19 libc++-19-dev-wasm32 libc++abi-19-dev-wasm32 libclang-rt-19-dev-wasm32 wasi-libc
#
#   src/tool/wasm/build.sh [FOLDER]    keeps objects in FOLDER, and compiles those that are older
set -euo pipefail
cd "$(dirname "$0")/../../.."
folder=${1:-}
if [ -z "$folder" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi
mkdir -p "$folder/include"
ln -sfn /usr/include/nlohmann "$folder/include/nlohmann"

# Exceptions: step_form.cpp says what becomes of them.
flags="--target=wasm32-wasi -std=c++20 -Oz -fexceptions -ffunction-sections -fdata-sections -DNDEBUG
    -I. -Iinclude -I$folder/include"
sources=(src/tool/wasm/step_form.cpp src/tool/schedule/figure_costs.cpp
    src/step/costs/cost_source.cpp src/tool/support/flag_names.cpp schedules/*.cpp src/schedule/lower/*.cpp
    src/schedule/validate/*.cpp
    src/schedule/html/run_data.cpp src/support/nearest_name.cpp src/support/text_layout.cpp)
for source in src/schedule/*.cpp; do
    case $source in
        */html_timeline.cpp | */svg_timeline.cpp | */chrome_trace*.cpp | */overlap_table.cpp) ;;
        *) sources+=("$source") ;;
    esac
done
objects=()
compile=()
for source in "${sources[@]}"; do
    object=$folder/${source//\//_}.o
    objects+=("$object")
    [ "$object" -nt "$source" ] || compile+=("$source $object")
done
if [ ${#compile[@]} -gt 0 ]; then
    printf '%s\n' "${compile[@]}" |
        xargs -P "$(nproc)" -L 1 sh -c 'exec clang++-19 '"${flags//$'\n'/ }"' -c "$0" -o "$1"'
fi
clang++-19 --target=wasm32-wasi -mexec-model=reactor -Oz -Wl,--gc-sections -Wl,--strip-all \
    -Wl,-z,stack-size=1048576 "${objects[@]}" -o "$folder/generators.wasm"
gzip -9nc "$folder/generators.wasm" | base64 -w 100 >src/schedule/html/generators.txt
ls -l "$folder/generators.wasm" src/schedule/html/generators.txt
