# SPDX-License-Identifier: Apache-2.0
"""Clusters of real server processes, one process per task, on loopback.

The environment variable TFDRIVE_SERVER chooses what is started:

  unset or "tf"   TensorFlow's own servers (tf_server.py next to this file)
  anything else   a command line; the flags --cluster_spec, --job_name and
                  --task_id are appended to it (and --cpus=N where a task needs
                  N CPU devices)

All servers are children of one keeper process, which is forked before
TensorFlow is used.  So a server can be started, killed and started again from
any process of the suite, and none outlives the run.
"""
import contextlib
import ctypes
import json
import os
import random
import shlex
import signal
import socket
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
START_DEADLINE_S = float(os.environ.get("TFDRIVE_START_DEADLINE", "30"))


def server_kind():
    value = os.environ.get("TFDRIVE_SERVER", "tf").strip()
    return "tf" if value in ("", "tf") else "external"


_handed_out = set()
_random = random.SystemRandom()


def free_port():
    """A loopback port that nothing listens on and that was not given before.

    Below the range that systems give to outgoing connections: a peer that
    tries to reach a dead server could else take the server's port.
    """
    while True:
        port = _random.randrange(12000, 32000)
        if port in _handed_out:
            continue
        _handed_out.add(port)
        with contextlib.closing(socket.socket()) as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def spec_text(spec):
    return ",".join("%s|%s" % (job, ";".join(hosts))
                    for job, hosts in spec.items())


