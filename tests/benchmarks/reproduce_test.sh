#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# benchmarks/reproduce.sh: the experiments that take no time, and an experiment that fails. With VOCABPIPE_FULL=1
# (tests/run.sh --full) all of them, three minutes.
#
#   tests/benchmarks/reproduce_test.sh BUILD
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
script=benchmarks/reproduce.sh

wrong() {
    echo "FAILED: $1"
    tail -n 40 "$folder/printed"
    exit 1
}
finds() { grep -q -- "$1" "$folder/${2:-printed}" || wrong "no '$1' in ${2:-what was printed}"; }

only=(--only "artifact,memory,hidden,ratios,optimum,lists")
[ -z "${VOCABPIPE_FULL:-}" ] || only=()
VOCABPIPE_BUILD_DIR=$build $script "${only[@]}" "$folder/all" >"$folder/printed" 2>&1 || wrong "exit code $?"
finds "ours:      equal$"
finds "25 equal, pass by pass"
finds "<svg" all/index.html
finds "^20,best of 1 to 8 chunks (Tutel),4.0,[0-9.]*$" all/ratios/shares.csv
! grep -q "Not run to its end" "$folder/all/index.html" || wrong "the page names a failure"

# A program that fails: one line that names it, the others go on, and the page says so.
mkdir -p "$folder/build/bin"
ln -s "$build"/bin/* "$folder/build/bin/"
rm "$folder/build/bin/bench_overlap"
printf '#!/bin/bash\necho no link >&2\nexit 3\n' >"$folder/build/bin/bench_overlap"
chmod +x "$folder/build/bin/bench_overlap"
code=0
VOCABPIPE_BUILD_DIR=$folder/build $script --only hidden,lists "$folder/some" >"$folder/printed" 2>&1 || code=$?
[ $code = 1 ] || wrong "exit code $code where a program fails"
finds "reproduce.sh: error: hidden: exit code 3 of: .*: no link"
finds "25 equal, pass by pass"
finds "Not run to its end: exit code 3" some/index.html

code=0
$script --only none "$folder/none" >"$folder/printed" 2>&1 || code=$?
[ $code = 2 ] || wrong "exit code $code of a name that is none"
[ "$($script --list | wc -l)" = 17 ] || wrong "--list names other than 17 experiments"
echo "reproduce.sh: as it should be"
