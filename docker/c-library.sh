#!/bin/sh
# Runs before a bundle's programs: if the machine's C library is too old, says so, where the loader would name symbols.
here=$(dirname "$(readlink -f "$0")")
needed=$(cat "$here/c-library")
found=$(getconf GNU_LIBC_VERSION 2>/dev/null) || found=
found=${found#glibc }
[ "$(printf '%s\n' "$needed" "${found:-0}" | sort -V | head -n 1)" = "$needed" ] && exit 0
echo "the programs in $here need glibc $needed or later, and this machine has ${found:-no glibc}: take a system that has it \
(Debian 12 has 2.36, Ubuntu 24.04 2.39), an image of docker/cuda.Dockerfile, or build Megalith on this one" >&2
exit 1
