#!/usr/bin/env bash
# Makes a folder that runs on machines without our packages and without root: megalith, Open MPI's launcher, and their
# libraries. CUDA's libraries and the C library are the machine's own: it needs a driver, cuBLAS and NCCL to train on
# GPUs, and a C library no older than this one's.
#   docker/bundle.sh OUT [PRESET] [--tests] [--architectures LIST] [--packed] [-DOPTION=VALUE...]
#     PRESET     cuda (the default) or cpu; builds what is missing, in build/bundle-PRESET
#     --tests    also the tests, benches and reference runs that bench/gpu.sh takes to a machine with GPUs
#     --architectures 90a    for H100 and H200 alone, 80 for A100, '80 90a' for both: less to build, and to carry
#     --packed   also OUT.tar.xz and its checksum in OUT.tar.xz.sha256. With --tests it says what that and this repository take together, and fails beyond 64 MiB, as
#                much as some machines let one bring along: a single architecture takes half of it
#     -D...      for CMake
# Then, anywhere:  OUT/megalith train ...   or   OUT/megalith run -n 8 train ...   or   srun OUT/megalith train ...
#           and:  OUT/bench/gpu.sh OUT     (or bench/gpu.sh OUT.tar.xz, in a checkout)
# The folder may be moved and copied. Between nodes MPI speaks TCP: the tensors travel by NCCL.
set -euo pipefail
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
[ $# -ge 1 ] || usage
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
preset=cuda tests=OFF packed=OFF options=()
while [ $# -gt 0 ]; do
  case $1 in
    cpu | cuda) preset=$1 ;;
    --tests) tests=ON ;;
    --packed) packed=ON ;;
    --architectures)
      [ $# -ge 2 ] || usage
      options+=("-DCMAKE_CUDA_ARCHITECTURES=$(printf '%s-real\n' $2 | paste -sd ';')")
      shift
      ;;
    -D*) options+=("$1") ;;
    *) usage ;;
  esac
  shift
done
[ -z "$(ls -A "$out")" ] || { echo "$out is not empty; name a new folder" >&2; exit 1; }
cd "$(dirname "$0")/.."
command -v orted >/dev/null || {
  echo "a bundle needs the launcher of Open MPI 4, which is missing here (Debian 13 has Open MPI 5): make it on Debian 12 or" \
    "Ubuntu 24.04, by docker/*.Dockerfile for instance" >&2
  exit 1
}

command -v patchelf >/dev/null || { echo "a bundle needs patchelf to set the paths of its libraries: install it" >&2; exit 1; }

# The programs run on any x86-64 processor.
build=build/bundle-$preset
targets=(megalith)
if [ $tests = ON ]; then
  targets+=(test_mpi bench_kernels bench_step)
  [ "$preset" = cpu ] || targets+=(test_gpu)
fi
cmake --preset "$preset" -B "$build" -DMEGALITH_NATIVE=OFF -DMEGALITH_TESTS=$tests -DMEGALITH_BENCH=$tests \
  -DMEGALITH_LIBRARY_FOLDER=lib -DMEGALITH_ZSH_FOLDER=share/zsh/site-functions \
  ${options[@]+"${options[@]}"} >/dev/null
said=$(cmake --build "$build" -j "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" --target "${targets[@]}" 2>&1) || {
  grep -vE '^\[[0-9]+/[0-9]+\]' <<<"$said" >&2
  echo "the build in $build failed" >&2
  exit 1
}
cmake --install "$build" --prefix "$out" --strip >/dev/null

