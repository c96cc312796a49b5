#!/usr/bin/env bash
# Fails, with the places, where clang-tidy 14 has something to say (.clang-tidy) about lines that changed since BASE, or,
# without one, since three hours before the last commit. It leaves out files in which only comments or texts changed, and those
# that clang-tidy 14 cannot compile: they need std::source_location, or the headers of CUDA and NCCL. Skips (77) without that
# version, Debian 12's, or without the history.  lint.sh [BASE]
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang-tidy-14 clang-tidy-diff-14.py >/dev/null || { echo "skipped: there is no clang-tidy-14 (apt install clang-tidy-14)"; exit 77; }
if [ $# -eq 1 ]; then
  base=$1
else
  base=$(git rev-list -1 --before="$(($(git log -1 --format=%ct) - 3 * 3600))" HEAD 2>/dev/null) || true
fi
git cat-file -e "$base^{commit}" 2>/dev/null || { echo "skipped: git has no commit ${base:-that is older than three hours} here"; exit 77; }
# A command for each file, where the build may join files.
cmake --preset cpu -B build/lint -DCMAKE_UNITY_BUILD=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
sed -i 's/-ffold-simple-inlines//g; s/--param ggc-min-heapsize=[0-9]*//g' build/lint/compile_commands.json  # GCC's alone
mapfile -t changed < <(tests/changed_code.py "$base" '*.cpp' '*.h' ':!tests/gpu' ':!tests/simt' ':!tests/ptx' \
  ':!tests/simulated_cublaslt/cublaslt.cpp' ':!*_present.cpp' \
  ':!kernels/activation/*_cuda.h' ':!kernels/attention/*_cuda.h' ':!kernels/elementwise/*_cuda.h' ':!kernels/loops/*_cuda.h' \
  ':!kernels/nvcc')
[ ${#changed[@]} -gt 0 ] || exit 0
git diff --unified=0 "$base" -- "${changed[@]}" |
  clang-tidy-diff-14.py -p1 -path build/lint -extra-arg='-D__builtin_shuffle(a,b,mask)=(a)' -j "$(nproc)" -quiet 2>&1 |
  { ! grep -A 5 -E '(error|warning): '; }  # it ends with 0 whatever it finds
