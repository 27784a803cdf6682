#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# benchmarks/gpu_bundle.sh and gpu.sh as on a borrowed machine: a root of their own with a shell, its
# usual commands and nothing else; no network; CUDA's libraries as wheels; nvidia-smi as a script; the
# machine gone at any time.
#
#   tests/benchmarks/gpu_offline_test.sh FOLDER     of the programs that the stand-in toolkit runs
#   tests/benchmarks/gpu_offline_test.sh --bundle FILE
#                                                   a real one: starts, finds no GPU, ends with 6
#
# Needs root, or user namespaces. Exit code 0; 1; 77 where neither is allowed.
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
own_root=(unshare --mount --net --pid --fork --kill-child)
[ "$(id -u)" = 0 ] || own_root+=(--map-root-user)
if ! "${own_root[@]}" true 2>/dev/null; then
    echo "SKIPPED: a root of its own needs root or user namespaces"
    exit 77
fi

for command in xz strip objdump; do
    command -v $command >/dev/null || {
        echo "SKIPPED: no $command; examples/install_packages.sh --tests"
        exit 77
    }
done

area=$(mktemp -d)
trap 'rm -rf "$area"' EXIT
root=$area/root

# --- the machine

install_command() { # path of a program: itself and its libraries, where they were
    local file
    for file in "$1" $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*'); do
        [ -e "$root$file" ] || install -D "$(readlink -f "$file")" "$root$file"
    done
}

make_root() {
    local command wheels=$root/usr/local/lib/python3.12/dist-packages/nvidia
    mkdir -p "$root"/{usr/bin,usr/sbin,usr/lib,usr/lib64,tmp,proc,dev,etc,project,output}
    ln -s usr/bin "$root/bin"
    ln -s usr/sbin "$root/sbin"
    ln -s usr/lib "$root/lib"
    ln -s usr/lib64 "$root/lib64"
    for command in bash sh env cat cmp cp mv rm mkdir ls head tail sed awk grep tar gzip xz find date timeout tee \
        sort uniq paste cut tr wc basename dirname touch stat sleep getconf id mktemp nproc; do
        install_command "$(command -v $command)"
    done
    install -D "$(command -v ldd)" "$root/usr/bin/ldd"
    for command in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libstdc++.so.6 libgcc_s.so.1; do
        install -D "$(readlink -f "$(g++ -print-file-name=$command)")" "$root/usr/lib/x86_64-linux-gnu/$command"
    done
    echo 'PRETTY_NAME="A borrowed machine"' >"$root/etc/os-release"
    mkdir -p "$wheels"/{cu13,nccl}/lib
    touch "$wheels/cu13/lib/libcublasLt.so.13" "$wheels/nccl/lib/libnccl.so.2"
    printf '#!/bin/bash\ntouch /apt_was_called\nexit 1\n' >"$root/usr/bin/apt-get"
    printf '#!/bin/bash\nexit 1\n' >"$root/usr/bin/mpirun" # and no headers
    chmod +x "$root/usr/bin/apt-get" "$root/usr/bin/mpirun"
    mkdir "$root/project/docs"
    cp -r "$repository/benchmarks" "$repository/README.md" "$root/project/"
}

lend_gpu() {
    printf '#!/bin/bash\necho "Stand-in H200, 580.1, 9.0, 143771 MiB"\n' >"$root/usr/bin/nvidia-smi"
    chmod +x "$root/usr/bin/nvidia-smi"
}

# Bound files, where real libraries are too large to copy, are `from:to` lines.
bound=()

# In a subshell or the background: this shell becomes the machine, and whoever kills it takes all away.
# shellcheck disable=SC2016  # expanded by the inner shell
in_root() { # command...
    exec "${own_root[@]}" bash -c '
        root=$1
        mount --rbind /dev "$root/dev" && mount -t proc proc "$root/proc" || exit 99
        shift
        while [ "$1" != -- ]; do
            mount --bind "${1%%:*}" "$root${1##*:}" || exit 99
            shift
        done
        shift
        cd / && exec chroot "$root" /bin/bash -c "cd /project && exec \"\$@\"" bash "$@"' \
        bash "$root" "${bound[@]}" -- env -i PATH=/usr/bin HOME=/root OMP_NUM_THREADS=1 "$@"
}

