# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Part of gpu.sh: what it runs, part_NAME, and the rows of the table that follow from the logs, rows_NAME.
# shellcheck disable=SC2154,SC2034  # variables of gpu.sh

row() { # what, measured, asked, ratio
    echo "| $1 | $2 | $3 | $4 |"
}

tests_row() { # log, what
    local verdict
    verdict=$(verdict_of_tests "$1")
    [ -z "$verdict" ] || row "$2" "$verdict" "all pass" ""
}

# What bounds the rest.
part_ceilings() {
    attempt ceilings 60 "$programs/bin/gpu_ceilings"
}

rows_ceilings() {
    [ -e "$work/ceilings.log" ] || return 0
    sed -n 's/^copy GB\/s: /| copy within the GPU, bytes read and written, GB\/s | /p
        s/^product TFLOP\/s: /| 8192 x 8192 x 8192 in bf16, TFLOP\/s | /p' "$work/ceilings.log" | sed 's/$/ | ceiling | |/'
}

part_kernels() {
    attempt_tests kernels 150 2 '*' "$programs/bin/cuda_kernels_test"
}

rows_kernels() { tests_row kernels "operators against fp64"; }

# References are computed on all cores.
part_shapes() {
    test_threads=$(nproc) attempt_tests shapes 90 1 '*' "$programs/bin/cuda_real_shapes_test"
}

rows_shapes() { tests_row shapes "operators at the shapes of training, sampled"; }

# 128256 rows are those for which others have published times.
part_vocab() {
    local rows=16384,32768,128256
    [ "$quick" = 1 ] && rows=16384
    attempt vocab 90 "$programs/bin/bench_vocab_cuda" --rows $rows
    [ "$quick" = 1 ] || attempt vocab-untimed 90 "$programs/bin/bench_vocab_cuda" --rows $rows --untimed-products
}

rows_vocab() {
    vocab_rows vocab ""
    vocab_rows vocab-untimed "untimed products, "
}

vocab_rows() { # log, prefix of the rows
    [ -e "$work/$1.log" ] || return 0
    grep -v '^#' "$work/$1.log" | awk -v prefix="$2" 'NF == 12 {
        printf "| " prefix "S and T, v = %s | %s of %s TFLOP/s | %s | %s |\n", $1, $9, $3, $1 < 32768 ? "0.92" : "0.95", $10
        if (prefix == "") printf "| memory of S and T over the exp_logits, v = %s | %s | 1.25 | |\n", $1, $11
        if ($1 == 128256) printf "| " prefix "S to T, v = %s | %s ms | 18.3 ms | %.2f |\n", $1, $8, 18.3 / $8
        if ($1 < 32768) next
        of_a_row = $8 / $1
        if (!least || of_a_row < least) least = of_a_row
        if (of_a_row > most) most = of_a_row
        if (!first) first = $1
        last = $1 }
        END { if (last != first)
            printf "| " prefix "time per row, v = %s to %s, most over least | %.3f | 1.02 | |\n", first, last, most / least }'
}

# Initial values are made on all cores.
bench_step() { # name, seconds, program, flags
    local name=$1 most=$2 program=$3
    shift 3
    attempt "$name" "$most" "$program" --device cuda --dtype bf16 --threads-per-rank "$(nproc)" "$@"
}

part_step() {
    bench_step step-gpt2-124m 90 "$programs/bin/bench_step" --model gpt2-124m
}

part_large() {
    [ "$quick" = 1 ] || bench_step large-gpt2-1.5b 150 "$programs/bin/bench_step" --model gpt2-1.5b --steps 4
}

# Where a step's time goes: every kernel of the first steps of one microbatch, one at a time, as Nsight
# Compute times them.
part_profile() {
    if ! command -v ncu >/dev/null; then
        skip "time per kernel" "ncu not found; it comes with the CUDA toolkit (nsight-compute)"
        return 0
    fi
    profile "$programs/bin" own
    [ ! -d "$programs/cudnn/bin" ] || profile "$programs/cudnn/bin" cudnn
}

