#!/usr/bin/env bash
# All tests, with the long loops: 60 kills of a training instead of 8. For a machine at night.
set -euo pipefail
MEGALITH_LONG_TESTS=1 exec "$(dirname "$0")/../test.sh"
