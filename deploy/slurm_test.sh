#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slurm_test.sh JOB MILLRACE: the job script with an srun of our own, which starts what Slurm's
# would start. Each task runs a server, which takes no certificate but that of its task.
set -eu
job=$PWD/$1
millrace=$PWD/$2

there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

mkdir "$there/bin" "$there/home"
cat >"$there/bin/srun" <<'SRUN'
#!/bin/bash
[ "$1" = --kill-on-bad-exit=1 ] || exit 64
shift
tasks=()
for ((task = 0; task < SLURM_NTASKS; ++task)); do
  SLURM_PROCID=$task "$@" &
  tasks+=($!)
done
worst=0
for task in "${tasks[@]}"; do
  wait "$task" || worst=$?
done
exit "$worst"
SRUN
cat >"$there/program" <<'PROGRAM'
#!/bin/bash
# program MILLRACE FOLDER: serves as the task that it is, until its page was read.
for file in "$MILLRACE_TLS_CERT" "$MILLRACE_TLS_KEY" "$MILLRACE_TLS_CA"; do
  [ -r "$file" ] || { echo "no $file"; exit 3; }
done
log=$2/task-$SLURM_PROCID.log
here=127.0.0.1:0
: >"$log"
"$1" server --cluster_spec="worker|$here;$here;$here;$here" --job_name=worker \
  --task_id="$SLURM_PROCID" >"$log" 2>&1 &
server=$!
address=
for _ in $(seq 600); do
  address=$(sed -n 's/.*listening on //p' "$log")
  if [ -n "$address" ] || ! kill -0 "$server" 2>/dev/null; then break; fi
  sleep 0.1
done
"$1" page "grpc://$address" /healthz >"$2/health-$SLURM_PROCID" 2>>"$log" || exit 4
kill "$server"
wait "$server"
PROGRAM
chmod +x "$there/bin/srun" "$there/program"
export PATH="$there/bin:$PATH" HOME="$there/home"
export SLURM_JOB_ID=7 SLURM_NTASKS=4 MILLRACE_LOG_FORMAT=text
unset MILLRACE_CERTS MILLRACE_TLS_CERT MILLRACE_TLS_KEY MILLRACE_TLS_CA

# What the step's exit code is, with what it said in "$there/said".
step() {
  rc=0
  bash "$job" "$there/program" "$millrace" "$there" >"$there/said" 2>&1 || rc=$?
}

step
[ "$rc" -eq 2 ] || fail "exit code $rc without certificates: $(cat "$there/said")"
grep -q "there is no $HOME/millrace-certs/worker-3.pem: .*millrace certs" "$there/said" ||
  fail "$(cat "$there/said")"
"$millrace" certs 'worker|h:1;h:2;h:3' --out "$HOME/millrace-certs" >/dev/null
step
[ "$rc" -eq 2 ] || fail "exit code $rc with three certificates for four tasks"

# As the script's first lines say.
command=$(sed -n 's|^#   millrace certs \(.*\) --out ~/millrace-certs$|\1|p' "$job")
[ "$command" = "'worker|h:1;h:2;h:3;h:4'" ] || fail "the script says millrace certs $command"
rm -r "$HOME/millrace-certs"
"$millrace" certs 'worker|h:1;h:2;h:3;h:4' --out "$HOME/millrace-certs" >/dev/null
step
[ "$rc" -eq 0 ] || fail "exit code $rc: $(cat "$there/said" "$there"/task-*.log)"
for task in 0 1 2 3; do
  grep -q '^ok' "$there/health-$task" || fail "task $task: $(cat "$there/task-$task.log")"
done

# Somewhere else; and one task that fails is the step's failure.
mv "$HOME/millrace-certs" "$there/elsewhere"
export MILLRACE_CERTS="$there/elsewhere"
step
[ "$rc" -eq 0 ] || fail "exit code $rc: $(cat "$there/said" "$there"/task-*.log)"
cp "$MILLRACE_CERTS/worker-1.pem" "$MILLRACE_CERTS/worker-2.pem"
cp "$MILLRACE_CERTS/worker-1.key" "$MILLRACE_CERTS/worker-2.key"
step
[ "$rc" -ne 0 ] || fail "a task served with the certificate of another"
grep -q "the certificate of .*task:1" "$there/task-2.log" || fail "$(cat "$there/task-2.log")"
echo "each task of a Slurm step has its certificate"
