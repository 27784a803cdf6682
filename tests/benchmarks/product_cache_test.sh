#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Programs that time products once, or offer what was timed, on the stand-in toolkit.
#
#   tests/benchmarks/product_cache_test.sh FOLDER    of the programs; without train_gpt_on_stand_in its part is left out
set -euo pipefail
programs=$(cd "$1" && pwd)
area=$(mktemp -d)
trap 'rm -rf "$area"' EXIT
export XDG_CACHE_HOME=$area/cache

failed() { # what
    cat "$area/output" >&2
    echo "FAILED: $1" >&2
    exit 1
}

run() { # program, arguments...
    local program=$1
    shift
    timeout 60 "$programs/${program}_on_stand_in" "$@" >"$area/output" 2>&1 || failed "$program $* ended with $?"
}

says() { grep -q -- "$1" "$area/output" || failed "no line like: $1"; }
says_not() { ! grep -q -- "$1" "$area/output" || failed "a line like: $1"; }

model=(--num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 8 --vocab-size 61)
step=(bench_step --device cuda --dtype fp32 "${model[@]}" --micro-batch-size 1 --microbatches 2 --steps 1)
file='from .*/cache/vocabpipe/products-.*-cublasLt-[0-9]*\.txt'

run "${step[@]}" --untimed-products
says_not 'shapes'
[ ! -e "$area/cache" ] || failed "--untimed-products made a file"

# The first run times, the second one need not.
twice() { # program, arguments...
    run "$@"
    says "^# products: [0-9]* shapes $file, [1-9][0-9]* timed now$"
    run "$@"
    says "^# products: [1-9][0-9]* shapes $file, 0 timed now$"
    says_not ', [1-9][0-9]* timed now'
    says '^# wrong: 0$'
}

twice "${step[@]}"
twice bench_vocab --tokens 8 --hidden-size 16 --rows "24,40" --rounds 2
cp "$area"/cache/vocabpipe/products-*.txt "$area/before"

[ -x "$programs/train_gpt_on_stand_in" ] || exit 0
head -c 4000 /dev/zero >"$area/tokens.bin"
train=(train_gpt --device cuda --transport threads --ranks 1 --data-path "$area/tokens.bin" --data-format raw-u16
    "${model[@]}" --dtype fp32 --vocab-mode none --micro-batch-size 1 --global-batch-size 2 --train-iters 2)
run "${train[@]}" --metrics "$area/plain"
says "^products: --product-choices .*/cache/vocabpipe/products-.*\.txt would run [1-9][0-9]* of [1-9][0-9]* shapes with timed"
offered=$(sed -n 's/^products: --product-choices \(.*\) would run .*/\1/p' "$area/output")
run "${train[@]}" --product-choices "$offered"
says_not '^products:'
XDG_CACHE_HOME=$area/none run "${train[@]}" --metrics "$area/without"
says_not '^products:'
losses() { grep -o '"\(loss\|grad_norm\)":[^,}]*' "$1"; }
[ "$(losses "$area/plain" | wc -l)" = 4 ] || failed "no losses in the metrics"
cmp <(losses "$area/plain") <(losses "$area/without") || failed "a file that no flag names changes bits"
cmp "$area"/cache/vocabpipe/products-*.txt "$area/before" || failed "a training changed the file"
