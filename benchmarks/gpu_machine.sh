# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Part of gpu.sh: what this machine has, and where programs find its CUDA libraries, which may lie in a
# toolkit, in Python wheels (site-packages/nvidia/*/lib, no development links) or nowhere.
# shellcheck disable=SC2154,SC2034  # variables of gpu.sh

why_no_gpu="nvidia-smi names none; check the driver, or run it on another machine"
nccl_folder='' # for part nccl
PATH=$PATH:/usr/local/cuda/bin:/usr/sbin:/sbin # nvcc, compute-sanitizer; ldconfig

unpack_bundle() {
    local folder=$bundle
    if [ -f "$bundle" ]; then
        folder=$build_dir/bundle
        if [ ! -e "$folder/manifest.txt" ] || [ "$bundle" -nt "$folder/manifest.txt" ]; then
            rm -rf "$folder" && mkdir -p "$folder"
            if command -v xz >/dev/null; then
                tar -xJf "$bundle" -C "$folder"
            else
                python3 -m tarfile -e "$bundle" "$folder"
            fi || return 1
            touch "$folder/manifest.txt"
        fi
    fi
    [ -e "$folder/manifest.txt" ] || fail "--bundle $bundle: not what gpu_bundle.sh makes: no manifest.txt" 2
    programs=$folder
    build=0
}

commit_of_programs() {
    sed -n 's/^commit: //p' "$programs/manifest.txt" 2>/dev/null | grep . ||
        git rev-parse --short HEAD 2>/dev/null || echo unknown
}

# Folders that may hold CUDA's libraries, the toolkit's first.
library_folders() {
    local site
    shopt -s nullglob
    printf '%s\n' /usr/local/cuda/lib64 /usr/local/cuda-*/lib64 /usr/local/nvidia/lib64 /usr/local/nvidia/lib
    {
        python3 -c 'import site, sys
print(*site.getsitepackages(), site.getusersitepackages(), *sys.path, sep="\n")' 2>/dev/null
        printf '%s\n' /usr/lib/python3*/{site,dist}-packages /usr/local/lib/python3*/{site,dist}-packages \
            /opt/*/lib/python3*/site-packages ~/.local/lib/python3*/site-packages
    } | while read -r site; do
        [ -z "$site" ] || printf '%s\n' "$site"/nvidia/*/lib
    done
    shopt -u nullglob
}

folder_of() { # library: where it lies; "system" if the loader finds it by itself
    local folder
    # grep reads all of it: -q would end ldconfig by SIGPIPE, which counts as "not found" with pipefail.
    if ldconfig -p 2>/dev/null | grep "^[[:space:]]*$1 " >/dev/null; then
        echo system
        return
    fi
    while read -r folder; do
        if [ -e "$folder/$1" ]; then
            echo "$folder"
            return
        fi
    done <<<"$folders"
    # A toolkit's compat/ has another libcuda, which the driver of the kernel refuses.
    [ "$1" != libcuda.so.1 ] || return 0
    folder=$(timeout 5 find / -xdev -name "$1" -not -path '*/stubs/*' -print -quit 2>/dev/null)
    [ -z "$folder" ] || dirname "$folder"
}

# Sets LD_LIBRARY_PATH, and $libraries to a line for the table.
find_libraries() {
    local name folder path=$programs/lib names="libcuda.so.1 libcudart.so.13 libcublasLt.so.13 libnccl.so.2"
    # A bundle says whether it has programs that use cuDNN; a build here uses it where it finds it.
    if [ -d "$programs/cudnn" ]; then
        names="$names libcudnn.so.9 libnvrtc.so.13"
    elif [ ! -e "$programs/manifest.txt" ]; then
        names="$names libcudnn.so.9"
    fi
    libraries=
    missing=
    case "$path" in /*) ;; *) path=$PWD/$path ;; esac
    [ -d "$debs_prefix" ] && path=$path:$debs_prefix/usr/lib/x86_64-linux-gnu
    folders=$(library_folders | awk '!seen[$0]++')
    for name in $names; do
        [ -e "$programs/lib/$name" ] && continue
        folder=$(folder_of "$name")
        [ "$name" = libnccl.so.2 ] && [ -z "$folder" ] && [ -e "$programs/nccl/$name" ] &&
            folder=$(cd "$programs/nccl" && pwd)
        if [ -z "$folder" ]; then
            missing="$missing $name"
        elif [ "$folder" != system ]; then
            libraries="$libraries, $name in $folder"
            case ":$path:" in *":$folder:"*) ;; *) path=$path:$folder ;; esac
        fi
    done
    libraries=${libraries#, }
    [ -z "$missing" ] || libraries="${libraries:+$libraries; }not found:$missing"
    # The first program would wait for the disk.
    folder=$(tr ':' '\n' <<<"$path" | while read -r folder; do ls "$folder/libcublasLt.so.13" 2>/dev/null; done | head -n 1)
    [ -z "$folder" ] || cat "$folder" >/dev/null 2>&1 &
    export LD_LIBRARY_PATH=$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# Runs the probe; $probe is what it says.
run_probe() {
    local code
    probe=
    [ -x "$programs/bin/gpu_probe" ] || return 0
    (cd "$programs/bin" && ldd -- * 2>/dev/null) |
        awk '/:$/ { program = $1 } /not found/ { sub(/^[[:space:]]*/, ""); print program, $0 }' >"$work/missing.log"
    sort -u -k 2 "$work/missing.log" | head -n 8
    timeout --kill-after=5 60 "$programs/bin/gpu_probe" >"$work/probe.log" 2>&1
    code=$?
    sed -i '/^end probe /d' "$work/state"
    case $code in 0 | 6) ;; *) echo "end probe probe $code" >>"$work/state" ;; esac
    probe=$(cat "$work/probe.log")
}

look_at_machine() {
    local begin=$SECONDS
    echo "=== probe"
    smi=$(timeout 20 nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total \
        --format=csv,noheader 2>/dev/null) || smi=
    find_libraries
    nccl_folder=${nccl:-$([ -d "$programs/nccl" ] && cd "$programs/nccl" && pwd)}
    machine="$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release 2>/dev/null), glibc $(
        getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2), $(nproc --all) cores, $(
        awk '/^MemTotal/ { printf "%d GiB", $2 / 1048576 }' /proc/meminfo)"
    echo "$machine"
    echo "GPUs by nvidia-smi: ${smi:-none}"
    echo "libraries: ${libraries:-where the loader looks}"
    run_probe
    echo "${probe:-no gpu_probe yet}"
    echo "($((SECONDS - begin)) s)"
}

of_probe() { # name: its value
    sed -n "s/^$1: //p" <<<"$probe" | head -n 1
}

# The probe's word counts where it runs: a program sees a GPU, or it does not.
gpu_is_here() {
    gpu_count=$(of_probe gpus)
    if [ -n "$gpu_count" ]; then
        why_no_gpu="$(of_probe reason); nvidia-smi: ${smi:-names none}"
        [ "$gpu_count" -gt 0 ]
        return
    fi
    [ -z "$smi" ] || gpu_count=$(wc -l <<<"$smi")
    [ -z "$probe" ] || why_no_gpu="$(head -n 1 <<<"$probe"); nvidia-smi: ${smi:-names none}"
    [ -n "$smi" ]
}
