# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Part of gpu.sh: commands with time limits, whose results outlive the call. $work/state has a line for
# every event: begin PART NAME, end PART NAME EXIT_CODE, skip PART REASON. What an earlier call ended is
# not run again; what it began and did not end is, once.
# shellcheck disable=SC2154,SC2034  # variables of gpu.sh

pending=()
limit=0

ended_with() { # name: its exit code, if it has ended
    sed -n "s/^end $part $1 //p" "$work/state" | tail -n 1
}

# Sets $limit. Returns 1 if the command has ended before ($ended), or is left to the next call.
begin() { # name, seconds at most
    local name=$1 begun
    local left=$((budget - SECONDS))
    ended=$(ended_with "$name")
    if [ -n "$ended" ]; then
        echo "--- $name: exit code $ended in an earlier call"
        return 1
    fi
    begun=$(grep -cx "begin $part $name" "$work/state")
    if [ "$begun" -ge 2 ]; then
        echo "--- $name: begun twice and never ended, left out"
        echo "end $part $name 124" >>"$work/state"
        ended=124
        return 1
    fi
    limit=$2
    ended=75
    if [ $left -lt $((limit / 3)) ]; then
        echo "--- $name: left to the next call, $left s are left"
        pending+=("$name")
        return 1
    fi
    [ $left -lt "$limit" ] && limit=$left
    echo "begin $part $name" >>"$work/state"
    save_logs
}

# A command that the budget cut off has not ended.
note_end() { # name, seconds at most, exit code
    if [ "$3" = 124 ] || [ "$3" = 137 ]; then
        echo "$1: no end within $limit s"
        if [ "$limit" -lt "$2" ]; then
            pending+=("$1")
            publish
            return
        fi
    fi
    echo "end $part $1 $3" >>"$work/state"
    publish
}

# Runs a command, or a function, with its output on the screen and in $work/NAME.log.
attempt() { # name, seconds, command...
    local name=$1 most=$2 begin=$SECONDS code
    shift 2
    begin "$name" "$most" || return "$ended"
    echo "--- $name: $*"
    if [ "$(type -t "$1")" = function ]; then
        "$@" 2>&1 | tee "$work/$name.log"
    else
        timeout --kill-after=10 "$limit" "$@" 2>&1 | tee "$work/$name.log"
    fi
    code=${PIPESTATUS[0]}
    note_end "$name" "$most" "$code"
    echo "--- $name: exit code $code, $((SECONDS - begin)) s"
    return "$code"
}

# The tests of a GoogleTest program that a filter takes, one per line.
list_tests() { # filter, command...
    local filter=$1
    shift
    GTEST_COLOR=no timeout --kill-after=5 60 "$@" --gtest_list_tests --gtest_filter="$filter" 2>/dev/null | awk '
        /^[A-Za-z_].*\.( |$)/ { suite = $1; next }
        /^  / { print suite $1 }'
}

# Tests of a list that their log does not know yet.
not_begun() { # list, log
    awk 'FILENAME == ARGV[1] { if (sub(/^\[ RUN      \] /, "")) begun[$0] = 1; next } !($0 in begun)' "$2" "$1"
}

# Every test of a list, in one process if all goes well. A crash, or an error that sticks to the CUDA
# context (the program says so and ends), costs that test: another process begins behind it.
run_list() { # list, log, end in $SECONDS, command...
    local list=$1 log=$2 end=$3 code=0 one left before
    shift 3
    : >"$log"
    before=$(wc -l <"$list")
    while true; do
        GTEST_FILTER=$(not_begun "$list" "$log" | paste -sd:) GTEST_COLOR=no OMP_NUM_THREADS=${test_threads:-1} \
            timeout --kill-after=10 $((end - SECONDS > 0 ? end - SECONDS : 1)) "$@" >>"$log" 2>&1
        one=$?
        [ $one = 0 ] || code=$one
        case $one in 0 | 1) break ;; esac # it ended by itself
        echo "[  BROKE   ] $(grep '^\[ RUN      \] ' "$log" | tail -n 1 | cut -c 14-): $(
            case $one in 124 | 137) echo "no end in time" ;; *) echo "exit code $one" ;; esac)" >>"$log"
        case $one in 124 | 137) break ;; esac # its time is over
        left=$(not_begun "$list" "$log" | wc -l)
        if [ "$left" = 0 ] || [ "$left" = "$before" ]; then break; fi
        before=$left
    done
    return $code
}

