#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A model has the same losses, to 3 decimals, on 1 rank and cut into stages for 2 and for 4.
#
#   examples/models/same_losses.sh BUILD/bin/unet 10
set -euo pipefail
program=$(realpath "$1")
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for ranks in 1 2 4; do
    mpirun --oversubscribe -np "$ranks" "$program" "$@" >"$folder/output"
    grep -o 'loss [0-9.]*' "$folder/output" >"$folder/$ranks"
done
paste -d ' ' "$folder"/{1,2,4} | awk '
    NF != 6 { print "line " NR ": " $0; bad = 1; exit }
    ($4 - $2)^2 > 5.5e-4^2 || ($6 - $2)^2 > 5.5e-4^2 { print "losses differ in line " NR ": " $0; bad = 1 }
    END {
        if (bad || NR == 0) exit 1
        print "1, 2 and 4 ranks print the same " NR " losses"
    }'
