#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Finds what documents say of the sources:
#
#   tests/docs/files_exist.sh docs/*.md
#
# * Files that a path names, anywhere between backticks, and without a folder in the first column of a table: there the
#   folder is that of the file before. NAME stands for any name, {a,b} for both, and a name without an ending
#   for any.
# * Functions in the second column of a table that begins with `| file | function |`, in that file.
# * No line of a file: lines move. Blocks that show output may have some.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

checked=0
failed=0
wrong() {
    echo "FAILED: $document $1"
    failed=$((failed + 1))
}
is_there() { # pattern
    local pattern
    for pattern in $(eval "echo ${1//NAME/\\*}"); do
        checked=$((checked + 1))
        compgen -G "$pattern" >/dev/null || compgen -G "$pattern.*" >/dev/null || wrong "names $pattern, which is not there"
    done
}
names_in() { grep -o '`[^`]*`' <<<"$1" | tr -d '`'; }

# The folders of the tree; others are a reader's own.
folders='(include|src|kernels|schedules|tests|benchmarks|examples|docs)'
kinds='\.[ch]pp|\.cuh?|\.sh|\.py|\.cmake|\.txt|\.md|\.json'
for document in "$@"; do
    while IFS= read -r cell; do
        folder=
        while IFS= read -r name; do
            [[ $name == */* ]] && folder=${name%/*} || name=$folder/$name
            is_there "$name"
        done < <(names_in "$cell")
    done < <(sed -nE 's/^\| *(`[^|]*)\|.*/\1/p' "$document" | grep -E "^\`$folders/[^\`]*\`")
    while IFS= read -r name; do
        is_there "$name"
    done < <(grep -vE '^(    |\|)' "$document" | grep -oE "\`$folders/[^\` ]*($kinds)\`" | tr -d '`')
    while IFS='|' read -r _ file functions _; do
        file=$(names_in "$file")
        while IFS= read -r function; do
            checked=$((checked + 1))
            grep -q "\b$function(" "$file" || wrong "says that $file has $function, which is not there"
        done < <(names_in "$functions")
    done < <(awk '/^\| file \| function \|/ { on = 1; next } !/^\|/ { on = 0 } on && !/^\|---/' "$document")
    cited=$(grep -vE '^    ' "$document" | grep -oE '[a-z_/]+\.(cpp|hpp|cu|cuh|sh|py):[0-9]+' | head -n 1)
    [ -z "$cited" ] || wrong "cites the line $cited: name the function"
done
echo "$checked names looked for, $failed missing"
[ "$failed" -eq 0 ] && [ "$checked" -gt 0 ]