def state(pid):
    """The state letter of a process; "X" if there is none."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def alive(pid):
    return state(pid) not in "ZX"


def rss_mb(pid):
    with open("/proc/%d/status" % pid) as f:
        for line in f:
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024.0
    return 0.0


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Keeper:
    """The process that owns all servers; spoken to over a local socket."""

    def __init__(self):
        self.path = os.path.join(tempfile.mkdtemp(prefix="tf2drive_"), "keeper")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen(64)
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                die_with_parent()
                os.setsid()
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                self._serve(listener)
                code = 0
            finally:
                os._exit(code)
        listener.close()

    # -- in the keeper ---------------------------------------------------------
    def _serve(self, listener):
        groups = {}  # group -> {key: pid}
        running = set()
        while True:
            connection, _ = listener.accept()
            with connection:
                line = connection.makefile("r").readline()
                while True:  # reap
                    try:
                        pid, _ = os.waitpid(-1, os.WNOHANG)
                    except ChildProcessError:
                        break
                    if pid == 0:
                        break
                    running.discard(pid)
                r = json.loads(line)
                group = groups.setdefault(r["group"], {})
                if r["do"] == "start":
                    pid = os.fork()
                    if pid == 0:
                        listener.close()
                        connection.close()
                        self._become_server(r)
                    group[r["key"]] = pid
                    running.add(pid)
                    answer = pid
                elif r["do"] == "pids":
                    answer = {k: p for k, p in group.items() if p in running}
                elif r["do"] == "stop":  # all groups of that prefix
                    for name in list(groups):
                        if not (name + ".").startswith(r["group"] + "."):
                            continue
                        for pid in groups.pop(name).values():
                            if pid in running:
                                os.kill(pid, signal.SIGKILL)
                                os.waitpid(pid, 0)
                                running.discard(pid)
                    answer = None
                connection.sendall((json.dumps(answer) + "\n").encode())

    @staticmethod
    def _become_server(r):
        try:
            die_with_parent()
            out = os.open(r["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND,
                          0o644)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.environ.update(r["env"])
            if r["command"] is not None:
                command = shlex.split(r["command"]) + r["argv"]
                os.execvp(command[0], command)
            import tf_server
            tf_server.serve(r["argv"])
        except BaseException as e:
            print("server failed:", repr(e), flush=True)
        finally:
            os._exit(1)

    # -- everywhere else -------------------------------------------------------
    def ask(self, **request):
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as s:
            s.connect(self.path)
            s.sendall((json.dumps(request) + "\n").encode())
            return json.loads(s.makefile("r").readline())

    def stop(self):
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


_keeper = None


def keeper():
    global _keeper
    if _keeper is None:
        _keeper = Keeper()
    return _keeper


def stop_keeper():
    global _keeper
    if _keeper is not None:
        _keeper.stop()
        _keeper = None


class Task:
    """One server process."""

    def __init__(self, cluster, job, index):
        self.cluster, self.job, self.index = cluster, job, index
        self.key = "%s/%d" % (job, index)
        self.log = os.path.join(cluster.log_dir, "%s_%d.log" % (job, index))

    @property
    def address(self):
        return self.cluster.spec[self.job][self.index]

    @property
    def pid(self):
        return keeper().ask(do="pids", group=self.cluster.group).get(self.key)

    def flags(self):
        flags = ["--cluster_spec=" + spec_text(self.cluster.server_spec),
                 "--job_name=" + self.job, "--task_id=%d" % self.index]
        if self.cluster.cpus > 1:
            flags.append("--cpus=%d" % self.cluster.cpus)
        return flags + list(self.cluster.extra_args)

    def start(self):
        env = {"CUDA_VISIBLE_DEVICES": "-1", "GRPC_FAIL_FAST": "use_caller",
               **self.cluster.env}
        command = (None if self.cluster.kind == "tf"
                   else os.environ["TFDRIVE_SERVER"])
        keeper().ask(do="start", group=self.cluster.group, key=self.key,
                     argv=self.flags(), command=command, log=self.log, env=env)

    def is_alive(self):
        pid = self.pid
        return pid is not None and alive(pid)

    def wait_ready(self, deadline):
        host, port = self.cluster.server_spec[self.job][self.index].rsplit(
            ":", 1)
        while True:
            try:
                socket.create_connection((host, int(port)), 1).close()
                return
            except OSError:
                pass
            if not self.is_alive():
                raise RuntimeError("server %s ended while starting:\n%s" % (
                    self.key, self.tail()))
            if time.time() > deadline:
                raise RuntimeError("server %s does not answer:\n%s" % (
                    self.key, self.tail()))
            time.sleep(0.02)

    def signal(self, number):
        pid = self.pid
        if pid is not None and alive(pid):
            os.kill(pid, number)

    def wait_gone(self, timeout=10):
        """Until the process is reaped: a dead main thread is not enough, the
        others may still hold the port."""
        deadline = time.time() + timeout
        while self.pid is not None and time.time() < deadline:
            time.sleep(0.01)

    def tail(self, n=2000):
        try:
            with open(self.log, errors="replace") as f:
                return f.read()[-n:]
        except OSError:
            return ""


class Cluster:
    """Cluster({'ps': 1, 'worker': 2}): started servers and their addresses."""

    _count = 0

    def __init__(self, jobs=None, kind=None, cpus=1, extra_args=(), env=None,
                 group="run"):
        Cluster._count += 1
        self.kind = kind or server_kind()
        self.cpus = cpus
        self.extra_args = list(extra_args)
        self.env = dict(env or {})
        self.spec = {job: ["127.0.0.1:%d" % free_port() for _ in range(n)]
                     for job, n in (jobs or {"ps": 1, "worker": 2}).items()}
        self.server_spec = self.spec  # where the servers themselves listen
        self.group = "%s.%d.%d" % (group, os.getpid(), Cluster._count)
        self.log_dir = tempfile.mkdtemp(prefix="tf2drive_")
        self.tasks = {(job, i): Task(self, job, i)
                      for job, hosts in self.spec.items()
                      for i in range(len(hosts))}
        if os.environ.get("TF2DRIVE_TAP"):
            import wiretap
            wiretap.insert(self)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *unused):
        self.stop()

    def start(self, only=None):
        chosen = list(only or self.tasks)
        for key in chosen:
            self.tasks[key].start()
        deadline = time.time() + START_DEADLINE_S
        for key in chosen:
            self.tasks[key].wait_ready(deadline)

    def stop(self):
        keeper().ask(do="stop", group=self.group)

    # -- addresses -----------------------------------------------------------
    def address(self, job, index=0):
        return self.spec[job][index]

    def cluster_spec(self, **more):
        import tensorflow as tf
        return tf.train.ClusterSpec({**self.spec, **more})

    # -- faults --------------------------------------------------------------
    def pid(self, job, index=0):
        return self.tasks[job, index].pid

    def kill(self, job, index=0):
        """SIGKILL one task and wait until it is gone."""
        task = self.tasks[job, index]
        task.signal(signal.SIGKILL)
        task.wait_gone()

    def restart(self, job, index=0):
        """Start a task again at its old address (killing it first if alive)."""
        self.kill(job, index)
        self.start(only=[(job, index)])

    @contextlib.contextmanager
    def stop_cont(self, job, index=0):
        """SIGSTOP the task for the length of the with block, then SIGCONT."""
        task = self.tasks[job, index]
        task.signal(signal.SIGSTOP)
        try:
            yield task
        finally:
            task.signal(signal.SIGCONT)

    def all_alive(self):
        return all(t.is_alive() for t in self.tasks.values())

    def ensure_alive(self):
        """Start again whatever task a former test left dead."""
        dead = [k for k, t in self.tasks.items() if not t.is_alive()]
        if dead:
            self.start(only=dead)
        return dead
