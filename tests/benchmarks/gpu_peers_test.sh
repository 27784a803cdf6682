#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# benchmarks/gpu_peers.sh at tiny sizes without a GPU.
#
#   tests/benchmarks/gpu_peers_test.sh FOLDER              of the programs; PyTorch is a script that prints what
#                                                          gpu_peer_torch.py prints, also what must be refused
#   tests/benchmarks/gpu_peers_test.sh FOLDER --with-torch PyTorch on the CPU: nothing but the device is another
#
# Exit code 0; 1; 77 without a Python that has torch: $VOCABPIPE_PEERS_PYTHON, or python3.
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
built=$(cd "$1" && pwd)
python=${VOCABPIPE_PEERS_PYTHON:-python3}
if [ "${2:-}" = --with-torch ] && ! "$python" -c 'import torch' 2>/dev/null; then
    echo "SKIPPED: $python has no torch; VOCABPIPE_PEERS_PYTHON names one that has"
    exit 77
fi

area=$(mktemp -d)
trap 'rm -rf "$area"' EXIT
export XDG_CACHE_HOME=$area/cache
mkdir -p "$area/programs/bin" "$area/programs/cutlass/bin"
for program in train_gpt bench_step bench_experts; do
    ln -s "$built/$program" "$area/programs/bin/$program"
done
ln -s "$built/bench_vocab_on_stand_in" "$area/programs/bin/bench_vocab_cuda"
ln -s "$built/bench_experts" "$area/programs/cutlass/bin/bench_experts"

failed() { # what
    cat "$area/output" >&2
    echo "FAILED: $1" >&2
    exit 1
}

compare() { # wanted exit code, Python, arguments...
    local wanted=$1 with=$2
    shift 2
    run_script "$wanted" --programs "$area/programs" --device cpu --toy --python "$with" "$@"
}

run_script() { # wanted exit code, arguments...
    local wanted=$1 code=0
    shift
    rm -rf "$area/logs"
    "$repository/benchmarks/gpu_peers.sh" --logs "$area/logs" "$@" >"$area/output" 2>&1 || code=$?
    [ $code = "$wanted" ] || failed "gpu_peers.sh $* ended with $code, not $wanted"
    [ ! -e "$area/logs/peers_table.md" ] || tail -n "$(wc -l <"$area/logs/peers_table.md")" "$area/output" |
        cmp - "$area/logs/peers_table.md" || failed "the last output is not the table in the file"
}

table_has() { # pattern
    grep -q -- "$1" "$area/logs/peers_table.md" || failed "the table has no line like: $1"
}

number='[0-9.]\+'
if [ "${2:-}" = --with-torch ]; then
    compare 0 "$python" --budget 250
    table_has "^| S and T, V = 100 | $number / $number | $number (.*) | $number | - | ours 0 wrong; torch $number of log V"
    table_has "^| S and T, V = 24 | $number / $number | $number (.*) | $number | "
    table_has "^| step, toy | $number / $number | $number (.*) | $number | - | ours $number $number $number, torch .* apart by 0\.00"
    table_has 'eager, flash .*compiled by blocks\|compiled by blocks.*eager, flash'
    table_has "^| grouped products of a layer, both directions | $number / $number | $number (grouped_mm) | $number | "
    exit 0
fi

fake() { # name, shell lines that answer a step
    {
        cat <<'END'
#!/bin/bash
result() { printf 'result\t%s\t%s\t%s\t\n' "$@"; }
case "$*" in
    -c*) echo torch 0 && exit ;;
    *" output-layer "*)
        result eager 2e6 5.1
        result "by hand" 1e6 5.1
        printf 'none\tother\tno a;b here\n'
        exit
        ;;
    *" experts "*)
        for i in 1 2 3 4 5 6; do result "product $i" 1e6 -; done
        exit
        ;;
esac
END
        echo "$2"
    } >"$area/$1"
    chmod +x "$area/$1"
}
first='result eager 1e6 "5.5 5.4 5.3"'
fake right "$first; result compiled 5e5 '5.5 5.4 5.305'"
fake wrong "$first; result compiled 5e5 '5.5 5.4 5.32'"
fake not_a_number "$first; result compiled 5e5 '5.5 5.4 nan'"
fake dies 'echo "the last words" >&2; exit 3'
fake hangs "$first; echo \$\$ >'$area/hanging'; exec sleep 1000"
printf '#!/bin/bash\nexit 1\n' >"$area/without_torch"
chmod +x "$area/without_torch"

