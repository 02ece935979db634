#!/usr/bin/env bash
# Install the first of the given Debian packages that exists; fail, silently, where that is not possible.
set -euo pipefail

command -v apt-get >/dev/null || exit 1
if [ "$(id -u)" = 0 ]; then
    sudo=()
elif sudo -n true 2>/dev/null; then
    sudo=(sudo -n)
else
    exit 1
fi

${sudo[@]+"${sudo[@]}"} apt-get update >/dev/null 2>&1 || true
for package in "$@"; do
    echo "Installing $package ..." >&2
    if ${sudo[@]+"${sudo[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get install -y "$package" >/dev/null 2>&1; then
        exit 0
    fi
done
exit 1
