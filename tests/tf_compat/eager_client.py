# SPDX-License-Identifier: Apache-2.0
"""Programs of TensorFlow 2 on our servers: a small fixed sample of what clients do.

    python eager_client.py --server "path/to/millrace server"

A ps and two workers; ops, copies between tasks, variables, functions over several tasks, data
sets, errors, and a training loop whose values are known. Exit code 1 when a check fails.
"""
import argparse
import os
import sys
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf

from clusters import ServerCluster

PS = "/job:ps/replica:0/task:0/device:CPU:0"
WORKERS = ["/job:worker/replica:0/task:%d/device:CPU:0" % i for i in range(2)]


def expect(got, want):
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-6)


def ops_stay_where_they_run():
    with tf.device(WORKERS[0]):
        a = tf.matmul([[1.0, 2.0], [3.0, 4.0]], [[5.0], [6.0]])
    with tf.device(WORKERS[1]):
        b = a + 1.0
    assert (a.device, b.device) == tuple(WORKERS), (a.device, b.device)
    expect(b.numpy(), [[18], [40]])


def variables_keep_their_values():
    with tf.device(PS):
        v, w = tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])
    for worker in WORKERS:
        with tf.device(worker):
            v.assign_add([1.0, 1.0])
    expect(v.numpy(), [3, 4])
    expect(w.numpy(), [1, 2])


def functions_span_tasks():
    with tf.device(PS):
        v = tf.Variable(2.0)

    @tf.function
    def f(x):
        for _ in tf.range(3):
            x = x * v
            with tf.device(WORKERS[1]):
                x = x + 1.0
        v.assign_add(1.0)
        return x

    with tf.device(WORKERS[0]):
        expect(f(tf.constant(1.0)).numpy(), 15)
        expect(f(tf.constant(1.0)).numpy(), 40)


def errors_name_what_failed():
    @tf.function
    def f(x):
        with tf.device(PS):
            return tf.debugging.check_numerics(x, "not finite", name="the_check")

    with tf.device(WORKERS[0]):
        try:
            f(tf.constant(np.inf, tf.float32)).numpy()
        except tf.errors.InvalidArgumentError as e:
            assert "not finite" in str(e) and "the_check" in str(e), e
        else:
            raise AssertionError("an infinity passed the check")
        expect(f(tf.constant(2.0)).numpy(), 2)


def data_sets_are_walked_at_workers():
    with tf.device(WORKERS[1]):
        data = tf.data.Dataset.range(6).map(lambda x: x * x).batch(2)
        expect([batch.numpy() for batch in data], [[0, 1], [4, 9], [16, 25]])


def gradients_train_a_variable():
    """Steepest descent on (w - 3)^2, half the way each step."""
    with tf.device(PS):
        w = tf.Variable(0.0)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = (w - 3.0) ** 2
        w.assign_sub(0.25 * tape.gradient(loss, w))
        return loss

    losses = []
    for i in range(4):
        with tf.device(WORKERS[i % 2]):
            losses.append(float(step()))
    expect(losses, [9, 2.25, 0.5625, 0.140625])


def the_clients_own_variables_are_used_by_workers():
    """A variable that nobody has placed lives at the client, and functions run where they are told."""
    own = tf.Variable(5, dtype=tf.int64)

    @tf.function
    def count(x):
        own.assign_add(1)
        return x * tf.cast(own, tf.float32)

    for i in range(4):
        with tf.device(WORKERS[i % 2]):
            expect(count(tf.constant(1.0)).numpy(), 6 + i)
    assert own.numpy() == 9 and "/job:chief/" in own.device, own


CHECKS = [the_clients_own_variables_are_used_by_workers, ops_stay_where_they_run, variables_keep_their_values, functions_span_tasks,
          errors_name_what_failed, data_sets_are_walked_at_workers, gradients_train_a_variable]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", required=True, help="command that starts one of our servers")
    args = parser.parse_args()
    failed = 0
    with ServerCluster({"ps": 1, "worker": 2}, 1, args.server) as cluster:
        tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec(cluster.spec),
                                                  job_name="chief")
        for check in CHECKS:
            try:
                check()
                print("ok: " + check.__name__, flush=True)
            except Exception:
                failed += 1
                print("FAILED: " + check.__name__, flush=True)
                traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
