#!/usr/bin/env bash
# Installs what Megalith is built from and runs with, from the packages of Debian 12 or Ubuntu 24.04. Does nothing, and
# asks for no rights, when all of it is there.
set -euo pipefail

packages=(
  build-essential cmake ninja-build pkg-config         # compiler and build
  libopenmpi-dev openmpi-bin                           # ranks
  libhdf5-dev libxxhash-dev                            # checkpoints
  libdnnl-dev                                          # GEMM on the CPU
  libspdlog-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev libutf8proc-dev
  libgtest-dev                                         # tests
  dict-gcide dictzip                                   # the quickstart's text
)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "installing: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "these packages are missing and need root: apt-get install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
