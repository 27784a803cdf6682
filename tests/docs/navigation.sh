#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every page of docs/ is in the navigation (docs/mkdocs.yml) and in the table of README.md, under the same heading and
# in the same order; and all links between pages, records of benchmarks and the page of the stand-in for CUDA lead to a
# file, and to a heading of it.
#
#   tests/docs/navigation.sh
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

failed=0
fail() {
    echo "FAILED: $1"
    failed=$((failed + 1))
}

# "GROUP PAGE" a line.
in_table() {
    sed -n '/^## Documentation/,/^## Limits/p' README.md |
        sed -n -e 's/^| \*\*\(.*\)\*\* | |$/=\1/p' -e 's/^| \[\([a-zA-Z/-]*\.md\)\](docs\/\1) | .*/\1/p' |
        awk '/^=/ { group = substr($0, 2); next } { print group, $0 }'
}
in_navigation() {
    awk '/^nav:/ { here = 1; next }
         here && /^  - [A-Za-z-]+:$/ { group = $2; sub(/:/, "", group) }
         here && /^      - .*\.md$/ { print group, $NF }' docs/mkdocs.yml
}
diff <(in_table) <(in_navigation) || fail "README.md (<) and docs/mkdocs.yml (>) differ"
diff <(in_navigation | cut -d' ' -f2 | sort) <(cd docs && ls -- *.md */README.md | sort) ||
    fail "pages of docs/mkdocs.yml (<) and files of docs/ (>) differ"

# The other pages of a folder are in the table of its README.md.
for folder in docs/*/README.md; do
    folder=${folder%/*}
    diff <(sed -n 's/^| \[\([a-z-]*\.md\)\](\1) | .*/\1/p' "$folder/README.md" | sort) \
        <(cd "$folder" && ls -- *.md | grep -vx README.md | sort) || fail "$folder/README.md (<) and $folder (>) differ"
done

# The headings of a page, as GitHub names them.
anchors() {
    sed -n 's/^#\{1,6\} //p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g' |
        awk '{ print $0 (count[$0] ? "-" count[$0] : ""); ++count[$0] }'
}
links=0
while IFS=: read -r page link; do
    links=$((links + 1))
    file=${link%%#*}
    [ -n "$file" ] && file=$(dirname "$page")/$file || file=$page
    if [ ! -e "$file" ]; then
        fail "$page links to $link, which is not there"
    elif [[ $link == *#* ]] && ! anchors "$file" | grep -qxF -- "${link#*#}"; then
        fail "$page links to $link, but $file has no such heading"
    fi
done < <(grep -o '](\([^)]*\))' README.md docs/*.md docs/*/*.md benchmarks/results/*.md tests/cuda_stand_in/*.md |
    sed 's/](\(.*\))$/\1/' | grep -v ':http')
echo "$(in_navigation | wc -l) pages, $links links, $failed failed"
[ "$failed" -eq 0 ] && [ "$links" -gt 0 ]
