#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# checkpoints_test.sh PYTHON_FINDER CHECKPOINTS SAVING_PROGRAM WEIGHTS_PROGRAM: stock TensorFlow, and
# Keras, read what the C++ programs write, and the reverse. Where there is no TensorFlow nothing is
# run, and it is said why: nothing is installed for a test.
set -eu
# Bazel hides it; the Python is kept below it.
if [ -z "${HOME:-}" ] || [ ! -d "$HOME/.cache" ]; then
  HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
  export HOME
fi
if ! python=$(MILLRACE_INSTALL=never "$1" 2>"$TEST_TMPDIR/reason"); then
  echo "not run: $(tail -n 1 "$TEST_TMPDIR/reason")"
  exit 0
fi
"$python" -B "$2" --program "$PWD/$3" --weights_program "$PWD/$4"
