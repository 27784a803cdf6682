# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Part of gpu.sh: commands with time limits, whose results outlive the call. $work/state has a line for
# every event: begin PART NAME, end PART NAME EXIT_CODE, skip PART REASON. What an earlier call ended is
# not run again; what it began and did not end is, once.
# shellcheck disable=SC2154,SC2034  # variables of gpu.sh

pending=()
limit=0
shards=4

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

# A GoogleTest program in four shards: an error that sticks to a CUDA context spoils one of them only.
attempt_shards() { # name, seconds, together or in_turn, command...
    local name=$1 most=$2 way=$3 begin=$SECONDS code=0 one i
    local processes=()
    shift 3
    begin "$name" "$most" || return "$ended"
    echo "--- $name: $* ($shards shards)"
    rm -f "$work/$name".shard*.log
    for ((i = 0; i < shards; ++i)); do
        GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i GTEST_COLOR=no OMP_NUM_THREADS=1 \
            timeout --kill-after=10 $((limit - SECONDS + begin > 0 ? limit - SECONDS + begin : 1)) \
            "$@" >"$work/$name.shard$i.log" 2>&1 &
        processes+=($!)
        if [ "$way" = in_turn ]; then
            wait $!
            one=$?
            [ $one = 0 ] || code=$one
        fi
    done
    if [ "$way" = together ]; then
        for i in "${processes[@]}"; do
            wait "$i"
            one=$?
            [ $one = 0 ] || code=$one
        done
    fi
    grep -h -A 12 -e 'Failure$' -e '^==.*Error' "$work/$name".shard*.log | head -n 60
    echo "$name: $(verdict_of_tests "$name")"
    [ "$(verdict_of_tests "$name")" = "no test ran" ] && [ $code = 0 ] && code=1
    note_end "$name" "$most" "$code"
    echo "--- $name: exit code $code, $((SECONDS - begin)) s"
    return "$code"
}

verdict_of_tests() { # name: of shards that have ended, and of those that were cut off
    local failed skipped passed shard unfinished=0 tests=("$work/$1".shard*.log)
    [ -e "${tests[0]}" ] || return
    for shard in "${tests[@]}"; do
        grep -q '^\[==========\].* ran\.' "$shard" || unfinished=$((unfinished + 1))
    done
    passed=$(cat "${tests[@]}" | grep -c '\[       OK \]')
    failed=$(cat "${tests[@]}" | grep -c '\[  FAILED  \].*ms)$')
    skipped=$(cat "${tests[@]}" | grep -c '\[  SKIPPED \].*ms)$')
    if [ $((passed + failed + skipped)) = 0 ]; then
        echo "no test ran"
    else
        echo "$passed passed, $failed failed, $skipped skipped$(
            [ $unfinished = 0 ] || echo ", $unfinished of ${#tests[@]} shards broken off"
        )"
    fi
}

skip() { # what, reason
    echo "SKIPPED $1: $2"
    grep -qxF "skip $part $1: $2" "$work/state" || echo "skip $part $1: $2" >>"$work/state"
}

state_of_all() { echo "${pending[*]} $(cat "$work/state")"; }

failures() {
    awk '$1 == "end" && $4 != 0 {
        print "FAILED " $3 " (" ($4 == 124 || $4 == 137 ? "no end" : "exit code " $4) ")" }' "$work/state"
}

forget() { # part
    local name
    while read -r name; do
        rm -f "$work/$name.log" "$work/$name".shard*.log
    done < <(awk -v part="$1" '$1 == "begin" && $2 == part { print $3 }' "$work/state")
    sed -i "/^[a-z]* $1 /d" "$work/state"
}

# The state belongs to a commit.
go_on_or_begin_anew() {
    local commit
    commit=$(commit_of_programs)
    if [ -n "$earlier" ] && [ ! -e "$work/state" ]; then
        tar -xzf "$earlier" -C "$work" || fail "--continue $earlier: not what --logs wrote" 2
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

# The table and the logs so far, where they outlive a kill.
publish() {
    print_table >"$work/gpu_table.new" && mv "$work/gpu_table.new" "$work/gpu_table.md"
    save_logs
}

save_logs() {
    [ -n "$logs" ] || return 0
    [ ! -e "$work/gpu_table.md" ] || cp "$work/gpu_table.md" "$logs/gpu_table.md"
    (shopt -s nullglob && cd "$work" && tar -czf "$logs/.gpu_logs.new" -- state *.md *.log *.jsonl) &&
        mv "$logs/.gpu_logs.new" "$logs/gpu_logs.tar.gz"
}

# On the screen, if it has more to say than the last time.
show_table() {
    cmp -s "$work/gpu_table.md" "$work/gpu_table.shown" && return
    cat "$work/gpu_table.md"
    cp "$work/gpu_table.md" "$work/gpu_table.shown"
}