# --- checks

failed() { # what
    grep -n "FAILED\|rror\|exit code [1-9]" "$area/output" | head -n 20 >&2 || true
    tail -n 40 "$area/output" >&2
    cat "$root/output/gpu_table.md" >&2 || true
    echo "FAILED: $1" >&2
    exit 1
}

gpu_sh() { # wanted exit code, arguments
    local wanted=$1 code=0
    shift
    (in_root benchmarks/gpu.sh --no-network --logs /output "$@") >"$area/output" 2>&1 || code=$?
    [ $code = "$wanted" ] || failed "gpu.sh $* ended with $code, not $wanted"
}

says() { # text of the last call's output
    grep -qF -- "$1" "$area/output" || failed "it does not say: $1"
}

table_has() { # pattern
    grep -q -- "$1" "$root/output/gpu_table.md" || failed "the table has no line like: $1"
}

table_has_not() { # pattern
    ! grep -q -- "$1" "$root/output/gpu_table.md" || failed "the table has a line like: $1"
}

make_root
if [ "${1:-}" = --bundle ]; then
    [ $# = 2 ] || { echo "usage: $0 --bundle FILE" >&2; exit 2; }
    cp "$2" "$root/project/gpu_bundle.tar.xz"
    wheels=/usr/local/lib/python3.12/dist-packages/nvidia
    mkdir -p "$root$wheels"/{cudnn,cuda_nvrtc}/lib
    for library in libcublasLt.so.13:cu13 libnccl.so.2:nccl libcudnn.so.9:cudnn libnvrtc.so.13:cuda_nvrtc; do
        [ -e "/usr/local/cuda/lib64/${library%%:*}" ] || continue
        touch "$root$wheels/${library##*:}/lib/${library%%:*}"
        bound+=("$(readlink -f "/usr/local/cuda/lib64/${library%%:*}"):$wheels/${library##*:}/lib/${library%%:*}")
    done
    gpu_sh 6 --bundle gpu_bundle.tar.xz
    cat "$root/output/gpu_table.md"
    says "runtime: CUDA"
    table_has '^| GPU | none: '
    table_has 'libcublasLt.so.13 in /usr/local/lib/python3.12'
    table_has_not 'not found: .*\(libcublasLt\|libnccl\|libcudart\)'
    [ ! -s "$root/project/build-gpu/gpu/missing.log" ] || failed "$(cat "$root/project/build-gpu/gpu/missing.log")"
    if [ -d "$root/project/build-gpu/bundle/cudnn" ]; then
        # They start: GoogleTest's list needs every library that is not loaded later.
        (in_root LD_LIBRARY_PATH="/project/build-gpu/bundle/lib:$(printf "$wheels/%s/lib:" cu13 nccl cudnn cuda_nvrtc)" \
            build-gpu/bundle/cudnn/bin/cuda_kernels_test --gtest_list_tests) >"$area/output" 2>&1 ||
            failed "the programs with cuDNN do not start"
        says "CudaAttention"
    fi
    exit 0
fi

# --- programs of the stand-in under the names of the real ones, with sizes that it can run

stand_in=$(cd "$1" && pwd)
mkdir "$area/programs"
program() { # name, of the stand-in, shell lines before, arguments
    local name=$1 real=$2 before=$3
    shift 3
    cp "$stand_in/$real" "$area/programs/"
    # shellcheck disable=SC2016  # expanded by the program
    printf '#!/bin/bash\n%s\nexec "${0%%/*}/%s" %s\n' "$before" "$real" "$*" >"$area/programs/$name"
    chmod +x "$area/programs/$name"
}
# gpu.sh asks for the list first, and then for tests of it.
tests() { # name, of the stand-in, filter
    program "$1" "$2" "case \" \$* \" in *list_tests*) set -- --gtest_list_tests; export GTEST_FILTER='$3' ;; esac" '"$@"'
}
# shellcheck disable=SC2016  # expanded by the programs
program gpu_probe gpu_probe_on_stand_in '
[ -e /two_gpus ] && export VOCABPIPE_STAND_IN_DEVICES=2
[ -e /broken ] && { echo "gpus: 1"; echo "gpu 0: a GPU, an error that it reports"; exit 1; }
[ -e /dev_without_gpu ] && export VOCABPIPE_STAND_IN_DEVICES=0
case ":$LD_LIBRARY_PATH" in *:/nccl_2.30:*) "${0%/*}/gpu_probe_on_stand_in" | sed "s/^nccl: .*/nccl: 2.30.7/"; exit ;; esac'
cp "$stand_in/vocabpipe" "$area/programs/"
printf '#!/bin/bash\necho "copy GB/s: 4000"\necho "product TFLOP/s: 700"\n' >"$area/programs/gpu_ceilings"
chmod +x "$area/programs/gpu_ceilings"
program bench_experts bench_experts_on_stand_in '' --device cuda --tokens 16 --experts 4 --top-k 2 --hidden-size 16 \
    --ffn-hidden-size 16 --rounds 1
