# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by scripts that run mpirun: root in a container, and more ranks than cores, for Open MPI 4 and 5, are fine
# there.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
