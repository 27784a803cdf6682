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
mkdir -p "$area/programs/bin"
for program in train_gpt bench_step bench_experts; do
    ln -s "$built/$program" "$area/programs/bin/$program"
done
ln -s "$built/bench_vocab_on_stand_in" "$area/programs/bin/bench_vocab_cuda"

failed() { # what
    cat "$area/output" >&2
    echo "FAILED: $1" >&2
    exit 1
}

compare() { # wanted exit code, Python, arguments...
    local wanted=$1 with=$2 code=0
    shift 2
    rm -rf "$area/logs"
    "$repository/benchmarks/gpu_peers.sh" --programs "$area/programs" --logs "$area/logs" --device cpu --toy \
        --python "$with" "$@" >"$area/output" 2>&1 || code=$?
    [ $code = "$wanted" ] || failed "gpu_peers.sh $* with $with ended with $code, not $wanted"
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