profile() { # folder of programs, whose attention
    rm -f "$work/profile-$2.csv.log"
    attempt "profile-$2" 45 ncu --clock-control none --metrics gpu__time_duration.sum --print-units base --csv \
        --log-file "$work/profile-$2.csv.log" --launch-count 1200 \
        "$1/bench_step" --device cuda --dtype bf16 --model gpt2-124m --microbatches 1 --steps 1 --untimed-products
    kernel_times "$work/profile-$2.csv.log" | tee "$work/profile-$2-kernels.log" | head -n 25
}

# Sums, counts and means per kernel, the largest sum first.
kernel_times() { # csv of ncu
    awk -F'","' '/gpu__time_duration/ { ns = $NF; gsub(/[",]/, "", ns); name = $5; sum[name] += ns; ++count[name]; all += ns }
        END { for (name in sum)
            printf "%5.1f %% %9.3f ms %5d x %9.1f us  %s\n", 100 * sum[name] / all, sum[name] / 1e6, count[name],
                sum[name] / count[name] / 1e3, substr(name, 1, 160) }' "$1" 2>/dev/null | sort -rn
}

rows_profile() {
    local whose
    for whose in own cudnn; do
        [ -s "$work/profile-$whose-kernels.log" ] || continue
        head -n 12 "$work/profile-$whose-kernels.log" | tr '|' '/' | awk -v whose=$whose '{
            share = $1; count = $5; mean = $7; $1 = $2 = $3 = $4 = $5 = $6 = $7 = $8 = ""
            gsub(/^ +/, "")
            printf "| kernel (%s attention): %s | %s %%, %d launches of %s us | | |\n", whose, $0, share, count, mean }'
    done
}

rows_step() { step_rows step ""; }
rows_large() { step_rows large ""; }

# An H100 and an H200 do 989 TFLOP/s of bf16 by their data sheet.
step_rows() { # prefix of the logs, prefix of the rows
    local log peak=0
    [[ $smi =~ H[12]00 ]] && peak=989
    for log in "$work/$1"-gpt2-*.log; do
        [ -e "$log" ] || continue
        grep -v '^#' "$log" | awk -v model="$(basename "$log" .log | sed "s/^$1-//")" -v prefix="$2" -v peak=$peak 'NF == 10 {
            printf "| %sstep, %s, %s: %.0f ms (%.0f on the GPU), %.0f tokens/s | %.1f of %.1f TFLOP/s | %s | %s |\n",
                prefix, model, $1, $2, $3, $4, $5 / 1e3, $6 / 1e3, $9, $7
            aim = model == "gpt2-124m" ? 0.45 : 0.55
            if (peak) printf "| %sMFU, of %d TFLOP/s, %s | %.3f | %.2f | %.2f |\n", prefix, peak, model,
                $5 / 1e3 / peak, aim, $5 / 1e3 / peak / aim }'
        sed -n "s/^# products: \(.* by cuBLASLt.*\)/| $2$(basename "$log" .log | sed "s/^$1-//"), computed by | products: \1 | no fallback | |/p" "$log"
    done
}

# Deadlines and memory are measured in some: those have the GPU for themselves.
part_tests() {
    attempt_tests test-equality 150 4 '*' "$programs/bin/cuda_equality_test"
    attempt_tests test-step 120 1 '*' "$programs/bin/cuda_step_test"
    attempt_tests test-training 120 1 '*' "$programs/bin/cuda_training_test"
    attempt_tests test-tensor 150 4 '*' "$programs/bin/cuda_tensor_ranks_test"
    attempt_tests test-experts 150 4 '*' "$programs/bin/cuda_expert_ranks_test"
}

rows_tests() {
    tests_row test-step "steps and faults"
    tests_row test-equality "every schedule has the bits of one rank"
    tests_row test-training "training follows the host"
    tests_row test-tensor "tensor ranks have the bits of a team that blocks"
    tests_row test-experts "expert ranks have the bits of a team that blocks"
}

