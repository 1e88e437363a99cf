#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bundle.sh [--out FILE] LICENCES_SH FILE...: a compressed tar of programs, of the shared libraries
# that they need and of their data, for machines with neither Debian's packages nor Bazel.
# ./bazelw run //tools:bundle calls it with what a release has. Not in it: glibc, and NVIDIA's
# libraries, which come from the machine.
#
#   millrace/tools/millrace, millrace/examples/mnist_replica, ...   every file where Bazel has it,
#              programs stripped; they find the libraries wherever the folder is moved
#   millrace/lib/   the libraries
#   millrace/licenses/   what each library and each header compiled in asks to come with it
set -eu

out=${BUILD_WORKSPACE_DIRECTORY:-$PWD}/millrace-bundle.tar.xz
most=$((60 * 1024 * 1024))

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/millrace
mkdir -p "$root/lib"

while [ $# -gt 0 ]; do
  case $1 in
    --out)
      out=$2
      case $out in /*) ;; *) out=${BUILD_WORKING_DIRECTORY:-$PWD}/$out ;; esac
      shift
      ;;
    */licences.sh) licences=$1 ;;
    *)
      # The compiler with LLVM in it takes the place of the one without.
      place=$root/$(printf '%s\n' "$1" | sed 's#jit/bundled/#jit/#')
      mkdir -p "$(dirname "$place")"
      cp -L "$1" "$place"
      ;;
  esac
  shift
done
chmod -R u+w "$root"

# What the system's glibc brings is the system's.
glibc='/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|anl|mvec|nss_[a-z]+))\.so'
is_elf() { [ "$(head -c 4 "$1" | tail -c 3)" = ELF ]; }
find "$root" -type f | while read -r file; do
  if is_elf "$file"; then printf '%s\n' "$file"; fi
done >"$work/programs"
xargs -d '\n' ldd <"$work/programs" 2>/dev/null |
  awk '/=> \// { print $3 } /not found/ { print "missing: " $1 > "/dev/stderr"; exit 1 }' |
  sort -u | { grep -Ev "$glibc" || true; } |
  while read -r library; do cp -L "$library" "$root/lib/"; done
chmod -R u+w "$root"
# Of the packages that the libraries came from, and of what is compiled into the programs.
xargs -d '\n' "$licences" "$root/licenses" <"$work/programs"
# An rpath of the old kind: the libraries of libraries are found by it, too.
while read -r file; do
  strip --strip-unneeded "$file"
  up=$(dirname "${file#"$root/"}" | sed 's#[^/][^/]*#..#g')
  patchelf --force-rpath --set-rpath "\$ORIGIN/$up/lib" "$file"
done <"$work/programs"
for file in "$root"/lib/*; do
  strip --strip-unneeded "$file"
  patchelf --force-rpath --set-rpath "\$ORIGIN" "$file"
done

# Programs have most of their code in common: the window has to reach back over several of them.
# Unpacking takes as much memory. Calls are written with absolute addresses, which repeat.
tar -C "$work" --sort=name --owner=0 --group=0 --mtime=@0 -cf - millrace |
  xz -T2 --x86 --lzma2=preset=6,dict=128MiB >"$work/bundle.tar.xz"
size=$(wc -c <"$work/bundle.tar.xz")
if [ "$size" -gt "$most" ]; then
  echo "bundle: $size bytes are more than the $most that a bundle may have; its largest files:" >&2
  find "$root" -type f -size +1M -exec du -h {} + | sort -rh | head -n 12 >&2
  exit 1
fi
mv "$work/bundle.tar.xz" "$out"
echo "$out: $((size / 1024)) KiB, $(wc -l <"$work/programs") programs," \
  "$(find "$root/lib" -type f | wc -l) libraries"
