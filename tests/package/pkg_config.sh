#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compiles and links a program with pkg-config's flags alone, for each package, and runs it.
#   pkg_config.sh COMPILER FOLDER_OF_PC_FILES WORK_FOLDER PACKAGE:SOURCE...
set -euo pipefail
compiler=$1 work=$3
export PKG_CONFIG_PATH=$2
shift 3
for pair; do
    package=${pair%%:*}
    # shellcheck disable=SC2046
    "$compiler" "${pair#*:}" -o "$work/$package" $(pkg-config --cflags --libs "$package")
    "$work/$package"
done
