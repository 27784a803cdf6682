#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds here, for a machine with a GPU and without a network, and packs what benchmarks/gpu.sh runs
# there: stripped programs, the shared libraries that such a machine lacks, a text to train on. Needs
# nvcc, and no GPU. docs/gpu-measurements.md, "Running on a borrowed machine".
#
#   benchmarks/gpu_bundle.sh [OPTION...] [-- CMAKE_ARGUMENT...]
#
#   --arch LIST        GPUs to build for, as VOCABPIPE_CUDA_ARCHITECTURES (90-real)
#   --output FOLDER    of gpu_bundle.tar.xz (build-gpu-bundle, which git ignores)
#   --limit MB         an error above it (30)
#   --nccl FOLDER      also packs its libnccl.so.2, for several ranks on one GPU (2.30 or newer)
#   --cudnn            also builds and packs programs whose attention is cuDNN's
#   --cutlass          also builds and packs programs that multiply all experts in one launch, by CUTLASS
#   --programs FOLDER  packs the programs in it instead of building
#   --                 what follows goes to CMake
#
# VOCABPIPE_BUILD_DIR: build folder (build-bundle). Exit code: 0; 1 it failed or is too large; 2 usage.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { # message, exit code
    echo "benchmarks/gpu_bundle.sh: error: $1" >&2
    exit "$2"
}

arch=90-real output=build-gpu-bundle limit=30 nccl='' cudnn=0 cutlass=0 given='' cudnn_version=none
cutlass_version=none
while [ $# -gt 0 ]; do
    case "$1" in
        --cudnn) cudnn=1 ;;
        --cutlass) cutlass=1 ;;
        --) shift && break ;;
        --arch | --output | --limit | --nccl | --programs)
            [ $# -ge 2 ] || fail "$1 needs a value" 2
            case "$1" in
                --arch) arch=$2 ;;
                --output) output=$2 ;;
                --limit) limit=$2 ;;
                --nccl) nccl=$2 ;;
                --programs) given=$2 ;;
            esac
            shift
            ;;
        *) fail "$1: the options are --arch, --output, --limit, --nccl, --cudnn, --cutlass, --programs and --" 2 ;;
    esac
    shift
done
[[ $limit =~ ^[1-9][0-9]*$ ]] || fail "--limit $limit: MB, please" 2
[ -z "$nccl" ] || [ -e "$nccl/libnccl.so.2" ] || fail "--nccl $nccl: there is no libnccl.so.2" 2
[ -z "$given" ] || [ -d "$given" ] || fail "--programs $given: there is no such folder" 2

build_dir=${VOCABPIPE_BUILD_DIR:-build-bundle}
mkdir -p "$output"
stage=$(mktemp -d)
trap 'rm -rf "$stage" "$output/gpu_bundle.tar.xz.$$"' EXIT

version_in() { # header, macros of the major number, minor, patch
    [ -f "$1" ] || return 0
    sed -n "s/^#define $2 *\([0-9]*\).*/\1/p; s/^#define $3 *\([0-9]*\).*/\1/p; s/^#define $4 *\([0-9]*\).*/\1/p" "$1" |
        paste -sd.
}

cached() { # CMake variable
    local cache=$build_dir/CMakeCache.txt
    [ -f "$cache" ] || return 0 # programs that were given
    sed -n "s/^$1:[A-Z]*=//p" "$cache"
}

# The CPU is another one there, too. Attention is our own kernels', so that the first results depend on
# no further library, and products are cuBLASLt's, one by one; --cudnn and --cutlass bring the others.
# One folder for all: few objects differ.
build() { # ON or OFF for cuDNN and for CUTLASS, targets, CMake arguments
    local with_cudnn=$1 with_cutlass=$2 targets=$3
    shift 3
    cmake -G Ninja -B "$build_dir" -DVOCABPIPE_ENABLE_CUDA=ON -DVOCABPIPE_CUDA_ARCHITECTURES="$arch" \
        -DVOCABPIPE_ENABLE_CUDNN="$with_cudnn" -DVOCABPIPE_ENABLE_CUTLASS="$with_cutlass" \
        -DVOCABPIPE_ENABLE_MPI=OFF -DVOCABPIPE_NATIVE=OFF \
        -DVOCABPIPE_BUILD_TESTS=ON -DVOCABPIPE_BUILD_BENCHMARKS=ON -DVOCABPIPE_BUILD_EXAMPLES=OFF \
        -DVOCABPIPE_INSTALL=OFF "$@"
    # shellcheck disable=SC2086
    cmake --build "$build_dir" --target $targets
}

programs=(gpu_probe gpu_ceilings vocabpipe train_gpt bench_vocab_cuda bench_experts bench_step bench_comm
    bench_overlap cuda_kernels_test cuda_real_shapes_test cuda_equality_test cuda_step_test cuda_training_test
    cuda_tensor_ranks_test cuda_expert_ranks_test cuda_nccl_test cuda_links_test)
