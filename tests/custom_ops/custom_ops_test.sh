#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# custom_ops_test.sh PROGRAM MILLRACE LIBRARY.cc HOSTILE.cc HEADER...: libraries of ops, built as
# users do, by the system's compiler against the public headers alone, in a program and in a server.
set -eu
program=$1
millrace=$2
library=$3
hostile=$4
shift 4

there=$(mktemp -d)
server=
cleanup() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi
  rm -rf "$there"
}
trap cleanup EXIT
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

mkdir -p "$there/include/millrace"
for header in "$@"; do cp -L "$header" "$there/include/millrace/"; done
build() {
  g++ -std=c++20 -O1 -fPIC -shared -Wall -Wextra -Werror -Wno-unused-parameter -Wno-unused-function \
    -I"$there/include" "$@"
}

echo "== a program that uses a library"
build "$library" -o "$there/scaled_sum.so"
right="shape [3], z 5.5 11 16.5, dx 0.5"
said=$("$program" "$there/scaled_sum.so" 2>&1) || fail "$said"
[ "$said" = "$right" ] || fail "$said"
# By a relative name, and through a link.
ln -s scaled_sum.so "$there/link.so"
here=$PWD
said=$(cd "$there" && "$here/$program" link.so 2>&1) || fail "$said"
[ "$said" = "$right" ] || fail "$said"

echo "== libraries that are refused"
# refused WHAT TEXT: as WRONG=WHAT, with TEXT in the error; whatever is wrong, no signal ends it.
refused() {
  build -DWRONG="$1" "$hostile" -o "$there/wrong_$1.so"
  refused_file "$there/wrong_$1.so" "$2"
}
refused_file() {
  rc=0
  "$program" "$1" >"$there/said" 2>&1 || rc=$?
  [ "$rc" -eq 1 ] || fail "$1: exit code $rc: $(cat "$there/said")"
  grep -q -- "$2" "$there/said" || fail "$1: not '$2': $(cat "$there/said")"
}
refused 1 "FAILED_PRECONDITION.*was built for 'millrace 0.1 ops 0', and this is 'millrace"
refused 2 "is no library of ops: it lacks MR_CUSTOM_OPS"
refused 3 "thrown by a library.*while"
refused 4 "ALREADY_EXISTS.*'MatMul'"
refused 5 "INVALID_ARGUMENT.*'Strange'"
refused 6 "names that begin with _"
refused 7 "'x' is a reference, a resource or a variant"
refused 8 "'Twice' is registered twice"
refused 9 "defines no op"
refused 10 "without setting output 0"
refused 11 "output 0 is of type float"
refused 12 "there is no output 99"
refused 13 "thrown by a library"
refused 14 "cannot have the shape"
refused 15 "INTERNAL"
refused 16 "no kernel today"
refused 17 "made no kernel"
refused 18 "attr 'missing' is missing"
refused 19 "thrown by a shape function"
refused 20 "set input 99"
refused_file "$there/nothing.so" "NOT_FOUND.*there is no library"
refused_file "$there" "is not a file"
printf 'not ELF' >"$there/text.so"
refused_file "$there/text.so" "cannot be loaded"
: >"$there/empty.so"
refused_file "$there/empty.so" "cannot be loaded"
head -c 5000 "$there/scaled_sum.so" >"$there/cut.so"
refused_file "$there/cut.so" "cannot be loaded"
cat >"$there/undefined.cc" <<'CODE'
#include "millrace/custom_op.h"
namespace millrace {
Status OfALaterVersion();
}
MR_CUSTOM_OPS(ops) { millrace::OfALaterVersion().IgnoreError(); }
CODE
build "$there/undefined.cc" -o "$there/undefined.so"
refused_file "$there/undefined.so" "undefined symbol.*OfALaterVersion"

echo "== a server that loads a library"
# start FLAG...: a server on a free port; its address in $address.
start() {
  : >"$there/log"  # there, and empty, whoever is first to look
  "$millrace" server --cluster_spec='worker|127.0.0.1:0' "$@" >"$there/log" 2>&1 &
  server=$!
  address=
  for _ in $(seq 600); do
    address=$(sed -n 's/.*listening on //p' "$there/log")
    if [ -n "$address" ]; then return; fi
    if ! kill -0 "$server" 2>/dev/null; then break; fi
    sleep 0.1
  done
  fail "no server: $(cat "$there/log")"
}
stop() {
  kill "$server"
  wait "$server" || fail "the server ended with $?: $(cat "$there/log")"
  server=
}
start --load="$there/scaled_sum.so"
said=$("$program" "$there/scaled_sum.so" "grpc://$address" 2>&1) || fail "$said"
[ "$said" = "$right" ] || fail "$said"
stop
start
"$program" "$there/scaled_sum.so" "grpc://$address" >"$there/said" 2>&1 && fail "a server without it ran it"
grep -q "ScaledSum" "$there/said" || fail "$(cat "$there/said")"
stop
start --load="$there/scaled_sum.so" --allow=file_read
"$program" "$there/scaled_sum.so" "grpc://$address" >"$there/said" 2>&1 && fail "--allow was not heeded"
grep -q "PERMISSION_DENIED.*custom_code" "$there/said" || fail "$(cat "$there/said")"
stop
rc=0
"$millrace" server --cluster_spec='worker|127.0.0.1:0' --load="$there/wrong_1.so" >"$there/said" 2>&1 || rc=$?
[ "$rc" -eq 1 ] || fail "a server took a library of another version: $(cat "$there/said")"
grep -q "was built for" "$there/said" || fail "$(cat "$there/said")"
echo "libraries of ops work, or are refused"
