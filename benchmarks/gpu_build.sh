# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Part of gpu.sh: builds on the machine with the GPU, with what is installed, with Debian packages that
# are only unpacked (--debs), or, if it may, with apt (--network).
# shellcheck disable=SC2154,SC2034  # variables of gpu.sh

debs_prefix=${VOCABPIPE_BUILD_DIR:-build-gpu}/debs
case "$debs_prefix" in /*) ;; *) debs_prefix=$PWD/$debs_prefix ;; esac

unpack_debs() {
    local deb
    [ -n "$debs" ] || return 0
    mkdir -p "$debs_prefix"
    for deb in "$debs"/*.deb; do
        [ -e "$deb" ] || fail "--debs $debs: there is no .deb file" 2
        dpkg -x "$deb" "$debs_prefix" || return 1
    done
}

# A launcher without headers cannot build the MPI transport.
mpi_is_here() {
    command -v mpicxx >/dev/null && command -v mpirun >/dev/null &&
        echo '#include <mpi.h>' | mpicxx -E -x c++ - >/dev/null 2>&1
}

# Wheels bring libnccl.so.2 and nccl.h, but not the link that find_library() looks for.
nccl_of_wheels() {
    local folder
    while read -r folder; do
        if [ -e "$folder/libnccl.so.2" ] && [ -e "$folder/../include/nccl.h" ]; then
            echo "-DNCCL_LIBRARY=$folder/libnccl.so.2 -DNCCL_INCLUDE_DIR=$(cd "$folder/../include" && pwd)"
            return
        fi
    done <<<"$folders"
}

configure() {
    local architectures mpi=OFF found=()
    architectures=$(cut -d, -f3 <<<"$smi" | tr -d ' .' | sort -u | sed 's/$/-real/' | paste -sd';')
    if mpi_is_here; then mpi=ON; else echo "no MPI with headers: without the MPI transport"; fi
    [ -d "$debs_prefix" ] && found+=("-DCMAKE_PREFIX_PATH=$debs_prefix/usr")
    # shellcheck disable=SC2207  # no spaces in it
    [ -e /usr/include/nccl.h ] || [ -e /usr/local/cuda/include/nccl.h ] || found+=($(nccl_of_wheels))
    timeout --kill-after=10 120 cmake -G Ninja -B "$build_dir" -DVOCABPIPE_ENABLE_CUDA=ON \
        -DVOCABPIPE_ENABLE_MPI=$mpi -DVOCABPIPE_CUDA_ARCHITECTURES="${architectures:-90-real}" \
        -DVOCABPIPE_BUILD_TESTS=ON -DVOCABPIPE_BUILD_BENCHMARKS=ON -DVOCABPIPE_BUILD_EXAMPLES=OFF \
        -DVOCABPIPE_INSTALL=OFF "${found[@]}" "$@" </dev/null
}

part_build() {
    if [ "$build" = 0 ]; then
        echo "the programs are in $programs"
        [ -x "$programs/bin/gpu_probe" ]
        return
    fi
    [ -x "$programs/bin/gpu_probe" ] || forget build # on another machine, or it failed: try again
    unpack_debs || return 1
    if ! attempt configure 120 configure "$@"; then
        if [ "$network" = 0 ]; then
            echo "something is missing: benchmarks/gpu_bundle.sh elsewhere and --bundle here, or --debs, or --network"
            return 1
        fi
        timeout --kill-after=10 300 examples/install_packages.sh --tests || return 1
        attempt configure-again 120 configure "$@" || return 1
        sed -i '/^end build configure /d' "$work/state"
    fi
    attempt build 540 cmake --build "$build_dir" --target cuda_programs || return 1
    look_at_machine # what the loader finds now
}

rows_build() { :; }