# The largest distance of two loss curves, relative to the first one's loss.
loss_distance() { # metrics of the host, of the GPU
    paste <(sed 's/.*"loss":\([^,}]*\).*/\1/' "$1") <(sed 's/.*"loss":\([^,}]*\).*/\1/' "$2") | awk '
        NF != 2 || $1 + 0 <= 0 || $2 + 0 <= 0 { wrong = 1; next }
        { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > worst) worst = d }
        END { if (wrong || NR == 0) print "nan"; else printf "%.2e\n", worst }'
}

loss_bound=1e-4 # fp32, so that only the order of sums differs: benchmarks/results/h200.md, "Loss curve on GPUs"

compare_losses() { # ranks
    local distance
    distance=$(loss_distance "$work/loss-host.jsonl" "$work/loss-cuda-$1.jsonl")
    echo "largest difference of the loss over $(wc -l <"$work/loss-host.jsonl") steps: $distance of it, bound $loss_bound"
    awk -v d="$distance" -v b="$loss_bound" 'BEGIN { exit !(d != "nan" && d + 0 <= b + 0) }'
}

train() { # name, flags
    local name=$1 steps=50
    shift
    [ "$quick" = 1 ] && steps=20
    [ -n "$(ended_with "$name")" ] || rm -f "$work/$name.jsonl"
    attempt "$name" 90 "$programs/bin/train_gpt" --data-path "$work/text" --vocab-size 257 --num-layers 4 \
        --hidden-size 128 --num-attention-heads 4 --seq-length 128 --dtype fp32 \
        --micro-batch-size 2 --global-batch-size 16 --train-iters $steps --lr 1e-3 \
        --lr-warmup-iters 5 --log-interval 10 --transport threads --metrics "$work/$name.jsonl" "$@"
}

part_loss() {
    local ranks ranks_tried="1 2" text=$programs/text.txt
    [ "$quick" = 1 ] && ranks_tried="2"
    if [ ! -e "$text" ]; then
        text=$work/text.txt
        cat README.md docs/*.md >"$text"
    fi
    [ -e "$work/text.bin" ] || sed -i '/^[a-z]* loss data/d' "$work/state" # the logs do not bring it along
    attempt data 60 "$programs/bin/vocabpipe" data prepare --input "$text" --output "$work/text" \
        --tokenizer bytes || return
    train loss-host --ranks 1 || return
    for ranks in $ranks_tried; do
        train "loss-cuda-$ranks" --device cuda --ranks "$ranks" &&
            attempt "loss-compared-$ranks" 10 compare_losses "$ranks"
    done
    # The step of part step again, with data, metrics and losses that the host reads, and the same products.
    local choices with=()
    choices=$(sed -n 's/^# products: [0-9]* shapes from \(.*\), [0-9]* timed now.*/\1/p' "$work/step-gpt2-124m.log" 2>/dev/null)
    [ ! -e "$choices" ] || with=(--product-choices "$choices")
    [ "$quick" = 1 ] || attempt training-gpt2-124m 90 "$programs/bin/train_gpt" --data-path "$work/text" \
        --vocab-size 50257 --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 \
        --dtype bf16 --micro-batch-size 16 --global-batch-size 64 --train-iters 25 --lr 1e-4 --log-interval 1 \
        --transport threads --device cuda --ranks 1 --metrics "$work/training-gpt2-124m.jsonl" "${with[@]}"
}

rows_loss() {
    local ranks
    for ranks in 1 2 4; do
        [ -e "$work/loss-compared-$ranks.log" ] || continue
        sed -n 's/^largest .* over \([0-9]*\) steps: \([^ ]*\) of it.*/\1 \2/p' "$work/loss-compared-$ranks.log" |
            awk -v b=$loss_bound -v ranks="$ranks" '{
                printf "| loss, fp32, %d ranks on a GPU against the host, %d steps | %s apart | <= %s | %.2f |\n",
                    ranks, $1, $2, b, $2 / b }'
    done
    overheads_row
}

