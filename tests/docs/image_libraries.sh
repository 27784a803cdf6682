#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every library that the programs load is in the packages which examples/Dockerfile installs into its image, or in
# what these depend on:
#
#   tests/docs/image_libraries.sh PROGRAM...
set -euo pipefail
dockerfile=$(dirname "$0")/../../examples/Dockerfile

release=$(. /etc/os-release && echo "$ID:$VERSION_ID")
if ! grep "^FROM $release\$" "$dockerfile" >/dev/null; then
    echo "SKIPPED: the packages of the image are another release's; this is $release"
    exit 0
fi
read -ra packages < <(sed -n 's/^ *\(.*\) && rm -rf .*/\1/p' "$dockerfile")
in_image=$(apt-cache depends --recurse --important --installed "${packages[@]}" |
    sed -n 's/.*Depends: *//p; s/^\([^ ].*\)/\1/p' | sed 's/:.*//' | sort -u)
# The loader finds by way of the link /lib what dpkg knows in /usr, or the other way round.
libraries=$(ldd "$@" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | xargs realpath | sort -u)
needed=$({ sed 's/^\/usr//' <<<"$libraries" && echo "$libraries"; } | { xargs dpkg -S 2>/dev/null || true; } |
    sed 's/:.*//' | sort -u)
missing=$(comm -23 <(echo "$needed") <(echo "$in_image"))
[ -z "$missing" ] || echo "examples/Dockerfile lacks" $missing
echo "${#packages[@]} packages, of $(wc -l <<<"$needed") that the programs need"
[ ${#packages[@]} -gt 0 ] && [ -n "$needed" ] && [ -z "$missing" ]
