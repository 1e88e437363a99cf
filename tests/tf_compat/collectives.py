# SPDX-License-Identifier: Apache-2.0
"""Collectives from TensorFlow's own client: our servers beside TensorFlow's, and mixed groups.

    python collectives.py --server "$PWD/bazel-bin/tools/millrace server"

Runs every case on a cluster of TensorFlow's servers and on one of ours and expects the same
values to the bit, or the same error code; then on groups in which one task is TensorFlow's.
"""
import argparse
import os
import sys
import threading

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import collective_ops

import clusters

TIMEOUT_MS = 60_000
LEADER = "/job:worker/replica:0/task:0"


def device(task, cpu=0):
    return "/job:worker/task:%d/device:CPU:%d" % (task, cpu)


def value(seed, count, dtype):
    rng = np.random.RandomState(seed)
    if np.issubdtype(dtype, np.floating):
        return rng.uniform(-2, 2, count).astype(dtype)
    return rng.randint(-5, 6, count).astype(dtype)


# -- The ops of one member, by case --

def reduce_op(merge, final, count, dtype, v2=False, offsets=(0,)):
    def build(rank, size):
        x = tf.constant(value(rank, count, dtype))
        if v2:
            return collective_ops.all_reduce_v2(x, size, 1, 10, merge, final)
        return collective_ops.all_reduce(x, size, 1, 10, merge, final, subdiv_offsets=offsets)
    return build


def gather_op(rows, dtype, v2=False):
    def build(rank, size):
        x = tf.constant(value(rank, (rows, 3), dtype))
        if v2:
            return collective_ops.all_gather_v2(x, size, 1, 11)
        return collective_ops.all_gather(x, size, 1, 11)
    return build


def broadcast_op(source, count, dtype, v2=False):
    def build(rank, size):
        if rank == source:
            x = tf.constant(value(99, count, dtype))
            if v2:
                return collective_ops.broadcast_send_v2(x, size, 1, 12)
            return collective_ops.broadcast_send(x, x.shape, x.dtype, size, 1, 12)
        if v2:
            return collective_ops.broadcast_recv_v2([count], dtype, size, 1, 12)
        return collective_ops.broadcast_recv([count], dtype, size, 1, 12)
    return build


def loop_op(rank, size):
    """A collective in a while loop: its pieces are told apart by iteration."""
    def body(i, x):
        with tf.control_dependencies([i]):
            y = collective_ops.all_reduce(x, size, 1, 13, "Add", "Div")
        return i + 1, y + tf.constant(1.0)
    return tf.while_loop(lambda i, x: i < 5, body,
                         [tf.constant(0), tf.constant(value(rank, 8, np.float32))],
                         parallel_iterations=1)[1]


def mismatch_op(rank, size):
    x = tf.constant(value(rank, 10 + rank, np.float32))
    return collective_ops.all_reduce(x, size, 1, 14, "Add", "Id")


CASES = {
    "mul_int64": reduce_op("Mul", "Id", 33, np.int64),
    "min_float": reduce_op("Min", "Id", 100, np.float32),
    "max_int32": reduce_op("Max", "Id", 17, np.int32),
    "mean_half": reduce_op("Add", "Div", 50, np.float16),
    "mean_double": reduce_op("Add", "Div", 1000, np.float64),
    "gather_float": gather_op(4, np.float32),
    "gather_v2": gather_op(2, np.int64, v2=True),
    "broadcast_0": broadcast_op(0, 9, np.float32),
    "broadcast_1": broadcast_op(1, 100_000, np.float32),
    "broadcast_v2": broadcast_op(1, 5, np.int32, v2=True),
    "sum_v2": reduce_op("Add", "Id", 77, np.float32, v2=True),
    "loop": loop_op,
}
for _count in (1, 15, 16, 17, 32, 33, 48, 64, 1000, 300_000):
    CASES["sum_%d" % _count] = reduce_op("Add", "Id", _count, np.float32)


def config(leader=True, filters=None):
    c = tf.ConfigProto(operation_timeout_in_ms=TIMEOUT_MS)
    if leader:
        c.experimental.collective_group_leader = LEADER
    if filters:
        c.device_filters.extend(filters)
    return c


def run_in_graph(target, members, build, steps=2, leader=True):
    """One session runs all members; the last step's values."""
    with tf.Graph().as_default() as graph:
        outputs = []
        for rank, name in enumerate(members):
            with tf.device(name):
                outputs.append(tf.identity(build(rank, len(members))))
        with tf.Session(target, graph=graph, config=config(leader)) as session:
            options = tf.RunOptions()
            options.experimental.collective_graph_key = 1
            for _ in range(steps):
                result = session.run(outputs, options=options)
    return result


