#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deb_test.sh DEB_SH INSTALL_SH FILE...: the packages, unpacked into a bare folder, are enough to build
# and run a program with pkg-config, CMake and Bazel; they leak no symbol of what the engine is made
# of, and say what they need.
set -eu
deb=$1
here=$(realpath "$(dirname "$deb")")
checkout=$(dirname "$(readlink -f "$deb")")/../..
shift

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

there=$(mktemp -d)
trap 'chmod -R u+w "$there"; rm -rf "$there"' EXIT
"$deb" "$@" --out="$there/packages" >"$there/said"
"$deb" "$@" --ouut=/nowhere 2>"$there/said" && fail "a mistyped option was taken"
for package in "$there"/packages/*.deb; do
  dpkg-deb -x "$package" "$there/root"
  dpkg-deb -f "$package" Depends | grep -q '[a-z]' || fail "$package depends on nothing"
done
set -- "$there"/packages/*.deb
[ $# -eq 3 ] || fail "there are $# packages"
runtime=$(echo "$there"/packages/libmillrace0*.deb)
[ "$(wc -c <"$runtime")" -le $((15 * 1024 * 1024)) ] || fail "$runtime is larger than 15 MiB"
dpkg-deb -f "$runtime" Depends | grep -q 'libprotobuf32 (>=' || fail "$(dpkg-deb -f "$runtime" Depends)"
for package in libmillrace0.2 libmillrace-dev millrace; do
  doc=$there/root/usr/share/doc/$package
  head -n 1 "$doc/copyright" | grep -q '^Format: .*/copyright-format/1.0/$' ||
    fail "the licence of $package is not in the form of Debian"
  for line in '^Files: \*$' '^Copyright: .' '^License: Apache-2.0$' ' Protocol Buffers'; do
    grep -q "$line" "$doc/copyright" || fail "no $line in the copyright file of $package"
  done
  # Fields and their continuation only: a line that is neither ends what parsers read.
  grep -Ev '^([A-Z][A-Za-z-]*:.*| .*|)$' "$doc/copyright" && fail "not a field in that of $package"
  for text in nlohmann-json3-dev libeigen3-dev libprotobuf-dev llvm-19-dev; do
    grep -qi 'license' "$doc/licenses/$text" || fail "no licence of $text in $package"
  done
done

usr=$there/root/usr
[ "$(readlink "$usr/lib/libmillrace.so")" = libmillrace.so.0.2 ] || fail "no link to build with"
nm -D --defined-only -C "$usr/lib/libmillrace.so" | awk '{ $1 = $2 = ""; print }' >"$there/symbols"
grep -q 'millrace::Session::Create' "$there/symbols" || fail "the library exports no session"
grep -E '(^|[ <(])(absl|google|grpc|llvm|dnnl|std)::' "$there/symbols" | grep -v 'millrace::' &&
  fail "the library exports these"
grep -E 'absl::|google::protobuf|grpc::|llvm::' "$there/symbols" && fail "types of others in these"

LD_LIBRARY_PATH=$usr/lib
export LD_LIBRARY_PATH
"$usr/bin/millrace" --version | grep -q '^millrace 0' || fail "the command does not run"
gzip -dc "$usr/share/man/man1/millrace.1.gz" | grep -q '^.TH MILLRACE' || fail "no manual page"
bash -n "$usr/share/bash-completion/completions/millrace" || fail "completion is no bash"

mkdir "$there/program"
cp "$here/example.cc" "$there/program/"
cp "$here/CMakeLists.example.txt" "$there/program/CMakeLists.txt"
cd "$there/program"
# shellcheck disable=SC2046  # one argument per flag
g++ -O0 example.cc -o example $(PKG_CONFIG_LIBDIR=$usr/lib/pkgconfig pkg-config \
  --define-variable=prefix="$usr" --cflags --libs millrace)
[ "$(./example)" = "w = 2.000" ] || fail "pkg-config: $(./example 2>&1)"
readelf -d example | grep -q 'NEEDED.*libmillrace.so.0.2' || fail "the program has no shared library"
if command -v cmake >/dev/null 2>&1; then
  cmake -S . -B cmake -DCMAKE_PREFIX_PATH="$usr" >"$there/said" 2>&1 || fail "$(cat "$there/said")"
  cmake --build cmake >"$there/said" 2>&1 || fail "$(cat "$there/said")"
  [ "$(cmake/example)" = "w = 2.000" ] || fail "CMake: $(cmake/example 2>&1)"
else
  echo "not run: cmake is not installed"
fi
if command -v bazel >/dev/null 2>&1; then
  # The rules that Bazel takes for granted, from where this checkout has them: nothing is fetched.
  sed -e '/^workspace/d' -e '/^load/,$d' -e "s#\"third_party/#\"$checkout/third_party/#" \
    "$checkout/WORKSPACE" >WORKSPACE
  cat >>WORKSPACE <<WORKSPACE
new_local_repository(
    name = "millrace",
    build_file = "$usr/share/millrace/millrace.BUILD",
    path = "$usr",
)
WORKSPACE
  cat >BUILD <<'BUILD'
cc_binary(
    name = "bazel_example",
    srcs = ["example.cc"],
    copts = ["-std=c++20"],
    deps = ["@millrace//:millrace"],
)
BUILD
  rm -rf cmake
  bazel --output_user_root="$there/bazel" build //:bazel_example >"$there/said" 2>&1 ||
    fail "$(cat "$there/said")"
  [ "$(bazel-bin/bazel_example)" = "w = 2.000" ] || fail "Bazel: $(bazel-bin/bazel_example 2>&1)"
  bazel --output_user_root="$there/bazel" shutdown
else
  echo "not run: bazel is not installed"
fi
echo "the packages build programs"
