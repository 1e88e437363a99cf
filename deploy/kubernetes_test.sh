#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kubernetes_test.sh YAML OPERATING.md MILLRACE: the files of the secret that the documentation has
# people make are those that the pods name, and the probe's command works with a task's certificate.
set -eu
yaml=$PWD/$1
documentation=$PWD/$2
millrace=$PWD/$3

there=$(mktemp -d)
servers=()
cleanup() {
  for server in "${servers[@]}"; do kill "$server" 2>/dev/null || true; done
  rm -rf "$there"
}
trap cleanup EXIT
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Runs the two commands of the documentation, with a kubectl that puts the files where pods see them.
mkdir "$there/bin" "$there/secret"
ln -s "$millrace" "$there/bin/millrace"
cat >"$there/bin/kubectl" <<'KUBECTL'
#!/bin/bash
[ "$1 $2 $3" = "create secret generic" ] || exit 64
echo "$4" >"$SECRET.name"
shift 4
for argument in "$@"; do
  file=${argument#--from-file=}
  [ "$file" != "$argument" ] || exit 65
  cp "${file#*=}" "$SECRET/${file%%=*}" || exit 66
done
KUBECTL
chmod +x "$there/bin/kubectl"
export PATH="$there/bin:$PATH" SECRET="$there/secret"
sed -n '/^## Kubernetes/,/^## Slurm/s/^    //p' "$documentation" | sed '/^kubectl apply/,$d' >"$there/commands"
(cd "$there" && bash -e commands >said 2>&1) || fail "$(cat "$there/commands" "$there/said")"
wanted=$(sed -n 's/.*secretName: //p' "$yaml" | sort -u)
[ "$wanted" = "$(cat "$SECRET.name")" ] || fail "the pods want the secret $wanted"

# of NAME: the values that the pods have for a variable, one a line, without those that are equal.
of() {
  sed -n "/- name: $1\$/{n;s/.*value: //p;}" "$yaml" | tr -d '"' | sort -u
}
[ "$(of MILLRACE_JOBS)" = "ps=1,worker=2" ] || fail "the pods have the jobs $(of MILLRACE_JOBS)"
probes=$(sed -n 's/^ *command: \[millrace, \(.*\)\]$/\1/p' "$yaml" | tr -d ',"' | sort -u)
[ "$probes" = "page grpc://127.0.0.1:8470 /healthz" ] || fail "the probes are '$probes'"
[ "$(grep -c 'Probe:' "$yaml")" -eq "$(grep -c 'command: \[millrace,' "$yaml")" ] || fail "a probe runs something else"

# pod NAME JOB TASK: serves as the pod would, and has the probe look.
pod() {
  for variable in MILLRACE_TLS_CERT MILLRACE_TLS_KEY MILLRACE_TLS_CA; do
    file=$(of "$variable" | sed "s/\$(POD_NAME)/$1/")
    [ "${file%/*}" = /certs ] || fail "$variable is $file"
    [ -r "$SECRET/${file##*/}" ] || fail "the secret has no ${file##*/}"
    export "$variable=$SECRET/${file##*/}"
  done
  : >"$there/$1.log"  # there at once, whoever is first to look
  millrace server --cluster_spec='ps|127.0.0.1:0,worker|127.0.0.1:0;127.0.0.1:0' \
    --job_name="$2" --task_id="$3" >"$there/$1.log" 2>&1 &
  servers+=($!)
  address=
  for _ in $(seq 600); do
    address=$(sed -n 's/.*listening on //p' "$there/$1.log")
    if [ -n "$address" ] || ! kill -0 "${servers[-1]}" 2>/dev/null; then break; fi
    sleep 0.1
  done
  [ -n "$address" ] || fail "$1: $(cat "$there/$1.log")"
  read -r -a probe <<<"${probes/127.0.0.1:8470/$address}"
  said=$(millrace "${probe[@]}" 2>&1) || fail "the probe of $1: $said"
  [ "$said" = ok ] || fail "the probe of $1: $said"
}
pod mnist-ps-0 ps 0
pod mnist-worker-0 worker 0
pod mnist-worker-1 worker 1

# Without a certificate it would be a probe that fails.
if env -u MILLRACE_TLS_CERT -u MILLRACE_TLS_KEY -u MILLRACE_TLS_CA millrace "${probe[@]}" >"$there/said" 2>&1; then
  fail "whoever comes without a certificate is served"
fi
kill "${servers[-1]}"
wait "${servers[-1]}" || true
if millrace "${probe[@]}" >"$there/said" 2>&1; then fail "a pod that has ended is healthy"; fi
echo "pods have their certificates, and probes work with them"
