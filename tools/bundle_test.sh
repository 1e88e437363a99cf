#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bundle_test.sh BUNDLE_SH PROGRAM...: what comes out of the tar runs elsewhere, with an environment
# that says nothing of here.
set -eu
bundle=$1
shift

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT
"$bundle" --out "$there/bundle.tar.xz" "$@"
[ "$(wc -c <"$there/bundle.tar.xz")" -le $((60 * 1024 * 1024)) ] || fail "more than 60 MiB"
mkdir "$there/unpacked"
tar -C "$there/unpacked" -xf "$there/bundle.tar.xz"
mv "$there/unpacked" "$there/moved to another place"
cd "$there/moved to another place/millrace"

clean() { env -i PATH=/nowhere HOME="$there" "$@"; }

# Every library is one of the bundle, but for glibc's.
find . -type f >"$there/files"
while read -r file; do
  ldd "$file" >"$there/libraries" 2>&1 || continue
  grep -E 'not found' "$there/libraries" && fail "$file lacks a library"
  awk '/=> \// { print }' "$there/libraries" | grep -vF "$there" |
    grep -Ev '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|anl|mvec))\.so' &&
    fail "$file takes a library of this machine"
done <"$there/files"

# Licences of the project, of libraries and of what is compiled in.
for text in LICENSE NOTICE licenses/libgrpc++1.51 licenses/libprotobuf32 licenses/nlohmann-json3-dev; do
  [ -s "$text" ] || fail "$text is not in the bundle: $(ls licenses)"
done

clean tools/millrace --version >"$there/version"
grep -Eq '^millrace [0-9]+\.[0-9]+\.[0-9]+ ' "$there/version" || fail "$(cat "$there/version")"
clean tools/millrace devices >"$there/devices"
grep -q '^CPU:0 ' "$there/devices" || fail "no CPU: $(cat "$there/devices")"
clean tools/millrace server --help >"$there/help"
grep -q 'Compiler of fused loops: .*/libmillrace_jit.so' "$there/help" ||
  fail "no compiler: $(tail -n 1 "$there/help")"
clean examples/mnist_replica --train_steps=20 --batch_size=10 --hidden_units=8 --num_workers=1 \
  >"$there/mnist" 2>&1 || fail "mnist_replica: $(cat "$there/mnist")"
grep -q 'validation cross entropy' "$there/mnist" || fail "mnist_replica: $(cat "$there/mnist")"
# With CUDA: all that tests/gpu/run_all would run is there.
if [ -x tests/gpu/run_all ]; then
  PATH=/usr/bin:/bin tests/gpu/run_all --targets yes | sed 's#^//##; s#:#/#' >"$there/targets"
  grep -q . "$there/targets" || fail "run_all names no targets"
  while read -r file; do
    [ -f "$file" ] || fail "$file is not in the bundle"
  done <"$there/targets"
  code=0
  tests/gpu/run_all --bin . --only sessions >"$there/run_all" 2>&1 || code=$?
  case $code in
    3) grep -q 'nothing was run: no GPU' "$there/run_all" || fail "run_all: $(cat "$there/run_all")" ;;
    0) ;; # a machine with a GPU
    *) fail "run_all ended with $code: $(cat "$there/run_all")" ;;
  esac
fi
echo "the bundle runs"
