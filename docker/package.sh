#!/usr/bin/env bash
# Makes the release of Megalith for CPUs, for any x86-64 processor: a package for this system's Debian or Ubuntu, and a
# portable archive where there is a launcher of Open MPI 4 (docker/bundle.sh), each with its checksum.
#   docker/package.sh OUT [--deb]       --deb: the package alone
# Then:  apt install OUT/megalith_VERSION_amd64.deb   or   tar -xf OUT/megalith-VERSION-SYSTEM.tar.xz
set -euo pipefail
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
if [ $# -lt 1 ] || [[ $1 == -* ]]; then usage; fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
only_deb=false
case ${2:-} in '') ;; --deb) only_deb=true ;; *) usage ;; esac
cd "$(dirname "$0")/.."
command -v dpkg-shlibdeps >/dev/null || {
  echo "a .deb is made with dpkg-shlibdeps of the package dpkg-dev: run docker/install-packages.sh" >&2
  exit 1
}
version=$(sed -n 's/^project(megalith VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
system=$(. /etc/os-release && echo "$ID$VERSION_ID")
# A newer version, and the same version for a newer system, count as newer.
package=$version-1~${system//[^a-z0-9]/.}
architecture=$(dpkg --print-architecture)
maintainer='The Megalith developers <maintainers@megalith.invalid>'
date=$(git log -1 --format=%aD 2>/dev/null || date -R)
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

build=build/bundle-cpu
if ! $only_deb && command -v orted >/dev/null; then
  folder=$out/megalith-$version-$system-$architecture
  [ ! -e "$folder" ] || { echo "$folder is there already; name another folder, or remove it" >&2; exit 1; }
  docker/bundle.sh "$folder" cpu --packed
  rm -rf "$folder"
fi

# Libraries that only Megalith uses are in a folder of their own.
cmake --preset cpu -B "$build" -DMEGALITH_NATIVE=OFF -DMEGALITH_TESTS=OFF -DMEGALITH_BENCH=OFF \
  -DMEGALITH_LIBRARY_FOLDER=lib/megalith -DMEGALITH_ZSH_FOLDER=share/zsh/vendor-completions >/dev/null
cmake --build "$build" -j "$jobs" --target megalith | tail -n 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
DESTDIR=$root cmake --install "$build" --prefix /usr --strip >/dev/null
find "$root/usr/lib" -name '*.so' -exec strip --strip-unneeded -R .comment -R .note {} +
strip -R .comment -R .note "$root/usr/bin/megalith"

# Debian's policy: compressed man pages and changelogs, the licence as `copyright`.
documents=$root/usr/share/doc/megalith
gzip -9n "$root/usr/share/man/man1/megalith.1"
gzip -9nc CHANGELOG.md > "$documents/changelog.gz"
rm "$documents/CHANGELOG.md"
mv "$documents/LICENSE" "$documents/copyright"
gzip -9nc > "$documents/changelog.Debian.gz" <<END
megalith ($package) unstable; urgency=medium

  * Built from the sources of version $version; changelog.gz says what changed.

 -- $maintainer  $date
END

mkdir -p "$work/debian" "$root/DEBIAN"
printf 'Source: megalith\n\nPackage: megalith\nArchitecture: any\n' > "$work/debian/control"
mapfile -t programs < <(find "$root/usr/bin" "$root/usr/lib" -type f)
libraries=$(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info -l"$root/usr/lib/megalith" "${programs[@]/#/-e}" 2>"$work/said") || {
  cat "$work/said" >&2
  exit 1
}
cat > "$root/DEBIAN/control" <<END
Package: megalith
Version: $package
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -sk "$root/usr" | cut -f 1)
Depends: ${libraries#shlibs:Depends=}, openmpi-bin
Section: science
Priority: optional
Description: trainer of GPT-2 style language models
 Megalith turns a folder of texts into tokens, trains a language model on them
 on one processor or on many, and lets the model write. It plans memory and
 time of a training beforehand, resumes from its checkpoints on any number of
 processes, and exports models for the library transformers.
 .
 This package computes on CPUs; nothing in it uses a GPU.
END
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums)
find "$root" -type d -exec chmod 755 {} +
find "$root/usr/share" -type f -exec chmod 644 {} +
find "$root/usr/lib" -type f -exec chmod 644 {} +
deb=megalith_${package}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$out/$deb" >/dev/null
(cd "$out" && sha256sum "$deb" > "$deb.sha256")
echo "$out/$deb: $(($(stat -c %s "$out/$deb") >> 10)) KiB, depends on ${libraries#shlibs:Depends=}, openmpi-bin"
