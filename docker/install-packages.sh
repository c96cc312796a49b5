#!/usr/bin/env bash
# Installs the packages of Debian 12, Debian 13 or Ubuntu 24.04 that Megalith is built from and runs with. Does nothing,
# and needs no rights, when all are installed.
#   install-packages.sh [--cuda]     --cuda: also the packages of the cuda preset, which only Debian 13 has
#   install-packages.sh --list       only prints their names
set -euo pipefail

packages=(
  build-essential cmake ninja-build pkg-config         # compiler and build
  libopenmpi-dev openmpi-bin                           # ranks
  libhdf5-dev libxxhash-dev                            # checkpoints
  libdnnl-dev                                          # GEMM on the CPU
  zlib1g-dev libzstd-dev liblzma-dev libsimdjson-dev   # texts to prepare
  libspdlog-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev libutf8proc-dev
  libgtest-dev                                         # tests
  patchelf                                             # bundles
  dict-gcide dictzip                                   # the quickstart's text
)
case ${1:-} in
  '') ;;
  --cuda) packages+=(nvidia-cuda-toolkit libnccl-dev) ;;
  --list) printf '%s\n' "${packages[@]}"; exit 0 ;;
  *) echo "usage: $0 [--cuda | --list]" >&2; exit 2 ;;
esac

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
if [ "${1:-}" = --cuda ]; then
  version_of() { apt-cache policy "$1" | awk '$1 == "Candidate:" && $2 != "(none)" {print $2}'; }
  toolkit=$(version_of nvidia-cuda-toolkit)
  if [ -n "$toolkit" ] && dpkg --compare-versions "$toolkit" lt 12; then
    echo "apt has CUDA $toolkit here, and Megalith needs 12 or later: take Debian 13, or install CUDA and NCCL from" \
      "NVIDIA instead of with --cuda." >&2
    exit 1
  elif [ -z "$toolkit" ] || [ -z "$(version_of libnccl-dev)" ]; then
    echo "apt knows no nvidia-cuda-toolkit or no libnccl-dev. Debian 13 has both in contrib and non-free: write" \
      "'Components: main contrib non-free' into /etc/apt/sources.list.d/debian.sources, or add these two words to the" \
      "lines of /etc/apt/sources.list, and run this again. Elsewhere install CUDA 12 or later and NCCL from NVIDIA." >&2
    exit 1
  fi
fi
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
