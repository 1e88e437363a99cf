#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shell_pages_test.sh MILLRACE: the scripts for shells complete what there is, and the manual page has
# every subcommand.
set -eu
millrace=$1
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# completed WORD...: what bash offers for the last word, on one line.
# shellcheck disable=SC1090  # written by the command under test
source <("$millrace" completion bash)
completed() {
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  COMPREPLY=()
  _millrace millrace "${COMP_WORDS[$COMP_CWORD]}" "${COMP_WORDS[$((COMP_CWORD - 1))]}"
  echo "${COMPREPLY[*]}"
}
[ "$(completed millrace serv)" = server ] || fail "$(completed millrace serv)"
[[ " $(completed millrace '') " == *" why-waiting "* ]] || fail "$(completed millrace '')"
[ "$(completed millrace server --job)" = --job_name ] || fail "$(completed millrace server --job)"
[ "$(completed millrace server --cpus 2 --peer)" = --peer_timeout ] || fail "a value ended it"
[ "$(completed millrace model sh)" = show ] || fail "$(completed millrace model sh)"
[ -z "$(completed millrace nothing --job)" ] || fail "an unknown subcommand has flags"

"$millrace" completion zsh | grep -q '^#compdef millrace$' || fail "zsh does not know whose it is"
if command -v zsh >/dev/null; then
  "$millrace" completion zsh | zsh -n /dev/stdin || fail "zsh does not read it"
fi
rc=0
"$millrace" completion fish 2>/dev/null || rc=$?
[ "$rc" -eq 2 ] || fail "a shell that is not known: exit code $rc"

page=$("$millrace" man)
for command in $(completed millrace ''); do
  case $command in -*) continue ;; esac
  grep -q "^\.SH \"millrace ${command//-/\\\\-}\"$" <<<"$page" || fail "no section about $command"
done
grep -qF '\-\-peer_timeout' <<<"$page" || fail "a flag is missing"
if command -v groff >/dev/null; then
  said=$(groff -man -Tutf8 -ww <<<"$page" 2>&1 >/dev/null) || fail "groff: $said"
  [ -z "$said" ] || fail "groff: $said"
fi
echo "shells and manual readers are told of all commands"
