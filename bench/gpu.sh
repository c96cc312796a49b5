#!/usr/bin/env bash
# Shows what Megalith does on a machine with NVIDIA GPUs, in nine minutes at most, cheapest and most telling first: every tensor
# of two steps against the CPU, trainings against the reference, each op, kernels and steps compared with PyTorch's if installed, fifty
# steps against the CPU's losses, profiles, compute-sanitizer; then, for a second call, everything else. Writes a JSON file (its
# README describes the format), a log, and nvidia-smi's clocks into $OUT or bench/results/, prints less than 10,000 characters and,
# where time was up, the --only that runs the rest. bench/README.md has the calls as they are typed.
#   bench/gpu.sh [BUNDLE] [OPTION...]     BUNDLE: made by docker/bundle.sh --tests, packed or not; without, builds in build/gpu
#                                         first, for the GPUs of this machine, which the nine minutes do not count
#   bench/gpu.sh --architectures 90a ...  builds for these instead: 90a is H100's and H200's, 80 A100's ('80 90a': both)
#   bench/gpu.sh --help                   the options
# Exit status: 0 when no test failed, 1 when one did or the build, 3 when there is no GPU.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# What follows --architectures is for the build.
named= options=()
while [ $# -gt 0 ]; do
  if [ "$1" = --architectures ]; then
    [ $# -ge 2 ] || { echo "--architectures needs a list, as in --architectures '80 90a'" >&2; exit 2; }
    named=$2
    shift 2
  else
    options+=("$1")
    shift
  fi
done
set -- ${options[@]+"${options[@]}"}
if [ $# -ge 1 ] && [ -e "$1" ]; then
  folder=$1
  shift
  [ -z "$named" ] || { echo "--architectures is for a build, and $folder is one already" >&2; exit 2; }
elif [[ " $* " == *" --help "* ]]; then
  folder=.
elif [ $# -ge 1 ] && [[ $1 != -* ]]; then
  echo "there is no bundle $1" >&2
  exit 2
else
  capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u) || capabilities=
  [ -n "$capabilities" ] || { echo "no GPU here: nvidia-smi shows none" >&2; exit 3; }
  folder=$here/../build/gpu
  # For Hopper and later, the code that only this chip runs.
  [ -n "$named" ] || named=$(for c in $capabilities; do [ "$c" -ge 90 ] && echo "${c}a" || echo "$c"; done)
  architectures=$(for a in $named; do echo "$a-real"; done | paste -sd ';')
  # The machine's compiler may warn of what ours does not. Whatever fails to compile is compiled on this one machine, so
  # the build continues with the next file, and shows all messages of compilers.
  cmake --preset cuda -S "$here/.." -B "$folder" -DCMAKE_CUDA_ARCHITECTURES="$architectures" \
    -DCMAKE_COMPILE_WARNING_AS_ERROR=OFF >/dev/null
  echo "building for $architectures ..." >&2
  if ! said=$(cmake --build "$folder" -j "$(nproc)" --target megalith test_gpu test_mpi bench_kernels bench_step -- -k 0 2>&1)
  then
    grep -vE '^\[[0-9]+/[0-9]+\]' <<<"$said" >&2 || true
    echo "the build in $folder failed" >&2
    exit 1
  fi
  [ -d "$folder/fifty_steps" ] || "$here/fifty_steps.sh" prepare "$folder/trainer/megalith" "$folder/fifty_steps" >/dev/null
fi
command -v python3 >/dev/null || { echo "bench/gpu.sh needs python3, without any package" >&2; exit 2; }
exec python3 "$here/gpu.py" "$folder" "$@"
