#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test once: those of the libraries under the address and
# undefined-behaviour sanitizers, those of programs on the program as it is. With CI=true, warnings are errors.
# tests/nightly.sh also runs the long loops, and has the sanitizers look at stacks and for all undefined behaviour.
set -euo pipefail
cd "$(dirname "$0")"

docker/install-packages.sh

# mpirun as root, and more ranks than cores, in the words of Open MPI 4 and 5.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMP_WAIT_POLICY=PASSIVE
jobs=$(nproc)
strict=-DCMAKE_COMPILE_WARNING_AS_ERROR=$([ "${CI:-false}" = false ] && echo OFF || echo ON)

cmake --preset cpu "$strict" >/dev/null &
cmake --preset cpu-asan "$strict" ${MEGALITH_SANITIZE_FULLY:+-DMEGALITH_SANITIZE_FULLY=ON} >/dev/null
wait "$!"
cmake --build --preset cpu-programs -j "$jobs" -- --quiet
cmake --build --preset cpu-asan -j "$jobs" -- --quiet

# Both run to their end, so that one failure does not hide another. Some wait more than they compute.
at_once=$((jobs + jobs / 2))
status=0
ctest --preset cpu-asan -j "$at_once" --no-tests=error || status=1
ctest --preset cpu-programs -j "$at_once" --no-tests=error || status=1
exit "$status"
