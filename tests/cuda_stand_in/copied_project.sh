#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Does what README.md tells other CUDA projects: copies the stand-in into a new project, takes the project's files and
# commands from the page, and types them; then once more without the kernel's barrier, which must be reported.
#
#   tests/cuda_stand_in/copied_project.sh WORK_FOLDER
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
source=$here/../..
project=$1
rm -rf "$project"
mkdir -p "$project/tests/support" "$project/src/cmake"
cp -r "$source/tests/support/cuda_stand_in" "$project/tests/support/"
cp "$source/src/cmake/VocabpipeCudaStandIn.cmake" "$project/src/cmake/"
cp "$source/LICENSE" "$project/"
cd "$project"

# The indented block behind a comment of the page.
block() { # comment
    awk -v comment="<!-- $1 -->" '
        $0 == comment { inside = 1; next }
        inside && /^[^ ]/ { exit }
        inside && (begun || NF) { begun = 1; sub(/^    /, ""); print }' "$here/README.md" | grep . >"$2" ||
        { echo "the page has no block behind <!-- $1 -->"; exit 1; }
}
for file in CMakeLists.txt my_kernels.cu my_test.cpp; do
    block "file of the project: $file" $file
done
block "commands of the project" commands.sh

bash -e commands.sh | tail -n 1 | grep -x reversed
sed -i '/^ *__syncthreads();$/d' my_kernels.cu
if bash -e commands.sh >output 2>&1; then
    echo "a missing barrier was not noticed"
    exit 1
fi
grep -F 'kernel reverse(float*, float const*)' output
