#!/usr/bin/env bash
# All tests, with all of the loops that test.sh takes a part of (tests/long_tests.h), and the sanitizers with all that they
# look for, on stacks as well. For a machine at night.
set -euo pipefail
cd "$(dirname "$0")/.."
MEGALITH_LONG_TESTS=1 MEGALITH_SANITIZE_FULLY=1 ./test.sh
cmake --build --preset cpu -j "$(nproc)" -- --quiet  # the benchmarks as well
