#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs, of commands with `::` between them, the one of its rank; the last one on all further ranks. mpirun takes
# a list of commands itself, with colons, but that of Debian 13 (Open MPI 5.0.7) crashes then.
#
#   mpirun -np 3 by_rank.sh COMMAND ... :: COMMAND ...
commands=1
for word; do [ "$word" != :: ] || ((++commands)); done
before=${OMPI_COMM_WORLD_RANK:?by_rank.sh: mpirun starts it}
[ "$before" -lt "$commands" ] || before=$((commands - 1))
command=()
for word; do
    if [ "$word" = :: ]; then
        ((--before))
    elif [ "$before" = 0 ]; then
        command+=("$word")
    fi
done
# As from mpirun: how many ranks each command has.
OMPI_APP_CTX_NUM_PROCS=$(for ((i = 1; i < commands; ++i)); do printf '1 '; done)$((OMPI_COMM_WORLD_SIZE - commands + 1))
export OMPI_APP_CTX_NUM_PROCS
exec "${command[@]}"
