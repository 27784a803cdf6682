#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compiles and links a program with pkg-config's flags alone, for either .pc file, and runs it.
#   pkg_config.sh COMPILER FOLDER_OF_PC_FILES WORK_FOLDER
set -euo pipefail
export PKG_CONFIG_PATH=$2
here=$(dirname "$0")
for package in vocabpipe-schedule vocabpipe; do
    # shellcheck disable=SC2046
    "$1" "$here/schedule/main.cpp" -o "$3/$package" $(pkg-config --cflags --libs "$package")
    "$3/$package"
done
