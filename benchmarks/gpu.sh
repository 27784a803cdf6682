#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# On a machine with a GPU: tests, measures, and prints the table for benchmarks/results/. Runs what
# benchmarks/gpu_bundle.sh packed elsewhere, or builds here. docs/gpu-measurements.md, "Running on a borrowed machine".
#
#   benchmarks/gpu.sh [OPTION...] [PART...] [-- CMAKE_ARGUMENT...]
#
#   PART              of: build ceilings kernels shapes loss vocab step cudnn large profile nccl diagnosis tests
#                     peers experts copies memcheck racecheck, in this order. Without one: all that have no result yet, so
#                     that a second call goes on where the first one ended. With one: these, again.
#   --bundle PATH     programs from gpu_bundle.tar.xz, or from the folder that it was unpacked to
#   --debs FOLDER     build here with the Debian packages in FOLDER, which are unpacked, not installed
#   --no-build        the programs are in the build folder already
#   --no-network      (default) never calls apt
#   --network         may install missing packages with apt, 300 s at most
#   --budget SECONDS  of the whole call (280); what does not fit is left to the next one
#   --logs FOLDER     after every command: gpu_table.md and gpu_logs.tar.gz there
#   --continue FILE   gpu_logs.tar.gz of an earlier call, where its build folder is gone
#   --nccl FOLDER     of a libnccl.so.2, 2.30 or newer, for part nccl on one GPU
#   --again           forget what earlier calls did
#   --quick           fewer sizes and steps, no sanitizers
#   --                what follows goes to CMake
#
# VOCABPIPE_BUILD_DIR: build folder (build-gpu). A part that fails does not stop the others.
# Exit code: 0; 1 if a part failed, in this call or an earlier one; 2 usage; 6 no GPU.
set -uo pipefail
caller=$PWD
cd "$(dirname "$0")/.." || exit 1
. benchmarks/gpu_attempts.sh
. benchmarks/gpu_machine.sh
. benchmarks/gpu_build.sh
. benchmarks/gpu_parts.sh

fail() { # message, exit code
    echo "benchmarks/gpu.sh: error: $1" >&2
    exit "$2"
}

path_of() { # option, path: the whole path of what is there
    [ -e "$(absolute "$2")" ] || fail "$1 $2: there is no such file or folder" 2
    absolute "$2"
}

absolute() { # path, relative to the caller's folder
    case "$1" in /*) echo "$1" ;; *) echo "$caller/$1" ;; esac
}

need_gpu() {
    gpu_is_here && return
    publish
    show_table
    echo
    fail "no GPU: $why_no_gpu" 6
}

# Most wanted first, correctness before speed; what failed is run again, alone, when the first ones have ended
# and at the end.
all_parts=(build ceilings kernels shapes loss vocab step cudnn large profile nccl diagnosis tests peers
    experts copies memcheck racecheck diagnosis)
command_line="benchmarks/gpu.sh $*"
quick=0 build=1 network=0 again=0 budget=280
bundle='' debs='' logs='' earlier='' nccl=''
parts=() no_programs=0
while [ $# -gt 0 ]; do
    case "$1" in
        --bundle | --debs | --budget | --logs | --continue | --nccl)
            [ $# -ge 2 ] || fail "$1 needs a value" 2
            ;;&
        --bundle) bundle=$(path_of "$1" "$2") || exit 2 ;;
        --debs) debs=$(path_of "$1" "$2") || exit 2 ;;
        --continue) earlier=$(path_of "$1" "$2") || exit 2 ;;
        --nccl) nccl=$(path_of "$1" "$2") || exit 2 ;;
        --budget) budget=$2 ;;
        --logs) logs=$(absolute "$2") ;;
        --quick) quick=1 ;;
        --no-build) build=0 ;;
        --network) network=1 ;;
        --no-network) network=0 ;;
        --again) again=1 ;;
        --) shift && break ;;
        *)
            [[ " ${all_parts[*]} " == *" $1 "* ]] ||
                fail "$1: neither an option (head benchmarks/gpu.sh) nor a part: ${all_parts[*]}" 2
            parts+=("$1")
            ;;
    esac
    case "$1" in --bundle | --debs | --budget | --logs | --continue | --nccl) shift ;; esac
    shift
done
[[ $budget =~ ^[1-9][0-9]*$ ]] || fail "--budget $budget: seconds, please" 2

build_dir=${VOCABPIPE_BUILD_DIR:-build-gpu}
programs=$build_dir # with bin/, and lib/ of a bundle
work=$build_dir/gpu
mkdir -p "$work" || exit 1
[ -z "$logs" ] || mkdir -p "$logs" || fail "--logs $logs: cannot be made" 1
[ $quick = 1 ] && sizes=quick || sizes=full
# Loading every kernel of cuBLASLt takes seconds in each of many programs; parts with several ranks of NCCL
# ask for it (docs/gpus.md).
export CUDA_MODULE_LOADING=LAZY
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

if [ -n "$bundle" ]; then
    unpack_bundle || exit 1
fi
go_on_or_begin_anew
if [ ${#parts[@]} -eq 0 ]; then
    parts=("${all_parts[@]}")
else
    for part in "${parts[@]}"; do forget "$part"; done
fi

part=probe
look_at_machine
need_gpu
for part in "${parts[@]}"; do
    echo
    echo "=== $part ($SECONDS s of $budget)"
    before=$(state_of_all)
    "part_$part" "$@"
    code=$?
    if [ "$(state_of_all)" != "$before" ]; then
        publish
        show_table
    fi
    if [ "$part" = build ] && [ $code != 0 ]; then
        echo "no programs: the other parts are left out"
        [ ${#pending[@]} -gt 0 ] || no_programs=1
        break
    fi
    [ "$part" != build ] || need_gpu
done
publish
show_table
echo
if [ ${#pending[@]} -gt 0 ]; then
    printf 'LEFT for the next call: %s\n' "${pending[*]}"
fi
if failures | grep . || [ $no_programs = 1 ]; then
    exit 1
fi
echo "all that ran has passed ($SECONDS s)"
