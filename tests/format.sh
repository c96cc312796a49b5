#!/usr/bin/env bash
# Fails, with the places, where a source is not as clang-format 14 writes it: another version writes some lines otherwise.
# Skips (77) where that version is not installed; Debian 12 has it.  format.sh [FILE...]: of these only.
set -euo pipefail
cd "$(dirname "$0")/.."
formatter=$(command -v clang-format-14) || { echo "skipped: there is no clang-format-14 (apt install clang-format-14)"; exit 77; }
if [ $# -eq 0 ]; then
  mapfile -t sources < <(find kernels configs data checkpoints trainer tests bench -name '*.h' -o -name '*.cpp' -o -name '*.cu')
  set -- "${sources[@]}"
fi
printf '%s\0' "$@" | xargs -0 -n 40 -P "$(nproc)" "$formatter" --dry-run --Werror ||
  { echo "clang-format-14 -i FILE formats a file"; exit 1; }
