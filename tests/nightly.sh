#!/usr/bin/env bash
# All tests, with all that tests/long_tests.h lists as left out by test.sh, the sanitizers with all that they look for, on
# stacks as well, the simulated GPU as every chip, a bundle in a bare root; where ccache is, each file compiled for itself; where
# the emulator is, the CPU's ops as arm64 computes them; and, where clang is, half an hour of libFuzzer on each reader of files.
# For a machine at night.
set -euo pipefail
cd "$(dirname "$0")/.."
export MEGALITH_LONG_TESTS=1
MEGALITH_SANITIZE_FULLY=1 ./test.sh
cmake --build --preset cpu-asan -j "$(nproc)" --target test_pure -- --quiet
ctest --test-dir build/cpu-asan -R '^pure/' -j "$(nproc)" --output-on-failure --no-tests=error
unset MEGALITH_LONG_TESTS
for chip in A100 L4; do
  MEGALITH_SIMULATED_GPU=$chip ctest --preset cpu -R '^(simt/|simulated_gpu/alone)' --no-tests=error
done
cmake --build --preset cpu -j "$(nproc)" -- --quiet  # the benchmarks as well
ctest --preset cpu -R '^bench/' --no-tests=error
tests/bundle/bundle_test.sh
if command -v ccache >/dev/null; then
  cmake --preset dev >/dev/null
  cmake --build --preset dev -j "$(nproc)" -- --quiet
fi
if command -v qemu-aarch64-static >/dev/null; then tests/arm64.sh; fi
if command -v clang++ >/dev/null; then tests/fuzz/fuzz.sh 1800; fi
