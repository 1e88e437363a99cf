#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deb.sh INSTALL_SH FILE... --out=DIR: Debian packages of what INSTALL_SH installs, for this release of
# Debian. ./bazelw run //tools/install:deb calls it with the files.
#
#   libmillrace0.2   the shared library
#   libmillrace-dev  headers, the static library, pkg-config and CMake files
#   millrace         the command, its manual page and completion, the compiler of fused loops
set -eu

install=$1
shift
out=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/files"
while [ $# -gt 0 ]; do
  case $1 in
    --out=*) out=${1#--out=} ;;
    -*)
      echo "deb: unknown option $1; usage: ./bazelw run //tools/install:deb -- --out=DIR" >&2
      exit 2
      ;;
    *) printf '%s\n' "$1" >>"$work/files" ;;
  esac
  shift
done
case $out in /*) ;; *) out=${BUILD_WORKING_DIRECTORY:-$PWD}/$out ;; esac
if ! grep -q '/libmillrace\.so$' "$work/files"; then
  echo "deb: libmillrace.so is not among the files" >&2
  exit 1
fi

# From here on every path is below $work/NAME/usr.
# shellcheck disable=SC2016  # expanded by the inner shell
DESTDIR=$work/all xargs -d '\n' -a "$work/files" sh -c '"$0" "$@" --prefix=/usr >/dev/null' "$install"
version=$(sed -n 's/^Version: //p' "$work/all/usr/lib/pkgconfig/millrace.pc")
architecture=$(dpkg --print-architecture)
runtime=libmillrace${version%.*}

# move PACKAGE PATH...: from the folder with everything into the package's.
move() {
  package=$1
  shift
  for path in "$@"; do
    mkdir -p "$work/$package/$(dirname "$path")"
    mv "$work/all/$path" "$work/$package/$path"
  done
}
# Debian's form of a copyright file: what the project is, what it has from others, the licence.
{
  echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
  echo 'Upstream-Name: Millrace'
  echo 'Comment:'
  sed -e 's/^$/./' -e 's/^/ /' "$work/all/usr/share/doc/millrace/NOTICE"
  echo ' .'
  echo ' The licences of what is compiled into the files of this package are in the folder licenses beside'
  echo ' this file; libraries that it depends on come with their own.'
  printf '\nFiles: *\nCopyright: The Millrace authors\nLicense: Apache-2.0\n'
  printf '\nLicense: Apache-2.0\n'
  echo ' On Debian systems the text of the Apache License, Version 2.0, is in'
  echo ' /usr/share/common-licenses/Apache-2.0.'
} >"$work/copyright"
"$(grep '/licences\.sh$' "$work/files")" "$work/licenses"
rm -r "$work/all/usr/share/doc"
(cd "$work/all" && find usr/lib -name 'libmillrace.so.*') >"$work/shared"
# shellcheck disable=SC2046  # one argument per file
move "$runtime" $(cat "$work/shared")
move millrace usr/bin/millrace usr/lib/libmillrace_jit.so
find "$work/all" -depth -type d -empty -delete
mv "$work/all" "$work/libmillrace-dev"

"$work/millrace/usr/bin/millrace" man >"$work/millrace.1"
install -D -m 644 "$work/millrace.1" "$work/millrace/usr/share/man/man1/millrace.1"
gzip -9n "$work/millrace/usr/share/man/man1/millrace.1"
"$work/millrace/usr/bin/millrace" completion bash >"$work/bash"
install -D -m 644 "$work/bash" "$work/millrace/usr/share/bash-completion/completions/millrace"
"$work/millrace/usr/bin/millrace" completion zsh >"$work/zsh"
install -D -m 644 "$work/zsh" "$work/millrace/usr/share/zsh/vendor-completions/_millrace"

# depends FILE: the packages of the libraries that the file names, with their versions here.
depends() {
  readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | while read -r name; do
    path=$(ldd "$1" | awk -v name="$name" '$1 == name { print $3 }')
    if [ -z "$path" ] && [ -e "/lib64/$name" ]; then path=/lib64/$name; fi
    real=$(realpath "$path")
    owner=$(dpkg -S "$real" 2>/dev/null || dpkg -S "${real#/usr}" 2>/dev/null) || {
      echo "deb: no package owns $real, which $1 needs" >&2
      exit 1
    }
    owner=${owner%%:*}
    # Without the revision: a library of the same upstream version does.
    printf '%s (>= %s)\n' "$owner" "$(dpkg-query -W -f='${Version}\n' "$owner" |
      sed -n '1{s/-[^-]*$//;p}')"
  done | sort -u | paste -sd, - | sed 's/,/, /g'
}

# pack PACKAGE SECTION DEPENDS SUMMARY TEXT: writes control files and builds it.
pack() {
  root=$work/$1
  install -D -m 644 "$work/copyright" "$root/usr/share/doc/$1/copyright"
  cp -r "$work/licenses" "$root/usr/share/doc/$1/licenses"
  chmod -R u+rwX,go+rX,go-w "$root"
  mkdir "$root/DEBIAN"
  cat >"$root/DEBIAN/control" <<CONTROL
Package: $1
Version: $version-1
Architecture: $architecture
Section: $2
Priority: optional
Maintainer: The Millrace authors <millrace@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: $3
Description: $4
 $5
CONTROL
  if [ "$2" = libs ]; then printf 'activate-noawait ldconfig\n' >"$root/DEBIAN/triggers"; fi
  (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  dpkg-deb --root-owner-group -Zxz --build "$root" "$out/${1}_$version-1_$architecture.deb" >/dev/null
  echo "$out/${1}_$version-1_$architecture.deb"
}

mkdir -p "$out"
library=$(find "$work/$runtime" -name 'libmillrace.so.*' -type f)
library_depends=$(depends "$library")
command_depends=$(depends "$work/millrace/usr/bin/millrace")
jit_depends=$(depends "$work/millrace/usr/lib/libmillrace_jit.so")
pack "$runtime" libs "$library_depends" "dataflow graphs on one machine or many: the library" \
  "Programs that were built with libmillrace-dev need it."
pack libmillrace-dev libdevel "$runtime (= $version-1)" \
  "dataflow graphs on one machine or many: to build programs" \
  "C++ headers, a static library, files for pkg-config and CMake."
pack millrace utils "$command_depends, $jit_depends" \
  "dataflow graphs on one machine or many: the command" \
  "Servers of a cluster, and tools that show where nodes run and why."
