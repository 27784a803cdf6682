#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The library defines the functions that the header declares and shows nothing else; it needs what every Linux has, and
# the libraries that are named.
#
#   symbols.sh LIBRARY HEADER [NEEDED...]
set -euo pipefail
declared() { tr '\n' ' ' <"$1" | grep -oE 'VP_API [^(]*\(' | grep -oE 'vp_[a-z_]+\($' | tr -d '(' | sort; }
diff <(nm -D --defined-only "$1" | awk '{ print $NF }' | sort) <(declared "$2")
known='lib(c|m|pthread)\.so|ld-linux'
for name in "${@:3}"; do known+="|lib$name\.so"; done
# What it names itself: those in turn may need others.
libraries=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE "$known" || true)
if [ -n "$libraries" ]; then
    echo "FAILED: the library needs" "$libraries"
    exit 1
fi
