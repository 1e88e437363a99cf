# SPDX-License-Identifier: Apache-2.0
"""Fixtures and helpers shared by all test modules.

Every test body runs in a process of its own, forked from the pytest process
before TensorFlow's eager context exists.  So each test is a fresh client, a
hanging one is ended at its time limit, and a test can start further clients
with spawn() as long as it has not used TensorFlow itself.
"""
import contextlib
import faulthandler
import gc
import os
import pickle
import select
import signal
import struct
import sys
import time
import traceback

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
os.environ.pop("TF_CONFIG", None)

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.eager import context as tf_context  # noqa: E402
from tensorflow.python.framework import ops as tf_ops  # noqa: E402

import cluster as cluster_lib  # noqa: E402
from cluster import Cluster, free_port, rss_mb, server_kind  # noqa: E402,F401

tf.get_logger().setLevel("CRITICAL")
with contextlib.suppress(ImportError):
    from absl import logging as absl_logging
    absl_logging.set_verbosity(absl_logging.FATAL)

errors = tf.errors
TEST_LIMIT_S = float(os.environ.get("TF2DRIVE_TEST_TIMEOUT", "60"))


# -- processes -----------------------------------------------------------------

def _write(fd, value):
    data = pickle.dumps(value)
    data = struct.pack("<Q", len(data)) + data
    while data:
        data = data[os.write(fd, data):]


def _read(fd, deadline):
    """The next value from a pipe; TimeoutError, EOFError."""
    def take(n):
        data = b""
        while len(data) < n:
            left = deadline - time.time()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise TimeoutError
            piece = os.read(fd, n - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data
    return pickle.loads(take(struct.unpack("<Q", take(8))[0]))


class Talk:
    """What a client function gets first: a way to speak with its starter."""

    def __init__(self, out, into):
        self._out, self._into = out, into

    def say(self, value):
        _write(self._out, ("say", value))

    def hear(self, timeout=TEST_LIMIT_S):
        return _read(self._into, time.time() + timeout)


class ClientFailed(AssertionError):
    pass


class Client:
    """A forked process that runs fn(talk, *args)."""

    count = 0

    def __init__(self, fn, *args, clean_exit=True):
        assert not context_in_use(), "fork before TensorFlow is used"
        Client.count += 1
        from_child, out = os.pipe()
        into, to_child = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(from_child)
            os.close(to_child)
            _run_child(fn, args, out, into, clean_exit)
        os.close(out)
        os.close(into)
        self._in, self._out = from_child, to_child
        self._gone = False

    def tell(self, value):
        _write(self._out, value)

    def said(self, timeout=TEST_LIMIT_S):
        """The next value the client says."""
        kind, value = self._next(timeout)
        if kind != "say":
            raise ClientFailed("client ended early: %s" % (value,))
        return value

    def result(self, timeout=TEST_LIMIT_S):
        """What fn returned; raises what went wrong in it."""
        kind = "say"
        while kind == "say":
            kind, value = self._next(timeout)
        if kind == "skip":
            pytest.skip(value)
        if kind != "done":
            raise ClientFailed(value)
        self.wait(10)
        return value

    def _next(self, timeout):
        try:
            return _read(self._in, time.time() + timeout)
        except TimeoutError:
            self.signal(signal.SIGUSR1)  # stacks of all threads
            time.sleep(0.5)
            self.kill()
            return "failed", "no answer in %d s" % timeout
        except EOFError:
            status = self.wait(10)
            return "failed", "client process ended, status %s" % status

    def signal(self, number):
        if not self._gone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.wait(10)

    def wait(self, timeout):
        """Exit status; after the timeout the process is killed."""
        deadline = time.time() + timeout
        while not self._gone:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._gone, self.status = True, status
                break
            if time.time() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                deadline = time.time() + 5
            time.sleep(0.005)
        return self.status


def _run_child(fn, args, out, into, clean_exit):
    code = 1
    try:
        cluster_lib.die_with_parent()
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        gc.freeze()  # collections need not look at what was there before
        # TensorFlow's servers share named resources between clients, and the
        # names of tables hold this number ("table_<uid>").
        for _ in range(200 * Client.count):
            tf_ops.uid()
        try:
            answer = "done", fn(Talk(out, into), *args)
        except pytest.skip.Exception as e:
            answer = "skip", str(e)
        except BaseException:
            answer = "failed", traceback.format_exc()
        try:
            _write(out, answer)
        except Exception as e:
            _write(out, ("failed", "cannot send the result: %r" % e))
        sys.stdout.flush()
        sys.stderr.flush()
        if clean_exit and answer[0] == "done":
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            leave()
        code = 0
    finally:
        os._exit(code)


def spawn(fn, *args, **kw):
    return Client(fn, *args, **kw)


def run_client(fn, *args, timeout=TEST_LIMIT_S, **kw):
    return Client(fn, *args, **kw).result(timeout)


def context_in_use():
    c = tf_context.context_safe()
    return c is not None and c._context_handle is not None


def leave():
    """Ends this client's part in the cluster as a normal exit does."""
    if context_in_use():
        tf_context._reset_context()


# -- clusters ------------------------------------------------------------------

_clusters = {}


USES = 25  # tests that one shared cluster serves


def shared_cluster(name, **kw):
    """A cluster for many tests; healed between them."""
    if name in _clusters and _clusters[name].uses >= USES:
        _clusters.pop(name).stop()
    if name not in _clusters:
        _clusters[name] = Cluster(**kw)
        _clusters[name].uses = 0
        _clusters[name].start()
    c = _clusters[name]
    c.uses += 1
    c.ensure_alive()
    return c


def drop_shared_clusters():
    """After a failed test: the next one gets fresh servers."""
    for c in _clusters.values():
        c.stop()
    _clusters.clear()


def stop_shared_clusters():
    _clusters.clear()
    cluster_lib.stop_keeper()


def dev(job, task=0, cpu=0):
    return "/job:%s/replica:0/task:%d/device:CPU:%d" % (job, task, cpu)


W0, W1, P0, P1 = dev("worker", 0), dev("worker", 1), dev("ps", 0), dev("ps", 1)
HOME = dev("localhost", 0)


def connect(cluster, **kw):
    tf.config.experimental_connect_to_cluster(cluster.cluster_spec(), **kw)


def resolver(cluster):
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster.cluster_spec(), rpc_layer="grpc")


