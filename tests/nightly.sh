#!/usr/bin/env bash
# All tests, with all of the loops that test.sh takes a part of (tests/long_tests.h), and all undefined behaviour that the
# address sanitizer does not find by itself. For a machine at night.
set -euo pipefail
cd "$(dirname "$0")/.."
MEGALITH_LONG_TESTS=1 MEGALITH_SANITIZE_WITHOUT=null,object-size ./test.sh
cmake --build --preset cpu -j "$(nproc)" -- --quiet  # the benchmarks as well
