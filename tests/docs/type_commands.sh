#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Types the commands of documents, in their order, as somebody does who has cloned and built the project:
#
#   tests/docs/type_commands.sh BUILD DOCUMENT...
#
# Every indented block is commands, and all of them are typed as they stand, but for those that one of the tables
# below names. train_gpt gets one more flag, --exit-interval 2, and so ends after two steps instead of
# a hundred: everything else of a run, saving included, is as documented.
set -uo pipefail

build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
shift

# Commands that are typed elsewhere, or not at all: why.
why_not() {
    case $1 in
        "examples/quickstart.sh"*) echo "packages, a build and 8 s of data; .ci/run types it" ;;
        "tests/run.sh"*) echo "it runs this test" ;;
        "examples/install_packages.sh" | "cmake -G Ninja -B build"* | "cmake --install build"* | \
            "cmake -B build -DCMAKE_PREFIX_PATH="* | "mpirun -np 2 build/my_trainer "*)
            echo "type_builds.sh types it" ;;
        "sbatch "* | "ssh beta true" | "printf '%s\n' \"alpha "* | "mpirun --hostfile hosts "*)
            echo "tests/batch types it, with Slurm and ssh" ;;
        "docker "*) echo "there is no Docker here" ;;
        *) return 1 ;;
    esac
}

# Blocks that are files of the project, by their first line: they must be the same.
file_of_block() {
    case $1 in
        "# examples/run.toml") echo examples/run.toml ;;
        "FROM debian:12 AS build") echo examples/Dockerfile ;;
        "cmake_minimum_required("*) echo tests/package/trainer/CMakeLists.txt ;;
        *) return 1 ;;
    esac
}

# Blocks that show what is printed, or a picture.
is_shown() {
    case $1 in
        "step 812: loss nan"* | "generator -> Schedule -> "*) return 0 ;;
        *) return 1 ;;
    esac
}

clone=$(mktemp -d)
trap 'rm -rf "$clone"' EXIT
for name in README.md docs examples tests; do ln -s "$source/$name" "$clone/$name"; done
mkdir -p "$clone/build/bin"
ln -s "$build"/bin/* "$clone/build/bin/"
rm -f "$clone/build/bin/train_gpt"
cat >"$clone/build/bin/train_gpt" <<END
#!/bin/bash
exec "$build/bin/train_gpt" "\$@" --exit-interval 2
END
chmod +x "$clone/build/bin/train_gpt"
cd "$clone" || exit 1

typed=0
failed=0
fail() {
    echo "FAILED: $1"
    failed=$((failed + 1))
}

type_command() { # what
    local reason
    if reason=$(why_not "$1"); then
        echo "not typed: $1 ($reason)"
        return
    fi
    local begin=$SECONDS
    eval "$1" >"$clone/.output" 2>&1 </dev/null
    local code=$?
    echo "$((SECONDS - begin)) s: $1"
    typed=$((typed + 1))
    [ $code -eq 0 ] && return
    fail "exit code $code: $1"
    tail -n 20 "$clone/.output"
}

type_block() { # document, lines
    local document=$1 file command=
    shift
    is_shown "$1" && return
    if file=$(file_of_block "$1"); then
        diff <(printf '%s\n' "$@") <(grep -v SPDX "$source/$file") >/dev/null ||
            fail "$document: the block that begins with '$1' is not $file"
        return
    fi
    local line
    for line in "$@"; do
        if [[ $line == *\\ ]]; then
            command+=${line%\\}
            continue
        fi
        command+=$line
        [[ $command == \#* ]] || type_command "$command"
        command=
    done
}

for document in "$@"; do
    block=()
    while IFS= read -r line || [ -n "$line" ]; do
        if [[ $line == "    "* ]]; then
            block+=("${line#    }")
        elif [ ${#block[@]} -gt 0 ]; then
            type_block "$document" "${block[@]}"
            block=()
        fi
    done < <(cat "$source/$document" && echo)
done
echo "$typed commands typed, $failed failed"
[ $failed -eq 0 ] && [ $typed -gt 0 ]
