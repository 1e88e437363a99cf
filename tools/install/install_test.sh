#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install_test.sh INSTALL_SH FILE...: what is installed is enough to build and run a program with
# pkg-config and with CMake, at a place that it was moved to by DESTDIR.
set -eu
install=$1
shift
here=$(dirname "$install")

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT
"$install" "$@" --prefix="$there/prefix" >"$there/said"
grep -q '^millrace [0-9.]* is in ' "$there/said" || fail "$(cat "$there/said")"
"$install" "$@" --prefx=/nowhere 2>"$there/said" && fail "a mistyped option was taken"
grep -q 'unknown option --prefx' "$there/said" || fail "$(cat "$there/said")"
DESTDIR=$there/staged "$install" "$@" --prefix=/opt/millrace >"$there/said"
grep -q '^prefix=/opt/millrace$' "$there/staged/opt/millrace/lib/pkgconfig/millrace.pc" ||
  fail "DESTDIR is in the prefix"

doc=$there/prefix/share/doc/millrace
cmp -s "$doc/LICENSE" "$(printf '%s\n' "$@" | grep -E '(^|/)LICENSE$')" || fail "no licence"
grep -q 'Protocol Buffers' "$doc/NOTICE" || fail "no notices"
# Of what is compiled in, and of a library that is loaded.
for text in nlohmann-json3-dev libeigen3-dev llvm-19-dev libgrpc++1.51 libprotobuf32 zlib1g; do
  grep -qi 'license' "$doc/licenses/$text" || fail "no licence of $text: $(ls "$doc/licenses")"
done

"$there/prefix/bin/millrace" --version | grep -q '^millrace ' || fail "the command does not run"
cp "$here/example.cc" "$there/example.cc"
cd "$there"
PKG_CONFIG_PATH=$there/prefix/lib/pkgconfig
export PKG_CONFIG_PATH
pkg-config --exists millrace || fail "pkg-config does not find millrace"
# shellcheck disable=SC2046  # one argument per flag
g++ -O0 -Wall -Wextra -Wpedantic -Werror example.cc -o example $(pkg-config --cflags --libs millrace)
LD_LIBRARY_PATH=$there/prefix/lib
export LD_LIBRARY_PATH
[ "$(./example)" = "w = 2.000" ] || fail "the program says: $(./example 2>&1)"
readelf -d example | grep -q 'NEEDED.*libmillrace\.so\.[0-9]' || fail "no shared library is linked"
nm -D --defined-only "$there/prefix/lib/libmillrace.so" >"$there/symbols"
grep -q ' T _ZN8millrace7Session6Create' "$there/symbols" || fail "the library exports no session"
c++filt <"$there/symbols" | grep -E 'absl::|google::protobuf|grpc::|llvm::|dnnl::' &&
  fail "the library exports these"
# shellcheck disable=SC2046  # one argument per flag
g++ -O0 example.cc -o alone $(pkg-config --cflags millrace) "$there/prefix/lib/libmillrace.a" \
  $(pkg-config --static --libs millrace | sed 's/-lmillrace//')
[ "$(./alone)" = "w = 2.000" ] || fail "the program that stands alone says: $(./alone 2>&1)"
if command -v cmake >/dev/null 2>&1; then
  mkdir cmake
  cp example.cc cmake/
  cp "$OLDPWD/$here/CMakeLists.example.txt" cmake/CMakeLists.txt
  cmake -S cmake -B cmake/build -DCMAKE_PREFIX_PATH="$there/prefix" >"$there/said" 2>&1 ||
    fail "cmake: $(cat "$there/said")"
  cmake --build cmake/build >"$there/said" 2>&1 || fail "cmake --build: $(cat "$there/said")"
  [ "$(cmake/build/example)" = "w = 2.000" ] || fail "the program of CMake says otherwise"
else
  echo "not run: cmake is not installed"
fi
echo "the installed library builds programs"
