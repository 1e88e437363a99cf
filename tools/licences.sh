#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# licences.sh TO [FILE...]: puts into the folder TO the licences of what programs and libraries of
# this project contain, as Debian has them, one file per package: of what has its headers compiled
# into them, and of each shared library that one of the FILEs needs (glibc's, which are the
# system's, aside). Fails where a licence is not to be found.
set -eu

to=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$to"

# With code in their headers. LLVM's is also linked into the bundle's compiler.
printf '%s\n' libabsl-dev libcli11-dev libeigen3-dev libfmt-dev libgrpc++-dev libprotobuf-dev \
  librandom123-dev libspdlog-dev llvm-19-dev nlohmann-json3-dev >"$work/packages"

package_of() {
  # Debian knows some files by their place under /lib, where /usr/lib is meant by both.
  dpkg -S "$1" 2>/dev/null || dpkg -S "${1#/usr}" 2>/dev/null || dpkg -S "/usr$1" 2>/dev/null
}

glibc='/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|anl|mvec|nss_[a-z]+))\.so'
for file in "$@"; do
  # A script, a static library or data has none: ldd says so and fails.
  ldd "$file" 2>/dev/null >"$work/needed" || continue
  awk '/=> \// { print $3 }' "$work/needed" | { grep -Ev "$glibc" || true; } >>"$work/libraries"
done
touch "$work/libraries"
sort -u "$work/libraries" | while read -r library; do
  real=$(realpath "$library")
  owner=$(package_of "$real") || {
    # Of this project, beside those that need it.
    case ${real##*/} in libmillrace*) continue ;; esac
    echo "licences: no package owns $real, so that its licence is not known" >&2
    exit 1
  }
  echo "${owner%%:*}" >>"$work/packages"
done
sort -u "$work/packages" | while read -r package; do
  text=/usr/share/doc/$package/copyright
  if [ ! -e "$text" ]; then
    echo "licences: $text, the licence of what is shipped, is missing: install $package" >&2
    exit 1
  fi
  cp -L "$text" "$to/$package"
  chmod 644 "$to/$package"
done