# Medians: of train_gpt's steps but the first five, and of bench_step's.
overheads_row() {
    local metrics=$work/training-gpt2-124m.jsonl bare
    [ -e "$metrics" ] && [ -e "$work/step-gpt2-124m.log" ] || return 0
    bare=$(grep -v '^#' "$work/step-gpt2-124m.log" | awk '$1 == "bf16" && NF == 10 { print $2 }')
    sed -n 's/.*"step_seconds":\([^,}]*\).*/\1/p' "$metrics" | tail -n +6 | sort -g |
        awk -v bare="$bare" '{ seconds[NR] = $1 }
            END { if (NR && bare) { ms = 1e3 * seconds[int((NR + 1) / 2)]
                printf "| training step, gpt2-124m: %.1f ms with data, metrics and losses, %.1f without | %.3f | 1.02 | |\n",
                    ms, bare, ms / bare } }'
}

part_copies() {
    local last=64M
    [ "$quick" = 1 ] && last=4M
    attempt comm-copies 60 "$programs/bin/bench_comm" --transport copies --ranks 2 -b 8 -e $last -f 8
}

rows_copies() { comm_rows comm-copies "copies, 2 ranks"; }

# Latency from the smallest message, bandwidth from the largest one.
comm_rows() { # log, label
    [ -e "$work/$1.log" ] || return 0
    awk -v label="$2" '
        /^# (sendrecv|broadcast|all_gather|all_to_all|gather)$/ { operation = $2; first = 1; next }
        /^#/ || NF != 9 { next }
        first { latency[operation] = $6; order[++count] = operation; first = 0 }
        { bandwidth[operation] = $8; bytes[operation] = $1 }
        END { for (i = 1; i <= count; ++i) { o = order[i]
            printf "| %s, %s | %s us, bus %s GB/s at %d MiB | reported | |\n", label, o, latency[o],
                bandwidth[o], bytes[o] / 1048576 } }' "$work/$1.log"
}

# Kernels are loaded before any of several ranks spins in one.
with_nccl() { # library path, command...
    local path=$1
    shift
    LD_LIBRARY_PATH=$path CUDA_MODULE_LOADING=EAGER "$@"
}

part_nccl() {
    local path=${nccl_folder:+$nccl_folder:}$LD_LIBRARY_PATH last=64M
    [ "$quick" = 1 ] && last=4M
    # Making, dividing and ending communicators needs no second rank.
    LD_LIBRARY_PATH=$path attempt_tests nccl-alone 60 1 '*NcclRanks*/0' "$programs/bin/cuda_nccl_test"
    if [ "$gpu_count" -lt 2 ]; then
        nccl_on_one_gpu "$path"
        return
    fi
    with_nccl "$path" attempt_tests nccl 90 1 '*' "$programs/bin/cuda_nccl_test"
    with_nccl "$path" attempt comm-nccl 60 "$programs/bin/bench_comm" --transport nccl \
        --ranks "$gpu_count" -b 8 -e $last -f 8
    if mpi_is_here && [ "$build" = 1 ]; then
        with_nccl "$path" attempt comm-nccl-mpi 60 mpirun -np "$gpu_count" \
            "$programs/bin/bench_comm" --transport nccl -b 8 -e $last -f 8
    fi
    overlap_of_gpus "$path"
}

# What tensor ranks exchange, beside their products: by pieces and all at once. Products of 8192 rows take
# milliseconds.
overlap_of_gpus() { # library path
    local sizes=(--rows 8192 --inner 4096 --columns 4096)
    [ "$quick" = 1 ] && sizes=()
    with_nccl "$1" attempt_tests links 90 1 '*' "$programs/bin/cuda_links_test"
    with_nccl "$1" attempt overlap 60 "$programs/bin/bench_overlap" --link nccl --ranks "$gpu_count" "${sizes[@]}"
    if mpi_is_here && [ "$build" = 1 ]; then
        with_nccl "$1" attempt overlap-mpi 60 mpirun -np "$gpu_count" \
            "$programs/bin/bench_overlap" --link nccl "${sizes[@]}"
    fi
}

overlap_rows() { # log, label
    [ -e "$work/$1.log" ] || return 0
    grep -v '^#' "$work/$1.log" | awk -v label="$2" 'NF == 10 {
        printf "| %s, %s, %d pieces: compute %.0f us, link %.0f, blocking %.0f, overlapped %.0f | %s hidden, %d wrong | > 1 | %.2f |\n",
            label, $1, $3, $5, $6, $7, $8, $9, $10, $7 / $8 }'
}

