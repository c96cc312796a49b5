#!/usr/bin/env bash
# Builds the tests of the CPU's ops for arm64 with Debian's cross compiler and runs them under emulation, as root on a
# Debian without such a processor. It takes about five minutes on two cores.
#   tests/arm64.sh [FOLDER]     for arm64's libraries and the build; default: build/arm64
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:-build/arm64}") libraries=$folder/libraries
emulator=qemu-aarch64-static
for command in aarch64-linux-gnu-g++ "$emulator" mmdebstrap; do
  command -v "$command" >/dev/null ||
    { echo "$command is missing: apt-get install g++-aarch64-linux-gnu qemu-user-static mmdebstrap" >&2; exit 1; }
done

found=$libraries/usr/lib/aarch64-linux-gnu
if [ ! -e "$libraries.complete" ]; then
  rm -rf "$libraries" && mkdir -p "$libraries"
  mapfile -t packages < <(docker/install-packages.sh --list | grep -e '-dev$')
  # From where this system's own packages come.
  mmdebstrap --quiet --architectures=arm64 --variant=extract --include="$(IFS=,; echo "${packages[*]}")" \
    "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$libraries" /etc/apt/sources.list.d/debian.sources
  ln -s hdf5-serial.pc "$found/pkgconfig/hdf5.pc"  # as the package does when it is not only unpacked
  touch "$libraries.complete"
fi

cat >"$folder/toolchain.cmake" <<END
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_SYSROOT $libraries)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_\${kind} ONLY)
endforeach()
set(CMAKE_CROSSCOMPILING_EMULATOR $emulator -L $libraries)
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,$found:$found/openmpi/lib:$found/hdf5/serial)
set(ENV{PKG_CONFIG_SYSROOT_DIR} $libraries)
set(ENV{PKG_CONFIG_LIBDIR} $found/pkgconfig:$libraries/usr/share/pkgconfig)
END
cmake -S . -B "$folder/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$folder/toolchain.cmake" -DCMAKE_BUILD_TYPE=Release \
  -DMPI_C_HEADER_DIR="$found/openmpi/include" -DMPI_mpi_LIBRARY="$found/openmpi/lib/libmpi.so" \
  -DMEGALITH_NATIVE=OFF -DMEGALITH_CUDA=OFF -DMEGALITH_BENCH=OFF >/dev/null
cmake --build "$folder/build" --target test_kernels -j "$(nproc)" -- --quiet
OMP_NUM_THREADS=1 "$emulator" -L "$libraries" "$folder/build/tests/test_kernels" --gtest_brief=1
