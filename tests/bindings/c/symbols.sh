#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The library defines the functions that the header declares and shows nothing else; it needs what every Linux has.
#
#   symbols.sh LIBRARY HEADER
set -euo pipefail
declared() { tr '\n' ' ' <"$1" | grep -oE 'VP_API [^(]*\(' | grep -oE 'vp_[a-z_]+\($' | tr -d '(' | sort; }
diff <(nm -D --defined-only "$1" | awk '{ print $NF }' | sort) <(declared "$2")
libraries=$(ldd "$1" | grep -vE 'linux-vdso|lib(c|m|pthread)\.so|ld-linux' || true)
if [ -n "$libraries" ]; then
    echo "FAILED: the library needs" "$libraries"
    exit 1
fi