tests cuda_kernels_test cuda_kernels_on_stand_in_test '*Elementwise*'
# A test that passes, one with a wrong value, one that loses its context, one that crashes, and more that pass.
cat >"$area/programs/cuda_real_shapes_test" <<'END'
#!/bin/bash
if [[ " $* " == *list_tests* ]]; then
    printf 'Shapes.\n  Right/0  # GetParam() = "a. b"\n  Last\n'
    [ ! -e /planted ] || printf '  Wrong\n  Lost\n  Crashes\n'
    exit
fi
code=0
for test in Shapes.Wrong Shapes.Lost Shapes.Crashes Shapes.Right/0 Shapes.Last; do
    [[ ":$GTEST_FILTER:" == *":$test:"* ]] || continue
    echo "[ RUN      ] $test"
    case $test in
        *Wrong)
            printf 'real_shapes_test.cpp:1: Failure\nat (0, 2): 1 instead of 2, error 1 missed its bound 0.95 by 1.05 times: dX, N = 4096\n'
            echo "[  FAILED  ] $test (1 ms)"
            code=1
            continue
            ;;
        *Lost)
            [ -z "$VOCABPIPE_SYNCHRONOUS" ] ||
                echo 'error: operator layer_norm_forward (layer_norm.cu:88), kernel layer_norm_kernel, grid 4096: cudaErrorIllegalAddress'
            printf '[  FAILED  ] %s (1 ms)\nsticky CUDA error after %s: cudaErrorIllegalAddress\n' "$test" "$test"
            exit 99
            ;;
        *Crashes) kill -SEGV $$ ;;
    esac
    echo "[       OK ] $test (1 ms)"
done
echo '[==========] tests ran.'
exit $code
END
chmod +x "$area/programs/cuda_real_shapes_test"
tests cuda_equality_test cuda_equality_on_stand_in_test '*/1f1b_*_p2_*'
tests cuda_step_test cuda_step_on_stand_in_test '*Timeline*'
tests cuda_training_test cuda_training_on_stand_in_test '*EndsAfterTheStep*:*WithoutACountedToken*'
tests cuda_nccl_test nccl_transport_test 'NcclPair.*:NcclRanks.PreparingTwice*'
tests cuda_links_test cuda_tile_link_test '*RefusesWhatDoesNotFit*:*DoNotDisturb*'
tests cuda_tensor_ranks_test cuda_tensor_ranks_on_stand_in_test '*/zb_h1_*_p1_d1_t2_*'
tests cuda_expert_ranks_test cuda_expert_ranks_on_stand_in_test '*/zb_h1_*_p1_d2_t1_*'
# Two more lines, as a GPU might print them, for rows that no stand-in can run.
# shellcheck disable=SC2016
program bench_vocab_cuda bench_vocab_on_stand_in 'echo run >>/vocab_runs
[ "$2" = 16384,32768,128256 ] &&
    printf "%s\n" "32768 4.5 718 4.6 1.5 1 3 4.75 680 0.947 1.1 0" "128256 18 718 18.5 6 1 12 19 680 0.947 1.1 0"' --tokens 8 --hidden-size 16 --rows 24 --rounds 2
