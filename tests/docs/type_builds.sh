#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Types what documents say to build, as it stands there: in this clone, and in an empty folder what follows the
# CMakeLists.txt of somebody's own project. Other commands: type_commands.sh.
#
#   tests/docs/type_builds.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
clone=$PWD

area=$(mktemp -d)
trap 'rm -rf "$area"' EXIT
export HOME=$area OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# A block ends with the first of its lines that fails, also where the first half of `a && b` does.
or_exit() { awk '!more { print "{" } { print; more = /\\$/ } !more { print "} || exit 1" }'; }

type_block() { # document, block
    if [[ $2 == cmake_minimum_required* ]]; then
        mkdir "$area/project"
        cd "$area/project"
        printf '%s' "$2" >CMakeLists.txt
        cp "$clone/examples/custom_trainer.cpp" .
        cp "$clone/README.md" my_text.txt
        return
    fi
    printf '%s, in %s:\n%s' "$1" "$PWD" "$2"
    local begin=$SECONDS
    bash -xc "$(printf '%s' "$2" | or_exit)" </dev/null >"$area/output" 2>&1 || {
        tail -n 60 "$area/output" >&2
        echo "tests/docs/type_builds.sh: error: $1 says what does not work" >&2
        exit 1
    }
    echo "($((SECONDS - begin)) s)"
    ((++typed))
}

type_section() { # document, heading
    local block='' line typed=0
    while IFS= read -r line; do
        if [ -n "$line" ]; then
            block+=$line$'\n'
        elif [ -n "$block" ]; then
            type_block "$1" "$block"
            block=
        fi
    done < <(awk -v heading="$2" '/^#/ { here = $0 == heading } { print here && sub(/^    /, "") ? $0 : "" }' "$clone/$1")
    cd "$clone"
    [ "$typed" -gt 0 ] || {
        echo "tests/docs/type_builds.sh: error: no commands in $1 under '$2'" >&2
        exit 1
    }
}

type_section README.md "## Use it as a library"
type_section docs/building.md "# Building"
type_section docs/contributing.md "# Contributing"
echo "what documents build, builds"