# Two ranks, threads of one process, on one GPU, which NCCL has let them share since 2.30. Its implicit
# order of launches is one per GPU and process, and an error where two threads use it; every stream gets
# a hardware queue of its own, or a rank would wait behind the other's receive; modules are loaded before
# any kernel spins.
nccl_on_one_gpu() { # library path
    local version
    version=$(LD_LIBRARY_PATH=$1 timeout 60 "$programs/bin/gpu_probe" | sed -n 's/^nccl: //p')
    echo "$version" >"$work/nccl-version.log"
    if [ "$(printf '%s\n' 2.30 "$version" | sort -V | head -n 1)" != 2.30 ]; then
        skip "NCCL, 2 ranks of one GPU" "needs NCCL 2.30 or newer, $([ -n "$nccl_folder" ] &&
            echo "that in $nccl_folder is" || echo "and no --nccl FOLDER was given; this machine's is") ${version:-unknown}"
        return 0
    fi
    local environment=(env LD_LIBRARY_PATH="$1" NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_LAUNCH_ORDER_IMPLICIT=0
        CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER NCCL_DEBUG=WARN)
    attempt_tests nccl 90 1 '*' "${environment[@]}" "$programs/bin/cuda_nccl_test"
    attempt_tests nccl-equality 90 1 '*/1f1b_*_p2_nccl:*/zb_h1_*_p2_nccl:*/v_half_*_p2_nccl' "${environment[@]}" \
        "$programs/bin/cuda_equality_test"
}

rows_nccl() {
    tests_row nccl-alone "NCCL with one rank: communicators made, divided, ended"
    if [ "${gpu_count:-1}" -gt 1 ]; then
        tests_row nccl "NCCL's transport"
    else
        tests_row nccl "NCCL's transport, 2 ranks of one GPU, NCCL $(cat "$work/nccl-version.log" 2>/dev/null)"
    fi
    tests_row nccl-equality "schedules over NCCL, 2 ranks of one GPU, have the bits of one rank"
    comm_rows comm-nccl "NCCL, ${gpu_count:-} ranks"
    comm_rows comm-nccl-mpi "NCCL under mpirun, ${gpu_count:-} ranks"
    tests_row links "tile links"
    overlap_rows overlap "overlap over NCCL, ${gpu_count:-} ranks"
    overlap_rows overlap-mpi "overlap over NCCL under mpirun, ${gpu_count:-} ranks"
}

# Has a table of its own.
part_peers() {
    if [ "$quick" = 1 ]; then
        skip "PyTorch" "not with --quick"
    elif ! python3 -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; then
        skip "PyTorch" "python3 has none"
    else
        attempt peers 170 benchmarks/gpu_peers.sh --programs "$(absolute_folder "$programs")" \
            --logs "$(absolute_folder "$work")" --budget 150
    fi
}

absolute_folder() { (cd "$1" && pwd); }

rows_peers() { :; }

# Kernels of our own: the libraries' are many, slow to check, and not ours to mend.
sanitize() { # tool
    if [ "$quick" = 1 ]; then
        skip "compute-sanitizer $1" "not with --quick"
    elif ! command -v compute-sanitizer >/dev/null; then
        skip "compute-sanitizer $1" "not found; it comes with the CUDA toolkit (cuda-sanitizer-<version>)"
    else # its exit code tells its own findings from the program's
        attempt_tests "$1" 150 4 '*-*Gemm*:*Linear*:*Product*' compute-sanitizer --tool "$1" --error-exitcode 9 \
            --kernel-name kns=vocabpipe "$programs/bin/cuda_kernels_test"
    fi
}

# What compute-sanitizer counted in each shard.
sanitizer_row() { # tool
    local counts
    counts=$(cat "$work/$1".shard*.log 2>/dev/null | sed -n 's/^=* *\(ERROR\|RACECHECK\) SUMMARY: //p' |
        sort | uniq -c | awk '{ $1 = $1 " x"; print }' | paste -sd';')
    [ ! -e "$work/$1.shard0.log" ] || row "compute-sanitizer $1, kernels of ours, by process" "${counts:-no result}" "0 errors" ""
}

