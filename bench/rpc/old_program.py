#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times TensorFlow's own distributed MNIST program on Millrace's servers and on TensorFlow's.

    bench/rpc/old_program.py --server "bazel-bin/tools/millrace server" --script mnist_replica.py
        --data_dir DIR [--steps N] [--runs N]

`mnist_replica.py` is the program of TensorFlow's tools/dist_test/python, written for TensorFlow 1;
it is given the interface of that time and runs unchanged, with --existing_servers, one ps and two
workers, asynchronous and synchronous. The needed Python has TensorFlow (tried with 2.21). The
time of a run is that of the training loop, as the slower of the two programs prints it.
"""
import argparse
import gzip
import os
import re
import runpy
import statistics
import subprocess
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '../../tests/tf_compat'))
RUN_LIMIT_S = 300
AFTER_THE_FIRST_S = 30


class Examples:
    """Images and labels in the order of a permutation, as the old `next_batch` gave them."""

    def __init__(self, np, images, labels):
        self.images, self.labels = images, labels
        self._order, self._at = np.random.permutation(len(images)), 0

    def next_batch(self, count):
        if self._at + count > len(self._order):
            self._at = 0
        rows = self._order[self._at:self._at + count]
        self._at += count
        return self.images[rows], self.labels[rows]


def read_data_sets(folder, one_hot=False):
    import numpy as np

    def idx(name):
        with gzip.open(os.path.join(folder, name + '.gz')) as f:
            raw = f.read()
        dims = np.frombuffer(raw, '>i4', raw[3], 4)
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * len(dims)).reshape(dims)

    images = idx('train-images-idx3-ubyte').reshape(-1, 784).astype(np.float32) / 255
    labels = idx('train-labels-idx1-ubyte')
    labels = np.eye(10)[labels] if one_hot else labels
    return types.SimpleNamespace(train=Examples(np, images[5000:], labels[5000:]),
                                 validation=Examples(np, images[:5000], labels[:5000]))


def run_script(argv):
    """In a process of its own: gives the script what TensorFlow 1 had, and runs it."""
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    import tensorflow.compat.v1 as tf
    tf.disable_v2_behavior()
    names = ['tensorflow.examples', 'tensorflow.examples.tutorials',
             'tensorflow.examples.tutorials.mnist']
    for name in names:
        sys.modules[name] = types.ModuleType(name)
    sys.modules[names[-1]].input_data = types.SimpleNamespace(read_data_sets=read_data_sets)
    sys.modules['tensorflow'] = tf
    sys.argv = argv
    try:
        runpy.run_path(argv[0], run_name='__main__')
    except SystemExit:
        pass
    sys.stdout.flush()
    os._exit(0)  # threads that feed queues may still wait


def train(args, spec, sync):
    """(seconds, cross entropy) of the slower worker and of the first."""
    command = [sys.executable, os.path.abspath(__file__), '--run', args.script,
               '--existing_servers=True', '--num_gpus=0', '--job_name=worker',
               '--train_steps=%d' % args.steps, '--data_dir=' + args.data_dir,
               '--ps_hosts=' + ','.join(spec['ps']), '--worker_hosts=' + ','.join(spec['worker'])]
    command += ['--sync_replicas'] if sync else []
    workers = [subprocess.Popen(command + ['--task_index=%d' % i], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True) for i in (0, 1)]
    texts = []
    try:
        texts.append(workers[0].communicate(timeout=RUN_LIMIT_S)[0])
        # A synchronous worker may be left waiting for its partner's gradient.
        texts.append(workers[1].communicate(timeout=AFTER_THE_FIRST_S)[0])
    except subprocess.TimeoutExpired:
        if not texts:
            raise
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    seconds = [float(s) for t in texts for s in re.findall(r'elapsed time: ([0-9.]+) s', t)]
    loss = re.search(r'validation cross entropy = (\S+)', texts[0])
    if not seconds or not loss:
        raise RuntimeError('the program did not end its training:\n' + texts[0][-2000:])
    return max(seconds), float(loss.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--server', required=True, help='command that starts one of our servers')
    parser.add_argument('--script', required=True, help='path of mnist_replica.py')
    parser.add_argument('--data_dir', required=True)
    parser.add_argument('--steps', type=int, default=2000)
    parser.add_argument('--runs', type=int, default=3)
    args = parser.parse_args()
    from clusters import ServerCluster
    for sync in (False, True):
        kind = 'synchronous' if sync else 'asynchronous'
        ratios = []
        for run in range(args.runs):
            results = []
            for command in (args.server, None):
                with ServerCluster({'ps': 1, 'worker': 2}, 1, command) as cluster:
                    results.append(train(args, cluster.spec, sync))
            (ours, our_loss), (peer, peer_loss) = results
            ratios.append(ours / peer)
            print('%s %d steps, run %d: Millrace %.2f s, cross entropy %.1f; TensorFlow %.2f s, '
                  '%.1f; ratio %.3f' % (kind, args.steps, run + 1, ours, our_loss, peer, peer_loss,
                                        ratios[-1]), flush=True)
        print('%s: ratio of times: median %.3f [%.3f, %.3f]' % (
            kind, statistics.median(ratios), min(ratios), max(ratios)), flush=True)
    return 0


if __name__ == '__main__':
    if sys.argv[1:2] == ['--run']:
        run_script(sys.argv[2:])
    sys.exit(main())
