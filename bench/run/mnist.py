#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the main job beside TensorFlow's, in turns, and prints the ratio.

    bench/run/mnist.py --python VENV/bin/python --data_dir DIR [--sync] [--steps N] [--runs N]

Both sides train the same model (784-100-10, ReLU, clipped cross entropy summed over a batch of
100, Adam 0.01) with one ps and two workers, each a process, on the same idx files, for the same
number of global steps. VENV holds tensorflow (tried with 2.21). Without --python only Millrace
runs and nothing is compared. The time of a run is that of the training loop alone, as the slower
worker saw it; starting the processes is not in it.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def millrace(args):
    command = [args.binary, f'--data_dir={args.data_dir}', f'--train_steps={args.steps}', '--quiet',
               f'--num_workers={args.workers}'] + (['--sync_replicas'] if args.sync else [])
    text = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    seconds = [float(s) for s in re.findall(r'Training elapsed time: ([0-9.]+) s', text)]
    loss = float(re.search(r'validation cross entropy: ([0-9.]+)', text).group(1))
    accuracy = float(re.search(r'test accuracy: ([0-9.]+)', text).group(1))
    return {'seconds': max(seconds), 'loss': loss, 'accuracy': accuracy}


def tensorflow(args):
    command = [args.python, os.path.join(HERE, 'mnist_tensorflow.py'), '--data_dir', args.data_dir,
               '--steps', str(args.steps), '--workers', str(args.workers)]
    command += ['--sync'] if args.sync else []
    text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          timeout=600, check=True).stdout
    return json.loads(text.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--binary', default=os.path.join(HERE, '../../bazel-bin/examples/mnist_replica'))
    parser.add_argument('--python', help='an interpreter that can import tensorflow')
    parser.add_argument('--data_dir', required=True)
    parser.add_argument('--sync', action='store_true')
    parser.add_argument('--steps', type=int, default=2000)
    parser.add_argument('--workers', type=int, default=2)
    parser.add_argument('--runs', type=int, default=3)
    args = parser.parse_args()
    args.data_dir = os.path.abspath(args.data_dir)
    kind = 'synchronous' if args.sync else 'asynchronous'
    ratios = []
    for run in range(args.runs):
        ours = millrace(args)
        line = (f'{kind} {args.steps} steps, run {run + 1}: Millrace {ours["seconds"]:.2f} s '
                f'({args.steps / ours["seconds"]:.0f} steps/s), validation cross entropy {ours["loss"]:.1f}')
        if args.python:
            peer = tensorflow(args)
            ratios.append(ours['seconds'] / peer['seconds'])
            line += (f'; TensorFlow {peer["seconds"]:.2f} s ({args.steps / peer["seconds"]:.0f} steps/s), '
                     f'{peer["loss"]:.1f}; ratio {ratios[-1]:.3f}')
        print(line, flush=True)
    if ratios:
        print(f'ratio of times: median {statistics.median(ratios):.3f} '
              f'[{min(ratios):.3f}, {max(ratios):.3f}]')
    return 0


if __name__ == '__main__':
    sys.exit(main())
