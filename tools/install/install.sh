#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh FILE... --prefix=DIR: puts what others build with under DIR (default /usr/local;
# $DESTDIR before it, as packagers want it). ./bazelw run //tools/install calls it with the files.
#
#   bin/millrace                          the command
#   include/millrace/*.h                  the public headers
#   lib/libmillrace.so.MAJOR.MINOR.PATCH  the engine, with its links, if it is among the files
#   lib/libmillrace.a                     the same for programs that are to stand alone
#   lib/libmillrace_jit.so                the compiler of fused loops, which bin/millrace loads
#   lib/pkgconfig/millrace.pc             pkg-config --cflags --libs millrace
#   lib/cmake/Millrace/*.cmake            find_package(Millrace), target Millrace::millrace
#   share/millrace/millrace.BUILD         for Bazel's new_local_repository
#   share/doc/millrace/                   LICENSE, NOTICE; licenses/: those of others, by package
set -eu

prefix=/usr/local
files=$(mktemp)
trap 'rm -f "$files"' EXIT
while [ $# -gt 0 ]; do
  case $1 in
    --prefix=*) prefix=${1#--prefix=} ;;
    --prefix)
      prefix=$2
      shift
      ;;
    -*)
      echo "install: unknown option $1; usage: ./bazelw run //tools/install -- --prefix=DIR" >&2
      exit 2
      ;;
    *) printf '%s\n' "$1" >>"$files" ;;
  esac
  shift
done
case $prefix in /*) ;; *) prefix=${BUILD_WORKING_DIRECTORY:-$PWD}/$prefix ;; esac
root=${DESTDIR:-}$prefix

put() { install -D -m "$1" "$2" "$root/$3"; }
fill() {
  sed -e "s#@PREFIX@#$prefix#g" -e "s#@VERSION@#$version#g" -e "s#@LIBS@#$libs#g" \
    -e "s#@SHARED_LIBS@#$shared_libs#g" "$1"
}

version=$(sed -n 's/.*define MILLRACE_VERSION "\(.*\)".*/\1/p' "$(grep '/version\.h$' "$files")")
libs=$(cat "$(grep '/libmillrace\.flags$' "$files")")
[ -n "$version" ] && [ -n "$libs" ]
# What programs link besides the engine: the shared library brings its own.
shared_libs=$libs
if grep -q '/libmillrace\.so$' "$files"; then shared_libs=; fi
while read -r file; do
  name=$(basename "$file")
  case $file in
    */millrace/*.h) put 644 "$file" "include/millrace/$name" ;;
    *.a) put 644 "$file" "lib/$name" ;;
    */libmillrace.so)
      put 755 "$file" "lib/libmillrace.so.$version"
      ln -sf "libmillrace.so.$version" "$root/lib/libmillrace.so.${version%.*}"
      ln -sf "libmillrace.so.${version%.*}" "$root/lib/libmillrace.so"
      ;;
    *.so) put 755 "$file" "lib/$name" ;;
    */millrace) put 755 "$file" "bin/millrace" ;;
    *.pc.in)
      fill "$file" >"$files.out"
      put 644 "$files.out" "lib/pkgconfig/millrace.pc"
      ;;
    *.cmake.in)
      fill "$file" >"$files.out"
      put 644 "$files.out" "lib/cmake/Millrace/MillraceConfig.cmake"
      cat >"$files.out" <<VERSION
set(PACKAGE_VERSION "$version")
# Before 1.0 a minor version may change what programs see.
if(PACKAGE_FIND_VERSION_MAJOR EQUAL ${version%%.*} AND NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
VERSION
      put 644 "$files.out" "lib/cmake/Millrace/MillraceConfigVersion.cmake"
      rm -f "$files.out"
      ;;
    */libmillrace.flags) ;;
    */millrace.BUILD) put 644 "$file" "share/millrace/$name" ;;
    LICENSE | NOTICE | */LICENSE | */NOTICE) put 644 "$file" "share/doc/millrace/$name" ;;
    */licences.sh) ;;
    *)
      echo "install: no place for $file" >&2
      exit 1
      ;;
  esac
done <"$files"
# Of what the programs and libraries contain and need.
grep -E '\.so$|/millrace$' "$files" |
  xargs -d '\n' "$(grep '/licences\.sh$' "$files")" "$root/share/doc/millrace/licenses"
echo "millrace $version is in $root"
