# SPDX-License-Identifier: Apache-2.0
"""Clusters of server processes on loopback: TensorFlow's own, or those of a command."""
import contextlib
import json
import shlex
import socket
import subprocess
import sys
import tempfile
import time

START_DEADLINE_S = 90

TF_SERVER = """
import os, sys, json
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import tensorflow.compat.v1 as tf
spec, job, task, cpus = json.loads(sys.argv[1])
config = tf.ConfigProto(device_count={"CPU": cpus})
if "worker" in spec:
    config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
tf.train.Server(spec, job, task, protocol="grpc", config=config).join()
"""


def free_ports(count):
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            s = stack.enter_context(contextlib.closing(socket.socket()))
            s.bind(("127.0.0.1", 0))
            ports.append(s.getsockname()[1])
        return ports


class ServerCluster:
    """A context: one process for each task of `jobs` ({"ps": 2, ...}), `cpus` devices each.

    `command` starts a server when --cluster_spec, --job_name, --task_id and --cpus are
    appended; None starts TensorFlow's. Where it is a dict it has one for each job, or a list
    with one for each task of it.
    """

    def __init__(self, jobs, cpus, command=None):
        self._jobs, self._cpus = jobs, cpus
        self._commands = command if isinstance(command, dict) else dict.fromkeys(jobs, command)
        self._processes = {}  # by (job, task)

    def __enter__(self):
        ports = iter(free_ports(sum(self._jobs.values())))
        self._spec = {job: ["127.0.0.1:%d" % next(ports) for _ in range(count)]
                      for job, count in self._jobs.items()}
        self._log = tempfile.TemporaryFile()
        try:
            for job, hosts in self._spec.items():
                for task in range(len(hosts)):
                    self._start(job, task)
            for hosts in self._spec.values():
                for host in hosts:
                    self._wait_for(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, job, task):
        command = self._commands[job]
        if isinstance(command, list):
            command = command[task]
        if command is None:
            argv = [sys.executable, "-c", TF_SERVER,
                    json.dumps([self._spec, job, task, self._cpus])]
        else:
            spec = ",".join(j + "|" + ";".join(hosts) for j, hosts in self._spec.items())
            argv = shlex.split(command) + [
                "--cluster_spec=" + spec, "--job_name=" + job, "--task_id=%d" % task,
                "--cpus=%d" % self._cpus]
        self._processes[job, task] = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)

    def _wait_for(self, host):
        name, port = host.split(":")
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            if any(p.poll() is not None for p in self._processes.values()):
                self._log.seek(0)
                raise RuntimeError("a server ended: " + self._log.read()[-2000:].decode())
            try:
                socket.create_connection((name, int(port)), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise RuntimeError("no server listens on " + host) from None
                time.sleep(0.05)

    def __exit__(self, *_):
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._log.close()

    def kill(self, job, task):
        """Ends a task without warning; it is gone when this returns."""
        self._processes[job, task].kill()
        self._processes[job, task].wait()

    def restart(self, job, task):
        """Starts a task that was killed again, at its address."""
        self._start(job, task)
        self._wait_for(self._spec[job][task])

    def alive(self):
        """Whether every task still runs."""
        return all(p.poll() is None for p in self._processes.values())

    @property
    def name(self):
        """Whose servers they are."""
        ours = sorted(job for job, command in self._commands.items() if command is not None)
        return "TensorFlow" if not ours else "Millrace (%s)" % ", ".join(ours)

    @property
    def spec(self):
        return self._spec

    def target(self, job, task):
        return "grpc://" + self._spec[job][task]

    def targets(self):
        return ["grpc://" + host for hosts in self._spec.values() for host in hosts]
