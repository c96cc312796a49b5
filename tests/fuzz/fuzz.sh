#!/usr/bin/env bash
# Runs the targets of targets.h under libFuzzer, with the address and undefined-behaviour sanitizers, from the kept seeds
# on. Needs clang and its runtime (Debian: clang libclang-rt-dev). A fault ends its target: the input lies in
# build/fuzz/faults, and says what it is when it is given to build/fuzz/fuzz.
#   fuzz.sh [SECONDS [TARGET...]]     of each target; default: 600 each, of all
#   MEGALITH_FUZZ_TARGET=layout build/fuzz/fuzz build/fuzz/faults/layout-crash-...
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-600}
shift || true
here=tests/fuzz out=build/fuzz jobs=${JOBS:-$(nproc)}
mapfile -t targets < <([ $# -gt 0 ] && printf '%s\n' "$@" || ls -d $here/seeds/*/ | xargs -n1 basename | grep -v '^beside_')

# The targets, and the source of each header that one of these includes; first those that are not named as their headers.
sources=($here/{fuzzer,targets}.cpp configs/*.cpp data/{samples/token_format_*,tokenizers/byte_tokenizer,tokenizers/pattern_compiler}.cpp kernels/system/mapped_file.cpp)
read_files=("${sources[@]}")
for ((i = 0; i < ${#read_files[@]}; i++)); do
  for header in $(sed -n 's/^#include "\(.*\)".*/\1/p' "${read_files[i]}"); do
    for file in "$header" "${header%.h}.cpp"; do
      [ -f "$file" ] && [[ " ${read_files[*]} " != *" $file "* ]] || continue
      read_files+=("$file")
      case $file in *.cpp) sources+=("$file") ;; esac
    done
  done
done
packages='hdf5 libxxhash libutf8proc fmt tomlplusplus nlohmann_json'
sanitizers=-fsanitize=address,undefined
flags="-std=c++20 -O2 -gline-tables-only -march=native -fno-omit-frame-pointer -fno-sanitize-recover=all -I. $sanitizers,fuzzer-no-link
  -fsanitize-coverage-ignorelist=$here/uncounted.txt
  -DMEGALITH_SOURCE_DIR=\"$PWD\" $(pkg-config --cflags $packages)"
mkdir -p $out/objects $out/faults
# No target reads a hardware profile.
profiles=$out/hardware_profiles.cpp
sed 's/@hardware_profiles@/{"none", ""}/' configs/hardware_profiles.cpp.in >$profiles.new
cmp -s $profiles.new $profiles || mv $profiles.new $profiles
sources+=($profiles)
object_of() { echo "$out/objects/${1//\//_}.o"; }
compile() {  # what has not changed is not compiled again
  object=$(object_of "$1")
  [ -f "$object" ] && [ -z "$(find "$1" configs checkpoints data kernels/tensor kernels/system tests/fuzz -name '*.h' -newer "$object" -print -quit)" ] &&
    [ "$object" -nt "$1" ] || ${CCACHE:-$(command -v ccache || true)} clang++ $flags -c "$1" -o "$object"
}
export -f object_of compile
export out flags
printf '%s\n' "${sources[@]}" | xargs -P "$jobs" -I{} bash -c 'compile {}'
objects=()  # those of sources that have since moved stay in the folder and are not linked
for source in "${sources[@]}"; do objects+=("$(object_of "$source")"); done
[ -f $out/fuzz ] && [ -z "$(find "${objects[@]}" -newer $out/fuzz -print -quit)" ] ||
  clang++ $sanitizers,fuzzer "${objects[@]}" -o $out/fuzz $(pkg-config --libs $packages)

# Freed memory stays in the caches, and of the calls that led to an allocation the last are kept: a third faster.
export ASAN_OPTIONS=${ASAN_OPTIONS:-quarantine_size_mb=8:malloc_context_size=4}
status=0 total=0
for target in "${targets[@]}"; do
  mkdir -p $out/corpus/"$target"
  dictionary=()
  [ -f $here/"$target".dict ] && dictionary=(-dict=$here/"$target".dict)
  # Room for the largest seed.
  largest=$(find $here/seeds/"$target" -type f -printf '%s\n' | sort -n | tail -n 1)
  log=$out/$target.log
  MEGALITH_FUZZ_TARGET=$target $out/fuzz -max_total_time="$seconds" -max_len=$((largest > 4096 ? largest : 4096)) \
    -timeout=60 -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix=$out/faults/"$target"- "${dictionary[@]}" \
    $out/corpus/"$target" $here/seeds/"$target" >"$log" 2>&1 || { status=1; echo "FAULT in $target; see $log"; }
  count=$(awk '/stat::number_of_executed_units/ {print $2}' "$log")
  echo "$target: ${count:-0} executions"
  total=$((total + ${count:-0}))
done
echo "$total executions in all"
exit $status