part_memcheck() { sanitize memcheck; }
part_racecheck() { sanitize racecheck; }
rows_memcheck() { sanitizer_row memcheck; }
rows_racecheck() { sanitizer_row racecheck; }

# The same kernels with cuDNN's attention, where the bundle brings such programs.
part_cudnn() {
    local bin=$programs/cudnn/bin lacking
    if [ ! -d "$bin" ]; then
        skip "attention by cuDNN" "the bundle has no programs with it (gpu_bundle.sh --cudnn)"
        return 0
    fi
    lacking=$(ldd "$bin/bench_step" 2>/dev/null | awk '/not found/ { print $1 }' | paste -sd' ')
    if [ -n "$lacking" ]; then
        skip "attention by cuDNN" "this machine lacks $lacking"
        return 0
    fi
    attempt_tests cudnn-kernels 90 2 '*Attention*' "$bin/cuda_kernels_test"
    bench_step cudnn-gpt2-124m 90 "$bin/bench_step" --model gpt2-124m
    [ "$quick" = 1 ] && return
    bench_step cudnn-free-gpt2-124m 90 "$bin/bench_step" --model gpt2-124m --nondeterministic-attention
    bench_step cudnn-gpt2-1.5b 120 "$bin/bench_step" --model gpt2-1.5b --steps 4
    bench_step cudnn-free-gpt2-1.5b 120 "$bin/bench_step" --model gpt2-1.5b --steps 4 --nondeterministic-attention
}

rows_cudnn() {
    tests_row cudnn-kernels "attention by cuDNN against fp64"
    step_rows cudnn "cuDNN, "
    step_rows cudnn-free "cuDNN, non-deterministic, "
}

# One by one; and in one launch, where the bundle brings programs that can.
part_experts() {
    local bin=$programs/cutlass/bin
    attempt experts 60 "$programs/bin/bench_experts" --device cuda
    if [ ! -d "$bin" ]; then
        skip "grouped products by CUTLASS" "the bundle has no programs with it (gpu_bundle.sh --cutlass)"
        return 0
    fi
    attempt_tests cutlass-kernels 60 2 '*Grouped*' "$bin/cuda_kernels_test"
    test_threads=$(nproc) attempt_tests cutlass-shapes 90 1 '*Experts*' "$bin/cuda_real_shapes_test"
    attempt cutlass-experts 60 "$bin/bench_experts" --device cuda
}

rows_experts() {
    expert_rows experts ""
    tests_row cutlass-kernels "grouped products by CUTLASS against fp64"
    tests_row cutlass-shapes "a layer of experts at the shapes of training, products by CUTLASS"
    expert_rows cutlass-experts "by CUTLASS, "
}

expert_rows() { # log, prefix of the rows
    [ -e "$work/$1.log" ] || return 0
    awk -v prefix="$2" '!/^#/ && NF == 6 && $2 == "bf16" {
        printf "| %sgrouped products, 64 experts of 256 rows, %s, %s | %.0f of %.0f TFLOP/s | 0.6 | %s |\n",
            prefix, $1, $3, $5 / 1e3, $4 / 1e3, $6 }' "$work/$1.log"
    sed -n "s/^# products: \(.*\)/| $2grouped products, computed by | products: \1 | no fallback | |/p" "$work/$1.log"
}

# Names of what failed, of programs that can be run again.
failed_programs() {
    local name
    awk '$1 == "end" && $4 != 0 && $2 != "diagnosis" { print $3 }' "$work/state" | while read -r name; do
        if [ -e "$work/$name.command" ]; then echo "$name"; fi
    done
}

in_file_name() { tr -c 'A-Za-z0-9_\n' _ <<<"$1"; }

