#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes about 4 MB of English prose to train on: the King James Bible from the Debian packages
# bible-kjv and bible-kjv-text, one paragraph per chapter, a blank line between chapters.
#
#   examples/make_text.sh OUTPUT_FILE
#   vocabpipe data prepare --input OUTPUT_FILE --output PREFIX --document-separator blank-lines
set -euo pipefail

fail() {
    echo "make_text.sh: error: $1" >&2
    exit "${2:-1}"
}

install_bible() {
    local root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null ||
            fail "'bible' is missing, run as root: apt-get install bible-kjv bible-kjv-text"
        root=(sudo -n)
    fi
    local log
    log=$(mktemp)
    if ! { "${root[@]}" apt-get update &&
        "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends bible-kjv bible-kjv-text; } \
        >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        rm -f "$log"
        fail "apt-get install bible-kjv bible-kjv-text failed"
    fi
    rm -f "$log"
}

[ $# -eq 1 ] && [ -n "$1" ] || fail "usage: make_text.sh OUTPUT_FILE" 2
output=$1

if [ ! -s "$output" ]; then
    PATH=$PATH:/usr/games
    command -v bible >/dev/null || install_bible
    mkdir -p "$(dirname "$output")"
    partial=$output.partial-$$
    trap 'rm -f "$partial"' EXIT
    # A line is "Gen1:2 And the earth ...": the label goes, a new chapter starts a new paragraph.
    bible -f gen1:1-rev22:21 | awk '
        {
            chapter = $1
            sub(/:.*/, "", chapter)
            sub(/^[^ ]+ +/, "")
            gsub(/  +/, " ")
            sub(/ +$/, "")
            if (NR > 1) printf "%s", chapter == before ? " " : "\n\n"
            printf "%s", $0
            before = chapter
        }
        END { if (NR > 0) print "" }' >"$partial"
    [ "$(wc -c <"$partial")" -gt 4000000 ] || fail "'bible' printed less than 4 MB of text"
    mv "$partial" "$output"
fi

echo "$output: $(($(wc -c <"$output"))) bytes, $(($(wc -w <"$output"))) words"
