# SPDX-License-Identifier: Apache-2.0
"""Trains one model on clusters in which TensorFlow's servers and ours work together.

    python train_mixed.py --server "path/to/millrace server"

Two workers and one ps, every combination of the two engines, with updates that are
synchronous (the losses must be the same numbers, but for rounding) and asynchronous (the model
must be learned). Exit code 1 when a combination does not train.
"""
import argparse
import os
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow.compat.v1 as tf

from clusters import ServerCluster

WORKERS, STEPS, BATCH, TIMEOUT_MS, DEADLINE_S = 2, 40, 32, 30000, 120


def batch(rng):
    """Points in the plane, labelled by the quadrant."""
    x = rng.uniform(-1, 1, (BATCH, 2)).astype(np.float32)
    return x, np.eye(4, dtype=np.float32)[(x[:, 0] > 0) * 2 + (x[:, 1] > 0)]


class Model:
    """What one worker runs: its own client, as in between-graph replication."""

    def __init__(self, spec, task, sync):
        self.graph = tf.Graph()
        with self.graph.as_default(), tf.device(tf.train.replica_device_setter(
                cluster=tf.train.ClusterSpec(spec), worker_device="/job:worker/task:%d" % task)):
            self.step = tf.train.get_or_create_global_step()
            self.x = tf.placeholder(tf.float32, [None, 2])
            self.y = tf.placeholder(tf.float32, [None, 4])

            def variable(name, shape, seed):
                start = np.random.RandomState(seed).normal(0, 0.5, shape).astype(np.float32)
                return tf.Variable(start, name=name, use_resource=(seed % 2 == 0))

            hidden = tf.nn.relu(tf.matmul(self.x, variable("w1", [2, 16], 1)) +
                                variable("b1", [16], 2))
            logits = tf.matmul(hidden, variable("w2", [16, 4], 3)) + variable("b2", [4], 4)
            self.loss = tf.reduce_mean(
                tf.nn.softmax_cross_entropy_with_logits_v2(labels=self.y, logits=logits))
            optimizer = tf.train.MomentumOptimizer(0.2, 0.9)
            self.sync = sync
            if sync:
                optimizer = tf.train.SyncReplicasOptimizer(
                    optimizer, replicas_to_aggregate=WORKERS, total_num_replicas=WORKERS)
            self.train = optimizer.minimize(self.loss, global_step=self.step)
            self.init = [tf.global_variables_initializer()]
            self.local_init = []
            if sync:
                self.local_init = [optimizer.chief_init_op if task == 0
                                   else optimizer.local_step_init_op]
                self.queue = optimizer.get_chief_queue_runner()


def session(cluster, task, model):
    config = tf.ConfigProto(operation_timeout_in_ms=TIMEOUT_MS,
                            device_filters=["/job:ps", "/job:worker/task:%d" % task])
    return tf.Session(cluster.target("worker", task), graph=model.graph, config=config)


def train(cluster, sync):
    """The losses of worker 0 before and after."""
    models = [Model(cluster.spec, task, sync) for task in range(WORKERS)]
    sessions = [session(cluster, task, model) for task, model in enumerate(models)]
    sessions[0].run(models[0].init)
    for s, m in zip(sessions, models):
        s.run(m.local_init)
    coordinator, failures = tf.train.Coordinator(), []
    # One gradient of each worker in every update: no worker takes the token of another.
    together = threading.Barrier(WORKERS if sync else 1, timeout=DEADLINE_S)
    if sync:
        with models[0].graph.as_default():
            models[0].queue.create_threads(sessions[0], coord=coordinator, daemon=True, start=True)

    def work(task):
        rng = np.random.RandomState(task)
        try:
            for _ in range(STEPS):
                x, y = batch(rng)
                together.wait()
                sessions[task].run(models[task].train, {models[task].x: x, models[task].y: y})
        except Exception as error:  # told by the thread that waits
            failures.append("worker %d: %s" % (task, error))
            together.abort()

    x, y = batch(np.random.RandomState(99))
    held_out = {models[0].x: x, models[0].y: y}
    before = sessions[0].run(models[0].loss, held_out)
    threads = [threading.Thread(target=work, args=(t,), daemon=True) for t in range(WORKERS)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + DEADLINE_S
    for thread in threads:
        thread.join(max(0, end - time.monotonic()))
        if thread.is_alive():
            raise RuntimeError("a worker did not end in %d s; %s" % (DEADLINE_S, failures))
    if failures:
        raise RuntimeError("; ".join(failures))
    after, step = sessions[0].run([models[0].loss, models[0].step], held_out)
    coordinator.request_stop()
    for s in sessions:
        s.close()
    want = STEPS if sync else STEPS * WORKERS
    if step != want:
        raise RuntimeError("the global step is %d, not %d" % (step, want))
    return float(before), float(after)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", required=True, help="command that starts one of our servers")
    args = parser.parse_args()
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.FATAL)
    engines = {"TensorFlow": None, "Millrace": args.server}
    failed, synchronous = 0, {}
    for ps in engines:
        for worker in engines:
            name = "ps by %s, workers by %s" % (ps, worker)
            commands = {"ps": engines[ps], "worker": engines[worker]}
            for sync in (True, False):
                kind = "synchronous" if sync else "asynchronous"
                try:
                    with ServerCluster({"ps": 1, "worker": WORKERS}, 1, commands) as cluster:
                        before, after = train(cluster, sync)
                except Exception as error:  # one combination; the others are tried
                    print("FAILED %s, %s: %s" % (name, kind, error))
                    failed += 1
                    continue
                trained = after < 0.5 * before
                if sync:
                    synchronous[name] = after
                    first = next(iter(synchronous.values()))
                    trained = trained and abs(after - first) <= 1e-3 * abs(first)
                print("%s %s, %s: loss %.6f -> %.6f" % ("ok" if trained else "FAILED", name, kind,
                                                       before, after), flush=True)
                failed += not trained
    print("%d of 8 combinations failed" % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.stdout.flush()
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads that feed queues may still wait
