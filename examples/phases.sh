# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by examples that run for minutes: headings of their phases, and how long each took.

phases=()

begin() { # a phase
    echo
    echo "=== $1"
    phase=$1
    phase_start=$SECONDS
}

finish() { # it, and sets `phase_seconds`
    phase_seconds=$((SECONDS - phase_start))
    phases+=("$(printf '%4d s  %s' "$phase_seconds" "$phase")")
}

print_phases() {
    echo
    echo "time by phase:"
    printf '%s\n' "${phases[@]}"
}
