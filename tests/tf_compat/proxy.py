# SPDX-License-Identifier: Apache-2.0
"""A stock client, which knows no TLS, of servers that want certificates and a token.

    python proxy.py --millrace path/to/millrace

A ps and a worker with certificates of `millrace certs`, and `millrace proxy` in front of the
worker: training, values, errors and deadlines are what they are without. A client of TensorFlow 2
comes through a proxy for each task, and runs functions over both. Exit code 1 when a check fails.
"""
import argparse
import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow.compat.v1 as tf

from clusters import ServerCluster

START_DEADLINE_S = 60


def credentials(folder, name):
    flags = ["--tls_ca=" + folder + "/ca.pem", "--token_file=" + folder + "/token"]
    return flags + ["--tls_%s=%s/%s.%s" % (flag, folder, name, end)
                    for flag, end in (("cert", "pem"), ("key", "key"))]


@contextlib.contextmanager
def proxy(millrace, target, flags):
    """The target that clients without credentials use."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([millrace, "proxy", target] + flags, stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + START_DEADLINE_S
            while True:
                log.seek(0)
                text = log.read()
                found = re.search(r"passing calls to (\S+) on", text)
                if found:
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the proxy did not start: " + text)
                time.sleep(0.05)
            yield found.group(1)
        finally:
            process.terminate()
            process.wait(20)


def train(target):
    """Weights of a linear model on the ps, gradients on the worker."""
    graph = tf.Graph()
    with graph.as_default():
        with tf.device("/job:ps"):
            w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer(),
                                use_resource=True)
        with tf.device("/job:worker"):
            x = tf.placeholder(tf.float32, [None, 3], name="x")
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - tf.reduce_sum(x, 1, keepdims=True)))
            step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
            checked = tf.debugging.check_numerics(x, "not finite", name="the_check")
        init = tf.global_variables_initializer()
    rows = np.random.RandomState(1).normal(size=(64, 3)).astype(np.float32)
    with tf.Session(target, graph=graph) as session:
        session.run(init)
        for _ in range(200):
            session.run(step, {x: rows})
        np.testing.assert_allclose(session.run(w), np.ones([3, 1]), atol=1e-3)
        large = np.arange(3 << 20, dtype=np.float32).reshape(-1, 3)  # 12 MiB each way
        np.testing.assert_array_equal(session.run(checked, {x: large}), large)
        try:
            session.run(checked, {x: rows * np.inf})
        except tf.errors.InvalidArgumentError as e:
            assert "not finite" in str(e) and "the_check" in str(e), e
        else:
            raise AssertionError("an infinity passed the check")


def times_out(target):
    graph = tf.Graph()
    with graph.as_default(), tf.device("/job:ps"):
        queue = tf.FIFOQueue(1, tf.float32)
        taken = queue.dequeue()
    with tf.Session(target, graph=graph) as session:
        try:
            session.run(taken, options=tf.RunOptions(timeout_in_ms=500))
        except tf.errors.DeadlineExceededError:
            return
    raise AssertionError("an empty queue gave a value")


def eager_client(addresses):
    """A client of TensorFlow 2, in a process of its own; `addresses` are those of the proxies."""
    import tensorflow as tf2
    tf2.config.experimental_connect_to_cluster(
        tf2.train.ClusterSpec({job: [address] for job, address in addresses.items()}),
        protocol="grpc")
    ps, worker = ("/job:%s/replica:0/task:0/device:CPU:0" % job for job in ("ps", "worker"))
    with tf2.device(ps):
        v = tf2.Variable([1.0, 2.0])

    @tf2.function
    def step(x):
        y = x * 2.0
        with tf2.device(ps):
            v.assign_add(y)
            return v + 1.0

    with tf2.device(worker):
        for i in range(3):
            got = step(tf2.constant([1.0, 1.0])).numpy()
            np.testing.assert_allclose(got, [4.0 + 2 * i, 5.0 + 2 * i])
    np.testing.assert_allclose(v.numpy(), [7.0, 8.0])


def functions_span_tasks(addresses):
    subprocess.run([sys.executable, "-B", __file__, "--millrace=", "--eager_client"] +
                   ["%s=%s" % item for item in addresses.items()], check=True, timeout=120)


def is_refused(target, words):
    try:
        with tf.Graph().as_default(), tf.Session(target) as session:
            session.run(tf.constant(1))
    except tf.errors.OpError as e:
        assert any(word in str(e) for word in words), e
    else:
        raise AssertionError("a stranger was let in")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--eager_client", nargs="+", metavar="JOB=ADDRESS",
                        help="be the client of TensorFlow 2 that the check starts")
    arguments = parser.parse_args()
    if arguments.eager_client:
        eager_client(dict(item.split("=", 1) for item in arguments.eager_client))
        return 0
    millrace = arguments.millrace
    tf.disable_eager_execution()
    with tempfile.TemporaryDirectory() as folder:
        spec = "ps|127.0.0.1:1,worker|127.0.0.1:2"  # certificates know no addresses
        for name, cluster in (("own", "blue"), ("foreign", "blue")):
            subprocess.run([millrace, "certs", spec, "--out=" + folder + "/" + name,
                            "--cluster=" + cluster, "--token"], check=True, timeout=60,
                           stdout=subprocess.DEVNULL)
        own = folder + "/own"
        commands = {job: [shlex.join([millrace, "server"] + credentials(own, job + "-0"))]
                    for job in ("ps", "worker")}
        with ServerCluster({"ps": 1, "worker": 1}, 1, commands) as cluster:
            worker = cluster.target("worker", 0)
            with proxy(millrace, worker, credentials(own, "client")) as target:
                for check in (train, times_out):
                    check(target)
                    print("ok  ", check.__name__)
            client = credentials(own, "client")
            with proxy(millrace, cluster.target("ps", 0), client) as ps_target, \
                    proxy(millrace, worker, client) as worker_target:
                functions_span_tasks({job: target.removeprefix("grpc://") for job, target in (
                    ("ps", ps_target), ("worker", worker_target))})
                print("ok   functions_span_tasks")
            with proxy(millrace, worker, credentials(folder + "/foreign", "client")) as target:
                is_refused(target, ["was not passed on", "UNAVAILABLE", "failed to connect"])
                print("ok   foreign authority is refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