def ps_strategy(cluster, partitioner=None):
    return tf.distribute.ParameterServerStrategy(
        resolver(cluster), variable_partitioner=partitioner)


def coordinator(cluster, partitioner=None):
    s = ps_strategy(cluster, partitioner)
    return s, tf.distribute.coordinator.ClusterCoordinator(s)


def where(tensor):
    """The device a tensor lives on, in short: 'worker/1', 'localhost/0'."""
    spec = tf.DeviceSpec.from_string(tensor.device)
    return "%s/%d" % (spec.job, spec.task)


def host(tensor):
    return tensor.numpy()


@contextlib.contextmanager
def raises(cls, *parts):
    """The error has exactly this class, and its text holds all the parts."""
    with pytest.raises(cls) as info:
        yield info
    assert type(info.value) is cls, type(info.value)
    text = str(info.value)
    for part in parts:
        assert part in text, "%r not in:\n%s" % (part, text)


def eventually(check, timeout=15, every=0.05):
    deadline = time.time() + timeout
    while True:
        value = check()
        if value or time.time() > deadline:
            return value
        time.sleep(every)


def close(a, b, tol=1e-6):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tol, atol=tol)


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype or a.dtype == object or b.dtype == object, (
        a.dtype, b.dtype)
    np.testing.assert_array_equal(a, b)


# -- fixtures ------------------------------------------------------------------

@pytest.fixture
def one():
    """One task, job 'worker'."""
    return shared_cluster("one", jobs={"worker": 1})


@pytest.fixture
def duo():
    """One ps and two workers."""
    return shared_cluster("duo", jobs={"ps": 1, "worker": 2})


@pytest.fixture
def five():
    """Two ps and three workers."""
    return shared_cluster("five", jobs={"ps": 2, "worker": 3})


_owners = [0]


@pytest.fixture
def own():
    """Builds clusters that belong to one test (for faults); stops them after.

    own(ps=1, worker=2) starts one; own.prepared(...) only lays it out.
    """
    _owners[0] += 1
    group = "own%d" % _owners[0]
    cluster_lib.keeper()

    def prepared(**jobs):
        kw = {k: jobs.pop(k) for k in ("cpus", "env", "extra_args")
              if k in jobs}
        return Cluster(jobs=jobs, group=group, **kw)

    def make(**jobs):
        c = prepared(**jobs)
        c.start()
        return c

    make.prepared = prepared
    yield make
    cluster_lib.keeper().ask(do="stop", group=group)
