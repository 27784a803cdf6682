#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Finds the files that the tables of a document name in their first column:
#
#   tests/docs/files_exist.sh docs/contributing.md
#
# NAME stands for any name, {a,b} for both. A file without a folder lies beside the one before it.
set -uo pipefail

document=$1
cd "$(dirname "$0")/../.." || exit 1

checked=0
failed=0
while IFS= read -r cell; do
    folder=
    while IFS= read -r name; do
        [[ $name == */* ]] && folder=${name%/*} || name=$folder/$name
        for pattern in $(eval "echo ${name//NAME/\\*}"); do
            checked=$((checked + 1))
            compgen -G "$pattern" >/dev/null && continue
            echo "FAILED: $document names $pattern, which is not there"
            failed=$((failed + 1))
        done
    done < <(grep -o '`[^`]*`' <<<"$cell" | tr -d '`')
done < <(sed -n 's/^| *\(`[^|]*\)|.*/\1/p' "$document")
echo "$checked files looked for, $failed missing"
[ "$failed" -eq 0 ] && [ "$checked" -gt 0 ]
