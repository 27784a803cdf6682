#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A trainer of one's own that saves and goes on, at another number of ranks, takes the steps of one that was not
# interrupted.
#
#   examples/go_on.sh BUILD/bin/saving_trainer TEXT
set -euo pipefail
trainer=$1
text=$2
cd "$(mktemp -d)"
trap 'rm -rf "$PWD"' EXIT

steps() { grep '^step' "$1"; }
mpirun --oversubscribe -np 2 "$trainer" "$text" 6 whole.steps >whole
mpirun --oversubscribe -np 2 "$trainer" "$text" 3 saved >first
mpirun --oversubscribe -np 1 "$trainer" "$text" 6 saved >second
diff <(steps whole) <(cat <(steps first) <(steps second))
[ "$(steps second | wc -l)" -eq 3 ]
ls saved
echo "the same 6 steps"
