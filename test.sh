#!/usr/bin/env bash
# Installs missing packages, builds, and runs every test once: those of the libraries that read files or compute under the
# address and undefined-behaviour sanitizers, those of the trainer and of programs on the program as it is, and those of the
# CPU's ops also as compiled for processors with AVX2 alone. With CI=true, warnings are errors. tests/nightly.sh also runs the
# long loops, and has the sanitizers look at the trainer, at stacks and for all undefined behaviour.
set -euo pipefail
cd "$(dirname "$0")"

docker/install-packages.sh

# mpirun as root, and more ranks than cores, in the words of Open MPI 4 and 5.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# Waiting ranks yield their cores: two ranks that spin took 70 times as long next to two other processes.
export OMPI_MCA_mpi_yield_when_idle=1 OMP_WAIT_POLICY=PASSIVE
jobs=$(nproc)
strict=-DCMAKE_COMPILE_WARNING_AS_ERROR=$([ "${CI:-false}" = false ] && echo OFF || echo ON)

# Some tests wait more than they compute.
at_once=$((jobs + jobs / 2))
test_libraries() {
  cmake --preset cpu-asan "$strict" ${MEGALITH_SANITIZE_FULLY:+-DMEGALITH_SANITIZE_FULLY=ON} >/dev/null &&
    cmake --build --preset cpu-asan -j "$jobs" -- --quiet &&
    ctest --preset cpu-asan -j "$at_once" --no-tests=error
}

# Beside the build of the programs, so that no processor waits for the last file of either; both run to their end, so that
# one failure does not hide another.
mkdir -p build
test_libraries >build/libraries.log 2>&1 &
libraries=$! built=true status=0
{ cmake --preset cpu "$strict" >/dev/null && cmake --build --preset cpu-programs -j "$jobs" -- --quiet; } || built=false
wait "$libraries" || status=1
cat build/libraries.log
$built && ctest --preset cpu-programs -j "$at_once" --no-tests=error || status=1
exit "$status"