compare 0 "$area/right"
table_has "^| S and T, V = 100 | $number / $number | 1000000.00 (by hand) | $number | - | ours 0 wrong; torch 5.1 of log V"
table_has "^| step, toy | $number / $number | 500000.00 (compiled) | $number | - | torch 5.5 5.4 5.305, apart by 0.0050, bound 1e-2 | "
table_has 'by hand 1000000.00; eager 2000000.00; other: no a;b here |$'
table_has "^| grouped products of a layer, both directions | $number / $number | 6000000.00 (grouped_mm) | $number | "
table_has "^| the same, all experts in one launch by CUTLASS | $number | 6000000.00 (grouped_mm) | $number | "
compare 1 "$area/wrong" gpt2-124m
table_has '^| step, toy .* WRONG: apart by 0.0200, bound 1e-2'
compare 1 "$area/not_a_number" gpt2-124m
table_has '^| step, toy .* WRONG: apart by nan'
compare 1 "$area/dies" vocab gpt2-124m
table_has '^FAILED: step-toy-torch (exit code 3)$'
table_has "^| step, toy | $number / $number | - | - | - | - |"
table_has '^| S and T, V = 100 | .* (by hand) '
compare 0 "$area/hangs" --budget 30 gpt2-124m # cut off by the budget: what it said counts
table_has "^| step, toy | $number | 1000000.00 (eager) | "
table_has '^No time left for: the rest of step-toy-torch'

# Ended from outside: the table is there, and nothing is left running.
rm "$area/hanging"
"$repository/benchmarks/gpu_peers.sh" --programs "$area/programs" --logs "$area/logs" --device cpu --toy \
    --python "$area/hangs" gpt2-124m >"$area/output" 2>&1 &
script=$!
until [ -s "$area/hanging" ]; do sleep 0.2; done
kill "$script"
code=0
wait "$script" || code=$?
[ $code = 143 ] || failed "gpu_peers.sh ended with $code after SIGTERM"
table_has "^| step, toy | $number | 1000000.00 (eager) | "
table_has '^No time left for: the rest$'
for ((i = 0; i < 50; ++i)); do
    kill -0 "$(cat "$area/hanging")" 2>/dev/null || break
    sleep 0.1
done
! kill -0 "$(cat "$area/hanging")" 2>/dev/null || failed "PyTorch goes on"

compare 77 "$area/without_torch"
compare 2 "$area/right" neither
rm "$area/programs/bin/bench_vocab_cuda"
compare 0 "$area/right" vocab
table_has '^| S and T, V = 100 | - | 1000000.00 (by hand) | - | '

# As on a GPU, with scripts for our programs, too.
mkdir -p "$area/gpu/bin"
script_for() { # program, shell lines
    printf '#!/bin/bash\n%s\n' "$2" >"$area/gpu/bin/$1"
    chmod +x "$area/gpu/bin/$1"
}
script_for gpu_probe 'echo "gpu 0: NVIDIA H100 80GB HBM3, 132 SMs"'
# shellcheck disable=SC2016  # expanded by the programs
script_for bench_vocab_cuda 'shift 5; echo "  $1 19 690 19.5 6 1 13 20.000 640 0.95 1.1 0"'
script_for bench_step '
[[ "$*" == "--device cuda --dtype bf16 --model gpt2-"* ]] || exit 2
echo "  bf16 200.0 199.0 327680.0 300000.0 600000.0 0.5 0.5 - 0"'
# shellcheck disable=SC2016
script_for train_gpt 'while [ $# -gt 1 ]; do [ "$1" = --metrics ] && metrics=$2; shift; done
printf "{\"step\":%s,\"loss\":%s,\"lr\":1}\n" 1 5.501 2 5.399 3 5.302 >"$metrics"'
# shellcheck disable=SC2016
fake on_gpu 'while [ $# -gt 1 ]; do [ "$1" = --write ] && mkdir -p "$2" && touch "$2/tokens.bin"; shift; done
result eager 250 "5.5 5.4 5.3"'
run_script 0 --programs "$area/gpu" --python "$area/on_gpu"
grep -q -- 'gpu_peer_torch.py step .* --write .* --device cuda --seconds 42$' "$area/output" || failed "no step on a GPU"
table_has '^....-..-.., NVIDIA H100 80GB HBM3, 132 SMs; torch 0; commit '
table_has '^| S and T, V = 128256 | 20.000 / 20.000 | 1000000.00 (by hand) | 50000.00 | - | ours 0 wrong; torch 5.1 '
table_has '^| step, gpt2-124m | 200.0 / 200.0 | 250.00 (eager) | 1.25 | 0.303 / 0.243 | ours 5.50100 5.39900 5.30200, torch 5.5 5.4 5.3, apart by 0.0020, bound 1e-2 | eager 250.00 |'
table_has '^| step, gpt2-1.5b | 200.0 / 200.0 | 250.00 (eager) | 1.25 | 0.303 / 0.243 | torch 5.5 5.4 5.3, apart by 0.0000'
table_has '^| S and T, V = 16384 | 20.000 / 20.000 | '