if [ $tests = ON ]; then
  cmake --install "$build" --prefix "$out" --strip --component tests >/dev/null
  mkdir "$out/bench"
  cp bench/{gpu.sh,gpu.py,gaps.py,gpu_machine.py,parts.py,gpu_report.py,predictions.py,step.py,torch_step.py,torch_kernels.py,losses.py} \
    bench/fifty_steps.{sh,toml} "$out/bench/"
  bench/fifty_steps.sh prepare "$out/bin/megalith" "$out/fifty_steps" >/dev/null
  # bench_kernels --tune times the products of these.
  mkdir -p "$out/configs/hardware"
  cp configs/*.toml "$out/configs/"
  cp configs/hardware/*.toml "$out/configs/hardware/"
  for course in tiny small families muon; do  # those that the GPU's tests train
    [ ! -d "../shared/reference/$course" ] || { mkdir -p "$out/reference" && cp -r "../shared/reference/$course" "$out/reference/"; }
  done
  # The results file names the commit of the sources.
  if commit=$(git rev-parse HEAD 2>/dev/null); then
    git diff --quiet HEAD || commit+=" with changes"
    echo "$commit" > "$out/commit"
  fi
fi

# Open MPI finds its files below OPAL_PREFIX at the paths it was built for, relative to its own prefix.
path_of() { ompi_info --parseable --path "$1" | cut -d: -f3; }
prefix=$(path_of prefix) plugins=$(path_of pkglibdir) helps=$(path_of pkgdatadir) settings=$(path_of sysconfdir)
place() { echo "$out${1#"$prefix"}"; }
mkdir -p "$out/bin" "$out/lib" "$(place "$plugins")" "$(place "$helps")" "$out/etc"
cp -L "$(command -v orterun)" "$out/bin/mpirun"
cp -L "$(command -v orted)" "$out/bin/"
cp -r "$helps/." "$(place "$helps")"
cp "$settings"/openmpi-mca-params.conf "$out/etc/"
# Leave out the plugins for single kinds of networks: their libraries must fit the machine's driver.
of_one_network='lib(ucp|uct|fabric|ibverbs|psm|psm2|portals)[_a-z]*\.so'
for plugin in "$plugins"/*.so; do
  [[ $(ldd "$plugin") =~ $of_one_network ]] || cp -L "$plugin" "$(place "$plugins")"
done
# PMIx, which connects mpirun and srun to their ranks, may be in another folder.
pmix=$(dirname "$(readlink -f "$(ldconfig -p | awk '/libpmix\.so\.2 /{print $NF; exit}')")")
[ -d "$pmix/pmix" ] || { echo "found no plugins of PMIx in $pmix" >&2; exit 1; }
mkdir -p "$out/pmix/lib/pmix"
cp -L "$pmix"/pmix/*.so "$out/pmix/lib/pmix/"

# Copy what all of these need, recursively. Libraries that come with the C library belong to the machine.
the_machines='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|mvec)\.so.*|lib(cuda|cudart|cublas|cublasLt|nccl|nv[A-Za-z]*|cupti)[-._].*)$'
find "$out" -type f \( -name '*.so*' -o -path '*/bin/*' \) -print0 | xargs -0 ldd 2>/dev/null | awk '$2 == "=>" && $3 ~ "^/" {print $1, $3}' |
  sort -u | while read -r name file; do
    [[ $name =~ $the_machines ]] || [ -e "$out/lib/$name" ] || cp -L "$file" "$out/lib/$name"
  done

# A library with its own search path does not use the program's, and Debian's libmpi has one. So each gets the path.
find "$out" -type f \( -name '*.so*' -o -path '*/bin/mpirun' -o -path '*/bin/orted' \) -print0 | while IFS= read -rd '' file; do
  patchelf --force-rpath --set-rpath "\$ORIGIN/$(realpath --relative-to "$(dirname "$file")" "$out/lib")" "$file"
done

# Find the highest version of the C library that programs and libraries need, and which needs it.
needs=$(find "$out" -type f \( -name '*.so*' -o -path '*/bin/*' \) -print | while read -r file; do
  objdump -T "$file" 2>/dev/null | grep -oE 'GLIBC_[0-9.]+' | sort -u | sed "s|GLIBC_\(.*\)|\1 ${file##*/}|" || true
done | sort -V)
glibc=$(tail -n 1 <<<"$needs" | cut -d ' ' -f 1)
echo "$glibc" > "$out/c-library"
cp docker/c-library.sh "$out/"

for program in megalith mpirun; do
  cat > "$out/$program" <<'END'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
"$here/c-library.sh" || exit 1
export OPAL_PREFIX="$here" OPAL_SYSCONFDIR="$here/etc" PMIX_PKGLIBDIR="$here/pmix/lib/pmix"
# Without a remote shell only this machine can be used, and Open MPI needs a setting for that.
command -v ssh >/dev/null || command -v rsh >/dev/null || export OMPI_MCA_plm="${OMPI_MCA_plm:-isolated}"
END
  echo "exec \"\$here/bin/$program\" \"\$@\"" >> "$out/$program"
  chmod +x "$out/$program"
done

size=$(du -sm "$out" | cut -f 1)
echo "$out: $size MiB, needs a C library of at least $glibc ($(awk -v v="$glibc" '$1 == v {print $2}' <<<"$needs" | sort -u | paste -sd ' '))"
if [ $packed = ON ]; then
  # The programs have most of their code in common: a dictionary larger than one of them holds it once.
  tar -C "$(dirname "$out")" -c "$(basename "$out")" | xz -T 1 --lzma2=preset=6,dict=128MiB > "$out.tar.xz"
  (cd "$(dirname "$out")" && sha256sum "$(basename "$out").tar.xz" > "$(basename "$out").tar.xz.sha256")
  bytes=$(stat -c %s "$out.tar.xz")
  echo "$out.tar.xz: $((bytes >> 20)) MiB"
  if [ $tests = ON ]; then
    beside=$(git ls-files -z 2>/dev/null | xargs -0r stat -c %s | awk '{n += $1} END {print n + 0}')
    both=$((bytes + beside))
    echo "with this repository's files: $((both >> 20)) MiB"
    [ "$both" -le $((64 << 20)) ] || {
      echo "that is more than 64 MiB; name one architecture, as in --architectures 90a" >&2
      exit 1
    }
  fi
fi
