#!/usr/bin/env bash
# A bundle for CPUs with its tests, made by docker/bundle.sh: each of its programs starts in a root that holds a C library, a
# shell and the core utilities, and bench/gpu.sh goes through its order with it, packed. Part of tests/nightly.sh, since it
# builds all for every x86-64 processor.
#   tests/bundle/bundle_test.sh [FOLDER]      FOLDER: of a bundle that is made already
# Skipped where there is no launcher of Open MPI 4, which a bundle holds.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v orted >/dev/null || { echo "Skipped: a bundle holds the launcher of Open MPI 4, and here is none."; exit 0; }
bundle=${1:-$work/megalith}
[ $# -ge 1 ] || docker/bundle.sh "$bundle" cpu --tests

root=$work/root
mkdir -p "$root/tmp" "$root/proc" "$root/dev"
take() {  # each file, and the libraries that it needs of the system's own
  local file library
  for file; do
    file=$(readlink -f "$(type -P "$file")")
    mkdir -p "$root/usr/bin"
    cp "$file" "$root/usr/bin/"
    for library in $(ldd "$file" | grep -oE '/[^ ]+'); do
      mkdir -p "$root$(dirname "$library")"
      cp -Ln "$library" "$root$library"
    done
  done
}
take sh readlink dirname cat sort head getconf env
ln -sf "$(basename "$(readlink -f "$(command -v sh)")")" "$root/usr/bin/sh"
[ -e "$root/bin" ] || ln -s usr/bin "$root/bin"
# The rest of the C library, for programs take more of it than those.
for library in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libutil.so.1 libresolv.so.2 libanl.so.1; do
  path=$(ldconfig -p | awk -v name="$library" '$1 == name && /x86-64/ && !found++ {print $NF}')
  [ -z "$path" ] || { mkdir -p "$root$(dirname "$path")" && cp -Ln "$path" "$root$path"; }
done
cp -r "$bundle" "$root/bundle"
# The loader asks /proc where a program lies. The mounts are gone with the command.
inside() {
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(--map-root-user)
  unshare "${as_root[@]}" --mount --pid --fork sh -c 'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" &&
    exec chroot "$@"' sh "$root" /usr/bin/env -i PATH=/usr/bin HOME=/tmp "$@"
}
failed=0
starts() {  # WORDS COMMAND...: the command prints WORDS, and ends with 0
  local words=$1 said
  shift
  if said=$(inside "$@" 2>&1) && [[ $said == *"$words"* ]]; then
    echo "starts: $*"
  else
    echo "does not start: $*: $said" >&2
    failed=1
  fi
}
starts megalith /bundle/bin/megalith --version
starts megalith /bundle/megalith --version
starts 'Open MPI' /bundle/mpirun --version
starts 'linear_forward' /bundle/bin/bench_kernels --list
starts '--on-request' /bundle/bin/bench_step --help
starts 'Layouts' /bundle/mpirun --allow-run-as-root -n 1 /bundle/bin/test_mpi --gtest_list_tests
[ ! -e "$bundle/bin/test_gpu" ] || starts AgreesWithItsTwin /bundle/bin/test_gpu --gtest_list_tests
# What is added later is seen as well.
for program in "$bundle"/bin/*; do
  case ${program##*/} in
    megalith | mpirun | orted | bench_kernels | bench_step | test_mpi | test_gpu) ;;
    *) echo "no test starts $program" >&2; failed=1 ;;
  esac
  if missing=$(inside /bundle/bin/"${program##*/}" --help 2>&1 | grep 'cannot open shared object'); then
    echo "${program##*/}: $missing" >&2
    failed=1
  fi
done
# Where a library is looked for in a folder of this machine, it would be found here and nowhere else.
while IFS= read -r -d '' file; do
  while read -r folder; do
    [[ $folder == '$ORIGIN'* ]] || { echo "${file#"$bundle/"} looks for its libraries in $folder" >&2; failed=1; }
  done < <(objdump -p "$file" 2>/dev/null | awk '$1 == "RPATH" || $1 == "RUNPATH" {print $2}' | tr : '\n')
done < <(find "$bundle" -type f \( -name '*.so*' -o -path '*/bin/*' \) -print0)

if command -v python3 >/dev/null; then
  tar -C "$(dirname "$bundle")" -cJf "$work/packed.tar.xz" "$(basename "$bundle")"
  bench/gpu.sh "$work/packed.tar.xz" --device cpu --out "$work/out" || failed=1
  for words in '"complete": true' '"name": "fifty steps"' '"name": "communicators, MPI"'; do
    grep -q "$words" "$work"/out/*.json || { echo "the results lack $words" >&2; failed=1; }
  done
fi
exit "$failed"