# A GoogleTest program in some processes at once, each with its part of the tests.
attempt_tests() { # name, seconds, processes, filter, command...
    local name=$1 most=$2 count=$3 filter=$4 begin=$SECONDS code=0 one i
    local processes=()
    shift 4
    begin "$name" "$most" || return "$ended"
    echo "--- $name: $* ($count processes)"
    rm -f "$work/$name".shard*
    list_tests "$filter" "$@" >"$work/$name.tests"
    for ((i = 0; i < count; ++i)); do
        awk -v i="$i" -v n="$count" 'NR % n == i' "$work/$name.tests" >"$work/$name.shard$i"
        [ -s "$work/$name.shard$i" ] || continue
        run_list "$work/$name.shard$i" "$work/$name.shard$i.log" $((begin + limit)) "$@" &
        processes+=($!)
    done
    for i in "${processes[@]}"; do
        wait "$i"
        one=$?
        [ $one = 0 ] || code=$one
    done
    if [ ${#processes[@]} = 0 ]; then # why there is no list
        timeout --kill-after=5 60 "$@" --gtest_list_tests 2>&1 | tail -n 5 | tee "$work/$name.shard0.log"
        code=${PIPESTATUS[0]}
        [ "$code" != 0 ] || code=1
    fi
    echo "$filter $*" >"$work/$name.command"
    grep -h -A 6 -e 'Failure$' -e '^==.*Error' -e '^sticky' -e '^\[  BROKE' "$work/$name".shard*.log | cut -c 1-300 |
        head -n "${shown_lines:-40}"
    echo "$name: $(verdict_of_tests "$name")"
    [ "$(verdict_of_tests "$name")" = "no test ran" ] && [ $code = 0 ] && code=1
    note_end "$name" "$most" "$code"
    echo "--- $name: exit code $code, $((SECONDS - begin)) s"
    return "$code"
}

failed_tests() { # name: one per line
    cat "$work/$1".shard*.log 2>/dev/null | sed -n 's/^\[  FAILED  \] \([^ ,]*\).* ([0-9]* ms)$/\1/p
        s/^\[  BROKE   \] \([^ ]*\): .*/\1/p
        s/^sticky CUDA error after \([^ ]*\): .*/\1/p' | awk '!seen[$0]++'
}

verdict_of_tests() { # name: of processes that have ended, and of those that were cut off
    local failed skipped passed broke wanted begun tests=("$work/$1".shard*.log)
    [ -e "${tests[0]}" ] || return
    wanted=$(wc -l <"$work/$1.tests")
    begun=$(cat "${tests[@]}" | grep -c '^\[ RUN      \]')
    passed=$(cat "${tests[@]}" | grep -c '\[       OK \]')
    failed=$(cat "${tests[@]}" | grep -c '\[  FAILED  \].*ms)$')
    skipped=$(cat "${tests[@]}" | grep -c '\[  SKIPPED \].*ms)$')
    broke=$(cat "${tests[@]}" | grep -c '^\[  BROKE   \]')
    if [ "$begun" = 0 ]; then
        echo "no test ran"
    else
        echo "$passed passed, $failed failed, $skipped skipped$(
            [ "$broke" = 0 ] || echo ", $broke broke their process"
        )$([ "$begun" = "$wanted" ] || echo ", $((wanted - begun)) of $wanted not begun")"
    fi
}

skip() { # what, reason
    echo "SKIPPED $1: $2"
    grep -qxF "skip $part $1: $2" "$work/state" || echo "skip $part $1: $2" >>"$work/state"
}

state_of_all() { echo "${pending[*]} $(cat "$work/state")"; }

failures() {
    awk '$1 == "end" && $2 != "diagnosis" && $4 != 0 {
        print "FAILED " $3 " (" ($4 == 124 || $4 == 137 ? "no end" : "exit code " $4) ")" }' "$work/state"
}

forget() { # part
    local name
    while read -r name; do
        rm -f "$work/$name.log" "$work/$name".shard* "$work/$name".{tests,command}
    done < <(awk -v part="$1" '$1 == "begin" && $2 == part { print $3 }' "$work/state")
    sed -i "/^[a-z]* $1 /d" "$work/state"
}

# The state belongs to a commit. --continue may bring that of other programs: what passed stays, and what failed
# runs again.
go_on_or_begin_anew() {
    local commit of
    commit=$(commit_of_programs)
    if [ -n "$earlier" ] && [ ! -e "$work/state" ]; then
        tar -xzf "$earlier" -C "$work" || fail "--continue $earlier: not what --logs wrote" 2
        of=$(sed -n '1s/^of \(.*\) [a-z]*$/\1/p' "$work/state")
        if [ -n "$of" ] && [ "$of" != "$commit" ]; then
            sed -i "1s/^of .* /of $commit /" "$work/state"
            echo "from $of" >>"$work/state"
            forget_failures
        fi
    fi
    if [ -e "$work/state" ] && [ "$again" = 0 ] && [ "$(head -n 1 "$work/state")" = "of $commit $sizes" ]; then
        echo "goes on where the last call ended; --again would begin anew"
        sed -i '/^skip /d' "$work/state"
        rm -f "$work/gpu_table.shown"
    else
        rm -rf "${work:?}"/*
        echo "of $commit $sizes" >"$work/state"
    fi
}

forget_failures() {
    awk '$1 == "end" && $4 != 0 { failed[$2, $3] = 1 } { line[NR] = $0; key[NR] = $2 SUBSEP $3 }
        END { for (i = 1; i <= NR; ++i) if (!(key[i] in failed)) print line[i] }' "$work/state" >"$work/state.new" &&
        mv "$work/state.new" "$work/state"
}

# The table and the logs so far, where they outlive a kill.
publish() {
    print_table >"$work/gpu_table.new" && mv "$work/gpu_table.new" "$work/gpu_table.md"
    save_logs
}

save_logs() {
    [ -n "$logs" ] || return 0
    [ ! -e "$work/gpu_table.md" ] || cp "$work/gpu_table.md" "$logs/gpu_table.md"
    (shopt -s nullglob && cd "$work" && tar -czf "$logs/.gpu_logs.new" -- state *.md *.log *.jsonl *.tests *.command) &&
        mv "$logs/.gpu_logs.new" "$logs/gpu_logs.tar.gz"
}

# On the screen, if it has more to say than the last time.
show_table() {
    cmp -s "$work/gpu_table.md" "$work/gpu_table.shown" && return
    cat "$work/gpu_table.md"
    cp "$work/gpu_table.md" "$work/gpu_table.shown"
}
