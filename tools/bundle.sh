#!/bin/sh
# bundle.sh [--out FILE] FILE...: a compressed tar of programs, of the shared libraries that they
# need and of their data, for machines with neither Debian's packages nor Bazel.
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
# Licences: of the package that each library came from, and of what is compiled into the programs.
mkdir -p "$root/licenses"
package_of() {
  # Debian knows some files by their place under /lib, where /usr/lib is meant by both.
  dpkg -S "$1" 2>/dev/null || dpkg -S "${1#/usr}" 2>/dev/null || dpkg -S "/usr$1" 2>/dev/null
}
{
  xargs -d '\n' ldd <"$work/programs" 2>/dev/null |
    awk '/=> \// { print $3 }' | sort -u | { grep -Ev "$glibc" || true; } |
    while read -r library; do
      owner=$(package_of "$(realpath "$library")") || case $library in
        "$root"/*) continue ;;
        *)
          echo "bundle: no package owns $library, so that its licence is not known" >&2
          exit 1
          ;;
      esac
      echo "${owner%%:*}"
    done
  printf '%s\n' libcli11-dev libeigen3-dev librandom123-dev nlohmann-json3-dev llvm-19-dev
} | sort -u >"$work/packages"
while read -r package; do
  text=/usr/share/doc/$package/copyright
  if [ ! -e "$text" ]; then
    echo "bundle: $text, the licence of what the bundle has, is missing" >&2
    exit 1
  fi
  cp -L "$text" "$root/licenses/$package"
done <"$work/packages"
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
# Unpacking takes as much memory.
tar -C "$work" --sort=name --owner=0 --group=0 --mtime=@0 -cf - millrace |
  xz -T2 --lzma2=preset=6,dict=64MiB >"$work/bundle.tar.xz"
size=$(wc -c <"$work/bundle.tar.xz")
if [ "$size" -gt "$most" ]; then
  echo "bundle: $size bytes are more than the $most that a bundle may have; its largest files:" >&2
  find "$root" -type f -size +1M -exec du -h {} + | sort -rh | head -n 12 >&2
  exit 1
fi
mv "$work/bundle.tar.xz" "$out"
echo "$out: $((size / 1024)) KiB, $(wc -l <"$work/programs") programs," \
  "$(find "$root/lib" -type f | wc -l) libraries"
