#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Configures a build folder, new or whatever it was configured with before: other options stay as they were.
#
#   examples/configure.sh BUILD [CMAKE_ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1
shift
has() { grep -x "$1:INTERNAL=$2" "$build/CMakeCache.txt" >/dev/null; }
fresh=()
if [ -e "$build/CMakeCache.txt" ]; then
    # CMake refuses a folder that another generator made, or that was made elsewhere and then moved.
    has CMAKE_GENERATOR Ninja && has CMAKE_CACHEFILE_DIR "$(realpath "$build")" && has CMAKE_HOME_DIRECTORY "$PWD" ||
        fresh=(--fresh)
fi
cmake "${fresh[@]}" -G Ninja -B "$build" "$@"
