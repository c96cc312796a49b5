#!/usr/bin/env bash
# Everything that Megalith has to show on a machine with NVIDIA GPUs, in ten minutes at most: tests of the kernels and of
# training on the GPU, several ranks on one GPU, the benches (beside PyTorch, where it is), compute-sanitizer. Writes one
# JSON file into bench/results/ (its README describes the format) and prints a short table.
#   bench/gpu.sh [BUNDLE] [OPTION...]     BUNDLE: made by docker/bundle.sh --tests; without, builds in build/gpu first,
#                                         for the GPUs of this machine, which the ten minutes do not count
#   bench/gpu.sh --help                   the options
# Exit status: 0 when no test failed, 1 when one did, 3 when there is no GPU.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -ge 1 ] && [ -d "$1" ]; then
  folder=$1
  shift
elif [[ " $* " == *" --help "* ]]; then
  folder=.
elif [ $# -ge 1 ] && [[ $1 != -* ]]; then
  echo "there is no folder $1" >&2
  exit 2
else
  capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u) || capabilities=
  [ -n "$capabilities" ] || { echo "no GPU here: nvidia-smi shows none" >&2; exit 3; }
  folder=$here/../build/gpu
  # For Hopper and later, the code that only this chip runs.
  architectures=$(for c in $capabilities; do [ "$c" -ge 90 ] && echo "${c}a-real" || echo "$c-real"; done | paste -sd ';')
  cmake --preset cuda -S "$here/.." -B "$folder" -DCMAKE_CUDA_ARCHITECTURES="$architectures" >/dev/null
  cmake --build "$folder" -j "$(nproc)" --target megalith test_gpu test_mpi bench_kernels bench_step | tail -n 1
fi
command -v python3 >/dev/null || { echo "bench/gpu.sh needs python3, without any package" >&2; exit 2; }
exec python3 "$here/gpu.py" "$folder" "$@"