program bench_step bench_step_on_stand_in '' --device cuda --num-layers 1 --hidden-size 32 --num-attention-heads 2 \
    --seq-length 8 --vocab-size 61 --micro-batch-size 1 --microbatches 2 --steps 1
program bench_comm bench_comm_on_stand_in '' --transport copies --ranks 2 -b 8 -e 1M -f 512 -n 2 -w 1
# shellcheck disable=SC2016
program bench_overlap bench_overlap_on_stand_in 'export VOCABPIPE_STAND_IN_DEVICES=2' --link nccl --ranks 2 \
    --pieces 1,2 --rows 128 --inner 16 --columns 16 --rounds 1
# With two ranks it hangs for the first time, so that the machine can be taken away.
# shellcheck disable=SC2016
program train_gpt train_gpt_on_stand_in '
metrics=; ranks=1; device=host; steps=3
while [ $# -gt 0 ]; do
    case "$1" in --metrics) metrics=$2 ;; --ranks) ranks=$2 ;; --device) device=$2 ;; --data-path) data=$2 ;; --seq-length) [ $2 = 1024 ] && steps=8 ;; esac
    shift
done
[ $ranks != 2 ] || [ -e /two_ranks_begun ] || { touch /two_ranks_begun; sleep 1000; }' --data-path '"$data"' --vocab-size 257 --num-layers 4 --hidden-size 16 --num-attention-heads 2 --seq-length 8 \
    --dtype fp32 --micro-batch-size 1 --global-batch-size 4 --train-iters '"$steps"' --lr 1e-3 --transport threads \
    --metrics '"$metrics"' --ranks '"$ranks"' --device '"$device"'

XZ_OPT=-0 "$repository/benchmarks/gpu_bundle.sh" --programs "$area/programs" --output "$area/bundle" \
    --limit 200 >"$area/output" || failed "gpu_bundle.sh"
for library in libsentencepiece libgomp; do says "lib/$library"; done
mkdir "$area/one" && cp "$area/programs/bench_vocab_on_stand_in" "$area/one/"
! XZ_OPT=-0 "$repository/benchmarks/gpu_bundle.sh" --programs "$area/one" --output "$area/bundle" --limit 1 \
    >"$area/output" 2>&1 || failed "gpu_bundle.sh took no notice of its limit"
says "more than --limit 1 MB"
cp "$area/bundle/gpu_bundle.tar.xz" "$root/project/"
given=(--bundle gpu_bundle.tar.xz)

# No GPU: a table that says so.
touch "$root/dev_without_gpu"
gpu_sh 6 "${given[@]}"
says "no GPU"
table_has '^| GPU | none: '
table_has 'libnccl.so.2 in /usr/local/lib/python3.12/dist-packages/nvidia/nccl/lib'
rm "$root/dev_without_gpu"
lend_gpu

# The machine goes in the middle of part loss.
in_root benchmarks/gpu.sh "${given[@]}" --logs /output >"$area/output" 2>&1 &
machine=$!
for ((i = 0; i < 2000; ++i)); do
    [ ! -e "$root/two_ranks_begun" ] || break
    sleep 0.1