# A test that failed, alone: with launches that end before the next one begins, and an error's operator,
# kernel and shape; then under the sanitizer.
part_diagnosis() {
    local name test command run=()
    for name in $(failed_programs); do
        command=$(cut -d' ' -f2- "$work/$name.command")
        case "$command" in *compute-sanitizer*) continue ;; esac
        read -ra run <<<"$command"
        while read -r test; do
            shown_lines=20 attempt_tests "alone-$name-$(in_file_name "$test")" 20 1 "$test" \
                env CUDA_LAUNCH_BLOCKING=1 VOCABPIPE_SYNCHRONOUS=1 "${run[@]}"
            if command -v compute-sanitizer >/dev/null; then
                shown_lines=20 attempt_tests "sanitized-$name-$(in_file_name "$test")" 20 1 "$test" \
                    compute-sanitizer --error-exitcode 9 "${run[@]}"
            fi
        done < <(failed_tests "$name" | head -n "${diagnosed:-4}")
    done
}

# What a failed test said, alone and before.
rows_diagnosis() {
    local name test said alone
    for name in $(failed_programs); do
        while read -r test; do
            alone=alone-$name-$(in_file_name "$test")
            said=$(why_it_failed "$alone" "$test")
            [ -n "$said" ] || said=$(why_it_failed "$name" "$test")
            case "$(verdict_of_tests "$alone")" in "1 passed"*) said="passes alone; $said" ;; esac
            row "$test" "FAILED: ${said:-no more is known}" "passes" ""
        done < <(failed_tests "$name" | head -n 12)
    done
}

# The first lines that matter of a test's part of a log, as one line.
why_it_failed() { # log, test
    cat "$work/$1".shard*.log 2>/dev/null | awk -v test="$2" '
        index($0, "[ RUN      ] " test) == 1 { on = 1; next }
        /^\[  BROKE/ { if (on) print; on = 0 }
        /^\[ RUN|^\[       OK/ { on = 0 }
        on && (/rror/ || /actual|bound|Which|times/)' | grep -v 'Failure$' | head -n 3 | cut -c 1-240 | tr '|\n' '/ '
}

print_table() {
    local part
    echo
    echo "    $command_line"
    echo
    echo "$(date -u +%Y-%m-%d), ${gpu_count:-no} GPU ${smi:-$(of_probe 'gpu 0')}; $machine"
    echo
    echo "commit $(commit_of_programs), $sizes sizes; at run time: driver $(of_probe driver), runtime $(
        of_probe runtime), NCCL $(of_probe nccl), cuBLASLt $(of_probe cublasLt); libraries: ${libraries:-where the loader looks}"
    sed -n 's/^from \(.*\)/some results are of an earlier call, with commit \1/p' "$work/state"
    [ ! -e "$programs/manifest.txt" ] || sed -n 's/^built against: /built against: /p' "$programs/manifest.txt"
    echo
    echo "| what | measured | asked | ratio |"
    echo "|---|---|---|---|"
    gpu_row
    for part in $(printf '%s\n' "${all_parts[@]}" | awk '!seen[$0]++'); do
        "rows_$part"
        sed -n "s/^skip $part \(.*\): \(.*\)/| \1 | SKIPPED: \2 | | |/p" "$work/state"
        # What diagnosis ran has rows above.
        awk -v part="$part" '$1 == "end" && $2 == part && part != "diagnosis" && $4 != 0 {
            printf "| %s | FAILED: %s | exit code 0 | |\n", $3, $4 == 124 || $4 == 137 ? "no end" : "exit code " $4 }' \
            "$work/state"
    done
    [ ${#pending[@]} -eq 0 ] || row "${pending[*]}" "left to the next call" "" ""
    [ ! -e "$work/peers_table.md" ] || cat "$work/peers_table.md"
}

gpu_row() {
    if [ "${gpu_count:-0}" -gt 0 ]; then
        row "GPU" "$(of_probe 'gpu 0' | grep . || echo "$smi")" "works" ""
    else
        row "GPU" "none: $why_no_gpu" "one" ""
    fi
    [ ! -s "$work/missing.log" ] || row "libraries that programs lack" \
        "$(awk '{ print $2 }' "$work/missing.log" | sort -u | paste -sd' ')" "none" ""
}