mkdir -p "$stage/bin" "$stage/lib"
if [ -n "$given" ]; then
    cp "$given"/* "$stage/bin/"
else
    if [ $cudnn = 1 ]; then
        build ON OFF "cuda_kernels_test bench_step" "$@"
        mkdir -p "$stage/cudnn/bin"
        cp "$build_dir/bin/cuda_kernels_test" "$build_dir/bin/bench_step" "$stage/cudnn/bin/"
        cudnn_version=$(version_in "$(cached CUDNN_INCLUDE_DIR)/cudnn_version.h" CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL)
    fi
    if [ $cutlass = 1 ]; then
        grouped=(cuda_kernels_test cuda_real_shapes_test bench_experts)
        build OFF ON "${grouped[*]}" "$@"
        mkdir -p "$stage/cutlass/bin"
        cp "${grouped[@]/#/$build_dir/bin/}" "$stage/cutlass/bin/"
        cutlass_version=$(version_in "$(cached CUTLASS_INCLUDE_DIR)/cutlass/version.h" CUTLASS_MAJOR CUTLASS_MINOR CUTLASS_PATCH)
    fi
    build OFF OFF cuda_programs "$@"
    cp "${programs[@]/#/$build_dir/bin/}" "$stage/bin/"
fi

is_elf() { [ "$(head -c 4 "$1" | tail -c 3)" = ELF ]; }

# What every Linux with a compiler has, the driver's library, and CUDA's large ones, which the other
# machine must have. cuDNN loads its parts by itself, so its first library alone would be of no use.
left_there='^(linux-vdso|ld-linux|libc\.|libm\.|libdl\.|libpthread\.|librt\.|libresolv\.|libstdc\+\+|libgcc_s)'
left_there="$left_there|^(libcuda\.|libcublas|libnccl|libcudnn|libnvrtc|libnvJitLink)"
elves=()
for file in "$stage"/bin/* "$stage"/cudnn/bin/* "$stage"/cutlass/bin/*; do
    if [ -f "$file" ] && is_elf "$file"; then elves+=("$file"); fi
done
[ ${#elves[@]} -gt 0 ] || fail "there are no programs to pack" 1
while read -r name path; do
    [[ $name =~ $left_there ]] && continue
    [ -e "$path" ] || fail "$name, which a program needs, is not found" 1
    cp -L "$path" "$stage/lib/$name"
done < <(ldd "${elves[@]}" | awk '$2 == "=>" { print $1, ($3 == "not" ? "-" : $3) }' | sort -u)
strip --strip-all "${elves[@]}" "$stage"/lib/*
if [ -n "$nccl" ]; then
    mkdir -p "$stage/nccl"
    cp -L "$nccl/libnccl.so.2" "$stage/nccl/"
fi
cat README.md docs/*.md >"$stage/text.txt"

# --- the manifest

newest() { # prefix of symbol versions, such as GLIBC_
    objdump -T "${elves[@]}" "$stage"/lib/* 2>/dev/null | grep -o "$1[0-9.]*" | sort -uV | tail -n 1
}

cuda=$(cached CUDAToolkit_INCLUDE_DIR)
[ -n "$cuda" ] || cuda=/usr/local/cuda/include
{
    echo "commit: $(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo '+changes')"
    echo "built for: ${given:+programs of $given }$arch"
    [ -n "$given" ] || echo "built against: nvcc $("$(cached CMAKE_CUDA_COMPILER)" --version |
        sed -n 's/.*V\([0-9.]*\)$/\1/p'), NCCL $(version_in "$(cached NCCL_INCLUDE_DIR)/nccl.h" NCCL_MAJOR NCCL_MINOR NCCL_PATCH), cuBLAS(Lt) $(
        version_in "$cuda/cublas_api.h" CUBLAS_VER_MAJOR CUBLAS_VER_MINOR CUBLAS_VER_PATCH), cuDNN $cudnn_version, CUTLASS $cutlass_version"
    echo "needs: $(newest GLIBC_), $(newest GLIBCXX_); not packed: $(
        ldd "${elves[@]}" | awk '$2 == "=>" { print $1 }' | sort -u | grep -E "$left_there" | paste -sd' ')"
} >"$stage/manifest.txt"

# The programs hold much of the same code: a window over all of them halves what -9 makes of them.
bundle=$output/gpu_bundle.tar.xz
tar -C "$stage" --owner=0 --group=0 -cf - . | XZ_OPT=${XZ_OPT:---lzma2=preset=2,dict=256MiB} xz -T1 >"$bundle.$$"
size=$(stat -c %s "$bundle.$$")
echo
cat "$stage/manifest.txt"
(cd "$stage" && find . -type f -printf '%10s  %P\n' | sort -k 2)
if [ "$size" -gt $((limit * 1000000)) ]; then
    rm -f "$bundle.$$"
    fail "the bundle would be $((size / 1000000)) MB, more than --limit $limit MB" 1
fi
mv "$bundle.$$" "$bundle"
awk -v size="$size" -v bundle="$bundle" 'BEGIN { printf "%s: %.1f MB\n", bundle, size / 1e6 }'