done
kill -KILL $machine
wait $machine 2>/dev/null && failed "it was not killed"
table_has '^| GPU | gpu 0\|^| GPU | CUDA stand-in'
table_has '^| copy within the GPU, .* | 4000 | ceiling |'
table_has '^| operators against fp64 | [1-9][0-9]* passed, 0 failed, 0 skipped | all pass'
table_has '^| operators at the shapes of training, sampled | 2 passed, 0 failed, 0 skipped | all pass'
table_has '^| loss, fp32, 1 ranks on a GPU against the host, 3 steps |'
table_has_not '^| loss, fp32, 2 ranks'
# grep -q would end at the first match, and tar of a closed pipe.
tar -tzf "$root/output/gpu_logs.tar.gz" | grep -x ceilings.log >/dev/null ||
    failed "the logs lack ceilings.log"

# Another machine goes on with the logs of the first one.
mkdir "$area/earlier" && tar -xzf "$root/output/gpu_logs.tar.gz" -C "$area/earlier"
# The logs are those of other programs, with which operators failed: these run again, and what passed does not.
sed -i '1s/^of .* /of 0123abcd /; s/^end kernels kernels 0/end kernels kernels 1/' "$area/earlier/state"
tar -czf "$root/project/earlier.tar.gz" -C "$area/earlier" .
rm -rf "$root/project/build-gpu"
gpu_sh 0 "${given[@]}" --continue earlier.tar.gz
says "--- ceilings: exit code 0 in an earlier call"
says "some results are of an earlier call, with commit 0123abcd"
says "all that ran has passed"
table_has '^| S and T, v = 24 |.*| 0.92 |'
table_has '^| S to T, v = 128256 | 19 ms | 18.3 ms | 0.96 |'
table_has '^| time per row, v = 32768 to 128256, most over least | 1.022 | 1.02 |'
table_has '^| MFU, of 989 TFLOP/s, gpt2-124m | 0.000 | 0.45 |'
table_has '^| gpt2-1.5b, computed by | products: [1-9][0-9]* by cuBLASLt, 0 by the tiled kernel'
table_has '^| NCCL with one rank: .* | [1-9][0-9]* passed, 0 failed, 0 skipped | all pass'
table_has '^| grouped products, 64 experts'
table_has '^| loss, fp32, 2 ranks on a GPU against the host, 3 steps |'
table_has '^| training step, gpt2-124m: [0-9.]* ms with data, metrics and losses, [0-9.]* without | [0-9.]* | 1.02 |'
table_has '^| copies, 2 ranks, broadcast |'
table_has '^| NCCL, 2 ranks of one GPU | SKIPPED: needs NCCL 2.30 or newer, and no --nccl FOLDER'
table_has '^| compute-sanitizer memcheck | SKIPPED'
table_has '^| grouped products by CUTLASS | SKIPPED: the bundle has no programs with it (gpu_bundle.sh --cutlass)'
[ "$(wc -l <"$root/vocab_runs")" = 2 ] || failed "part vocab ran again"

# NCCL 2.30: two ranks of one GPU. Parts by name run again.
mkdir "$root/nccl_2.30" && touch "$root/nccl_2.30/libnccl.so.2"
gpu_sh 0 "${given[@]}" --nccl /nccl_2.30 nccl vocab
table_has "^| NCCL's transport, 2 ranks of one GPU, NCCL 2.30.7 | [1-9]"
table_has '^| schedules over NCCL, 2 ranks of one GPU, .* | [1-9][0-9]* passed, 0 failed'
[ "$(wc -l <"$root/vocab_runs")" = 4 ] || failed "part vocab did not run again"

# Two GPUs: what tensor ranks exchange, overlapped.
touch "$root/two_gpus"
gpu_sh 0 "${given[@]}" nccl
table_has "^| NCCL's transport | [1-9]"
table_has '^| tile links | [1-9][0-9]* passed, 0 failed'
table_has '^| overlap over NCCL, 2 ranks, all_gather_gemm, 2 pieces: .* hidden, 0 wrong | > 1 |'
rm "$root/two_gpus"

