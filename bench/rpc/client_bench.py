#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a stock TensorFlow client on Millrace's servers beside TensorFlow's servers.

    bench/rpc/client_bench.py --server "bazel-bin/tools/millrace server" [--rounds N]

Needs a Python with TensorFlow (tried with 2.21). A ps and a worker of each engine run at the same
time, on loopback; the same client drives them in turns, so that what else the machine does
meets both. Each line gives the median time of a step on either side and the median of the ratios
of the rounds, in brackets the lowest and the highest. The client's own time is in all of them:
each line ends with the processor time that the client's process took for a step of ours, and what
part that is of TensorFlow's whole step. With little of it side by side, no server can get the ratio
below that part.
"""
import argparse
import os
import statistics
import sys
import time

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tests/tf_compat'))

import numpy as np
import tensorflow.compat.v1 as tf

from clusters import ServerCluster

TIMEOUT_MS = 60000


def config():
    """Nothing is rewritten: what is written is what runs, on both sides."""
    made = tf.ConfigProto(operation_timeout_in_ms=TIMEOUT_MS)
    made.graph_options.rewrite_options.disable_meta_optimizer = True
    made.graph_options.optimizer_options.opt_level = -1
    return made


class Case:
    """`build` gives what to fetch and what to feed; a step of it is run `steps` times a round."""

    def __init__(self, name, steps, build, num_bytes=0):
        self.name, self.steps, self.build, self.num_bytes = name, steps, build, num_bytes


class Side:
    def __init__(self, cluster, case):
        self._graph = tf.Graph()
        with self._graph.as_default():
            fetches, feeds, init = case.build()
            self._session = tf.Session(cluster.target('worker', 0), config=config())
            if init is not None:
                self._session.run(init)
            self._step = self._session.make_callable(fetches, list(feeds))
            self._values = list(feeds.values())
        for _ in range(3):
            self._step(*self._values)

    def time(self, steps):
        """Seconds of one step, and processor seconds of this process in it."""
        step, values = self._step, self._values
        begin, begin_cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            step(*values)
        return ((time.perf_counter() - begin) / steps, (time.process_time() - begin_cpu) / steps)

    def close(self):
        self._session.close()


def null_step():
    with tf.device('/job:worker/task:0'):
        return tf.no_op(), {}, None


def null_step_of_two():
    with tf.device('/job:ps/task:0'):
        there = tf.no_op()
    with tf.device('/job:worker/task:0'), tf.control_dependencies([there]):
        return tf.no_op(), {}, None


def variable(name, num_bytes):
    """Of a name of its own: the sessions share a server's variables."""
    return tf.Variable(tf.zeros([num_bytes // 4]), use_resource=False,
                       name='%s_%d' % (name, num_bytes))


def moved(num_bytes):
    """A tensor goes from the ps to the worker, which looks at its size only."""
    def build():
        with tf.device('/job:ps/task:0'):
            kept = variable('sent', num_bytes)
        with tf.device('/job:worker/task:0'):
            return tf.raw_ops.Size(input=tf.identity(kept)).op, {}, kept.initializer
    return build


def fed(num_bytes):
    def build():
        with tf.device('/job:worker/task:0'):
            x = tf.placeholder(tf.float32, [None])
            return tf.size(x).op, {x: np.zeros(num_bytes // 4, np.float32)}, None
    return build


def fetched(num_bytes):
    def build():
        with tf.device('/job:worker/task:0'):
            kept = variable('fetched', num_bytes)
            return tf.identity(kept), {}, kept.initializer
    return build


MIB = 1 << 20
CASES = [
    Case('empty step of a client', 200, null_step),
    Case('null step of a ps and a worker', 200, null_step_of_two),
    Case('64 B from ps to worker', 200, moved(64), 64),
    Case('64 KiB from ps to worker', 200, moved(1 << 16), 1 << 16),
    Case('1 MiB from ps to worker', 50, moved(MIB), MIB),
    Case('10 MiB from ps to worker', 10, moved(10 * MIB), 10 * MIB),
    Case('100 MiB from ps to worker', 2, moved(100 * MIB), 100 * MIB),
    Case('feed of 100 MiB', 2, fed(100 * MIB), 100 * MIB),
    Case('fetch of 100 MiB', 2, fetched(100 * MIB), 100 * MIB),
]


def duration(seconds):
    return '%.0f us' % (seconds * 1e6) if seconds < 1e-2 else '%.1f ms' % (seconds * 1e3)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--server', required=True, help='command that starts one of our servers')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--only', default='', help='cases whose name contains this')
    args = parser.parse_args()
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.FATAL)
    jobs = {'ps': 1, 'worker': 1}
    with ServerCluster(jobs, 1, args.server) as ours, ServerCluster(jobs, 1) as theirs:
        for case in CASES:
            if args.only not in case.name:
                continue
            a, b = Side(ours, case), Side(theirs, case)
            rounds = [(a.time(case.steps), b.time(case.steps)) for _ in range(args.rounds)]
            ratios = [x[0] / y[0] for x, y in rounds]
            mine, peer = (statistics.median(t[0] for t in side) for side in zip(*rounds))
            client = statistics.median(x[1] for x, _ in rounds)
            rate = ''
            if case.num_bytes >= MIB:
                rate = '; %.2f GB/s against %.2f' % (case.num_bytes / mine / 1e9,
                                                     case.num_bytes / peer / 1e9)
            print('%s: %s, TensorFlow %s; ratio %.3f [%.3f, %.3f]%s; client %s, %.2f' % (
                case.name, duration(mine), duration(peer), statistics.median(ratios), min(ratios),
                max(ratios), rate, duration(client), client / peer), flush=True)
            a.close()
            b.close()
    return 0


if __name__ == '__main__':
    sys.exit(main())
