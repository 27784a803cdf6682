#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Types the commands of documents, in their order, as somebody does who has cloned and built the project:
#
#   tests/docs/type_commands.sh BUILD DOCUMENT...
#
# Every indented block is commands, and all of them are typed as they stand. A comment before a block says
# otherwise; readers do not see it:
#
#   <!-- not typed: WHY -->   commands that need a GPU, other machines, a download or minutes
#   <!-- shown -->            no commands: what is printed, a formula, a picture, part of a file
#   <!-- file: PATH -->       all of that file of the project, but for its license line
#
# <!-- nothing of this page is typed: WHY --> and <!-- all of this page is shown --> stand for all blocks
# of a page that have no comment of their own. All of them are counted.
#
# The dots of `train_gpt ...` stand for the flags of examples/run.toml, the model and data of README.md, but for
# the line that names tensors of that model.
# train_gpt gets one flag more, --exit-interval, and so ends after two steps instead of a hundred (after
# one on pages other than the first two): everything else of a run, saving included, is as documented.
# What the commands leave behind lies where git ignores it.
set -uo pipefail

build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
shift

clone=$(mktemp -d)
output=$(mktemp)
trap 'rm -rf "$clone" "$output"' EXIT
links=(README.md docs examples tests benchmarks)
for name in "${links[@]}"; do ln -s "$source/$name" "$clone/$name"; done
mkdir -p "$clone/build/bin"
ln -s "$build"/bin/* "$clone/build/bin/"
rm -f "$clone/build/bin/train_gpt"
cat >"$clone/build/bin/train_gpt" <<END
#!/bin/bash
exec "$build/bin/train_gpt" "\$@" --exit-interval \$VOCABPIPE_TYPED_STEPS
END
chmod +x "$clone/build/bin/train_gpt"
grep -v '^param-group' "$source/examples/run.toml" >"$clone/build/run.toml"
cd "$clone" || exit 1

typed=0
failed=0
not_typed=0
shown=0
fail() {
    echo "FAILED: $1"
    failed=$((failed + 1))
}

type_command() { # command
    local begin=$SECONDS
    local command=$1
    [[ $command == *train_gpt*" ..."* ]] && command=${command/ .../} &&
        command=${command/train_gpt/train_gpt --config $clone/build/run.toml}
    # In this shell: what it exports holds for what follows.
    eval "$command" >"$output" 2>&1 </dev/null
    local code=$?
    echo "$((SECONDS - begin)) s: $1"
    typed=$((typed + 1))
    [ $code -eq 0 ] && return
    fail "exit code $code: $1"
    tail -n 20 "$output"
}

type_block() { # document, what its comment says, lines
    local document=$1 kind=$2 command='' line
    shift 2
    case $kind in
        "not typed: "[^\ ]* | "nothing of this page is typed: "[^\ ]*)
            echo "not typed: $1 (${kind#*: })"
            not_typed=$((not_typed + 1))
            ;;
        shown | "all of this page is shown") shown=$((shown + 1)) ;;
        "file: "*)
            diff <(printf '%s\n' "$@") <(grep -v SPDX "$source/${kind#*: }") >/dev/null ||
                fail "$document: the block that begins with '$1' is not ${kind#*: }"
            ;;
        "")
            for line in "$@"; do
                command+=${line%\\}
                [[ $line == *\\ ]] && continue
                [[ $command == \#* ]] || type_command "$command"
                command=
            done
            ;;
        *) fail "$document: the comment '$kind' is none that tests/docs/type_commands.sh knows" ;;
    esac
}

pages=0
for document in "$@"; do
    pages=$((pages + 1))
    export VOCABPIPE_TYPED_STEPS=$((pages > 2 ? 1 : 2))
    block=()
    kind=
    page_kind=
    fenced=
    while IFS= read -r line || [ -n "$line" ]; do
        # Code of another language than the shell's stands in a fence.
        if [[ $line == '```'* ]]; then
            fenced=$([ "$fenced" ] || echo 1)
        fi
        if [[ $line == "    "* && -z $fenced ]]; then
            block+=("${line#    }")
            continue
        fi
        if [ ${#block[@]} -gt 0 ]; then
            type_block "$document" "${kind:-$page_kind}" "${block[@]}"
            block=()
            kind=
        fi
        if [[ $line =~ ^"<!-- "(.*)" -->"$ ]]; then
            kind=${BASH_REMATCH[1]}
            case $kind in
                "nothing of this page is typed: "* | "all of this page is shown") page_kind=$kind kind= ;;
            esac
        elif [[ -n $line && -n $kind ]]; then
            fail "$document: '$kind' stands before no block"
            kind=
        fi
    done < <(cat "$source/$document" && echo)
done

# Asked for a file in it: .gitignore names folders.
for name in * .[!.]*; do
    [ -e "$name" ] && [[ " ${links[*]} " != *" $name "* ]] || continue
    git -C "$source" check-ignore -q "$name/file" 2>"$output" || [ -s "$output" ] ||
        fail "a command leaves $name, which git does not ignore"
done
echo "$pages pages: $typed commands typed, $failed failed; blocks: $not_typed not typed, $shown shown"
[ $failed -eq 0 ] && [ $typed -gt 0 ]