# A GPU that does not work is a failure.
touch "$root/broken"
gpu_sh 1 "${given[@]}" build
table_has '^| GPU | .*, an error that .* | works |'
says "FAILED probe"
rm "$root/broken"

# Every kind of failure costs its own test, and the table says what failed, where and how.
touch "$root/planted"
gpu_sh 1 "${given[@]}" shapes diagnosis
table_has '^| operators at the shapes of training, sampled | 2 passed, 2 failed, 0 skipped, 2 broke their process | all pass |'
table_has '^| Shapes.Wrong | FAILED: .*missed its bound 0.95 by 1.05 times: dX, N = 4096'
table_has '^| Shapes.Lost | FAILED: .*operator layer_norm_forward .*kernel layer_norm_kernel, grid 4096: cudaErrorIllegalAddress'
table_has '^| Shapes.Crashes | FAILED: .*exit code 139'
says "FAILED shapes"
rm "$root/planted"

# The next call, with programs whose attention is cuDNN's.
mkdir -p "$root/project/build-gpu/bundle/cudnn/bin"
cp "$root/project/build-gpu/bundle/bin/"bench_step* "$root/project/build-gpu/bundle/cudnn/bin/"
# shellcheck disable=SC2016  # expanded by the program
printf '#!/bin/bash\nreal=${0%%/*}/../../bin/cuda_kernels_on_stand_in_test\ncase " $* " in
    *list_tests*) exec "$real" --gtest_list_tests --gtest_filter="*AttentionLaunches*" ;; esac\nexec "$real"\n' \
    >"$root/project/build-gpu/bundle/cudnn/bin/cuda_kernels_test"
chmod +x "$root/project/build-gpu/bundle/cudnn/bin/cuda_kernels_test"
gpu_sh 0 "${given[@]}" shapes kernels cudnn
says "libcudnn.so.9 libnvrtc.so.13"
table_has '^| attention by cuDNN against fp64 | [1-9][0-9]* passed, 0 failed'
table_has '^| cuDNN, MFU, of 989 TFLOP/s, gpt2-1.5b |'

# The next call, with programs whose grouped products are CUTLASS's.
mkdir -p "$root/project/build-gpu/bundle/cutlass/bin"
for name in bench_experts cuda_kernels_test cuda_real_shapes_test; do
    # shellcheck disable=SC2016  # expanded by the program
    printf '#!/bin/bash\n%s\nexec "${0%%/*}/../../bin/%s" "$@"\n' "$(
        [ $name != cuda_kernels_test ] || echo 'case " $* " in *list_tests*) exec "${0%/*}/../../bin/cuda_kernels_on_stand_in_test" \
            --gtest_list_tests --gtest_filter="*GroupedLaunch*" ;; esac')" $name >"$root/project/build-gpu/bundle/cutlass/bin/$name"
    chmod +x "$root/project/build-gpu/bundle/cutlass/bin/$name"
done
gpu_sh 0 "${given[@]}" experts
table_has '^| grouped products by CUTLASS against fp64 | [1-9][0-9]* passed, 0 failed'
table_has '^| by CUTLASS, grouped products, computed by | products: [1-9][0-9]* by cuBLASLt'

# No time left is no failure, a program that fails is.
gpu_sh 0 "${given[@]}" --budget 1 vocab
says "LEFT for the next call: vocab"
rm -f "$root/project/build-gpu/bundle/bin/bench_vocab_on_stand_in"
gpu_sh 1 "${given[@]}"
says "FAILED vocab (exit code 127)"
table_has '^| vocab | FAILED: exit code 127'

# Without a bundle there is nothing to build with, and nobody asks apt.
gpu_sh 1 --again
says "no MPI with headers"
says "something is missing: benchmarks/gpu_bundle.sh"
[ ! -e "$root/apt_was_called" ] || failed "apt was called"
gpu_sh 1 --again --no-build
says "no programs"
gpu_sh 2 --bundle nowhere
echo "all passed ($SECONDS s)"