def run_between_graph(targets, build, steps=3):
    """Every member has a session of its own."""
    results, errors = [None] * len(targets), [None] * len(targets)

    def member(rank):
        try:
            with tf.Graph().as_default() as graph:
                with tf.device(device(rank)):
                    output = tf.identity(build(rank, len(targets)))
                filters = ["/job:worker/task:%d" % rank]
                with tf.Session(targets[rank], graph=graph,
                                config=config(filters=filters)) as session:
                    options = tf.RunOptions()
                    options.experimental.collective_graph_key = 1
                    for _ in range(steps):
                        results[rank] = session.run(output, options=options)
        except Exception as e:  # the main thread looks at it
            errors[rank] = e

    threads = [threading.Thread(target=member, args=(r,)) for r in range(len(targets))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results, errors


class Mismatch(Exception):
    pass


def expect_equal(name, ours, theirs):
    for rank, (a, b) in enumerate(zip(ours, theirs)):
        if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape or \
                a.tobytes() != b.tobytes():
            raise Mismatch("%s: rank %d: %r, but TensorFlow %r" % (name, rank, a, b))


def one_task(cpus, command):
    return clusters.ServerCluster({"worker": 1}, cpus, command)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="the command that starts our server")
    parser.add_argument("--cases", default="", help="only those whose name contains this")
    parser.add_argument("--parts", default="local,graph,between,mixed,errors")
    args = parser.parse_args()
    parts = args.parts.split(",")
    cases = {n: b for n, b in CASES.items() if args.cases in n}
    # Members in one graph have loops of different names, and so different keys: they never meet.
    one_graph = {n: b for n, b in cases.items() if n != "loop"}
    failures, passed = [], 0

    def check(name, call):
        nonlocal passed
        try:
            call()
            passed += 1
            print("ok  ", name, flush=True)
        except (Mismatch, tf.errors.OpError) as e:
            failures.append(name)
            print("FAIL", name, str(e)[:1500], flush=True)

    if "local" in parts:  # three devices of one task
        members = [device(0, i) for i in range(3)]
        for name, build in one_graph.items():
            with one_task(3, None) as theirs, one_task(3, args.server) as ours:
                check("local/" + name, lambda: expect_equal(
                    name, run_in_graph(ours.target("worker", 0), members, build, leader=False),
                    run_in_graph(theirs.target("worker", 0), members, build, leader=False)))

    # Each case on fresh servers: TensorFlow's keep their groups for ever.
    reference = {}
    if "between" in parts or "mixed" in parts:
        for name, build in cases.items():
            with clusters.ServerCluster({"worker": 3}, 1, None) as theirs:
                results, errors = run_between_graph(theirs.targets(), build)
                if any(errors):
                    print("note", name, "TensorFlow's own fails:", [str(e)[:300] for e in errors],
                          flush=True)
                reference[name] = results

    if "graph" in parts:  # two devices in each of two tasks, one session
        members = [device(t, i) for t in range(2) for i in range(2)]
        with clusters.ServerCluster({"worker": 2}, 2, args.server) as ours:
            for name, build in one_graph.items():
                with one_task(4, None) as theirs:
                    local = [device(0, i) for i in range(4)]
                    check("graph/" + name, lambda: expect_equal(
                        name, run_in_graph(ours.target("worker", 0), members, build),
                        run_in_graph(theirs.target("worker", 0), local, build, leader=False)))

    def between(name, build, cluster):
        results, errors = run_between_graph(cluster.targets(), build)
        for e in errors:
            if e is not None:
                raise e
        expect_equal(name, results, reference[name])

    if "between" in parts:
        with clusters.ServerCluster({"worker": 3}, 1, args.server) as ours:
            for name, build in cases.items():
                check("between/" + name, lambda: between(name, build, ours))

    if "mixed" in parts:
        for odd in (1, 0):  # TensorFlow as a member, and as the leader
            for name, build in cases.items():
                commands = [args.server] * 3
                commands[odd] = None
                with clusters.ServerCluster({"worker": len(commands)}, 1, {"worker": list(commands)}) as both:
                    check("mixed%d/%s" % (odd, name), lambda: between(name, build, both))

    if "errors" in parts:
        codes = []
        for command in (None, args.server):
            with clusters.ServerCluster({"worker": 2}, 1, command) as cluster:
                _, errors = run_between_graph(cluster.targets(), mismatch_op, steps=1)
                codes.append([type(e).__name__ for e in errors])
                if command is not None:
                    for e in errors:
                        print("     ", str(e)[:600], flush=True)
        print("errors of a mismatch: TensorFlow", codes[0], "ours", codes[1], flush=True)
        if any(c == "NoneType" for c in codes[1]):
            failures.append("errors/mismatch")

    print("%d agree, %d do not: %s" % (passed, len(failures), " ".join(failures)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
