#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that VocabPipe needs; does nothing if they are there. Root or sudo.
#
#   examples/install_packages.sh          to build the programs and train
#   examples/install_packages.sh --tests  also what the tests and benchmarks need
#   examples/install_packages.sh --chats  the template engine that examples/chats/render_chats.py needs alone
#   examples/install_packages.sh --cache  ccache alone: with it .ci/run compiles once what several builds share
#   examples/install_packages.sh --full   also what tests/run.sh --full needs: a browser (300 MB), Slurm, sshd
set -euo pipefail

packages=(g++ cmake ninja-build libopenmpi-dev openmpi-bin
    libtomlplusplus-dev nlohmann-json3-dev libsentencepiece-dev libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev
    libsqlite3-dev libhnswlib-dev bible-kjv bible-kjv-text)
case "${1:-}" in
    "") ;;
    --chats) packages=(python3-jinja2) ;;
    --cache) packages=(ccache) ;;
    --tests | --full)
        packages+=(git libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev libcli11-dev clang-format pkgconf
            procps iproute2 doxygen mkdocs mkdocs-material xz-utils python3-jinja2 python3-dev python3-venv)
        ;;
    *)
        echo "install_packages.sh: error: $1: the options are --chats, --tests, --cache and --full" >&2
        exit 2
        ;;
esac
[ "${1:-}" = --full ] && packages+=(chromium fonts-dejavu-core
    slurmctld slurmd slurm-client munge openssh-server openssh-client)

missing=()
for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
        missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
        echo "install_packages.sh: error: run as root: apt-get install ${missing[*]}" >&2
        exit 1
    }
    root=(sudo)
fi
echo "installing: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${root[@]}" apt-get update &&
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "install_packages.sh: error: apt-get install ${missing[*]} failed" >&2
    exit 1
fi
