# SPDX-License-Identifier: Apache-2.0
"""The main job in TensorFlow 1 style, for mnist.py to compare with: prints one JSON line.

    mnist_tensorflow.py --data_dir DIR --steps N --workers N [--sync]

The parent starts one ps and the workers as processes of this file; each worker writes what it
measured to a file, and the slowest one counts.
"""
import argparse
import gzip
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
HIDDEN, BATCH, RATE, VALIDATION = 100, 100, 0.01, 5000


def read_idx(folder, name):
    import numpy as np
    plain = os.path.join(folder, name)
    opener = open(plain, 'rb') if os.path.exists(plain) else gzip.open(plain + '.gz', 'rb')
    with opener as stream:
        raw = stream.read()
    rank = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], 'big') for i in range(rank)]
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * rank).reshape(shape)


def build(tf, args, setter):
    with tf.device(setter):
        step = tf.train.get_or_create_global_step()
        hid_w = tf.Variable(tf.truncated_normal([784, HIDDEN], stddev=1.0 / 28), name='hid_w')
        hid_b = tf.Variable(tf.zeros([HIDDEN]), name='hid_b')
        sm_w = tf.Variable(tf.truncated_normal([HIDDEN, 10], stddev=HIDDEN**-0.5), name='sm_w')
        sm_b = tf.Variable(tf.zeros([10]), name='sm_b')
        images = tf.placeholder(tf.float32, [None, 784])
        labels = tf.placeholder(tf.float32, [None, 10])
        hidden = tf.nn.relu(tf.nn.xw_plus_b(images, hid_w, hid_b))
        probability = tf.nn.softmax(tf.nn.xw_plus_b(hidden, sm_w, sm_b))
        loss = -tf.reduce_sum(labels * tf.log(tf.clip_by_value(probability, 1e-10, 1.0)))
        optimizer = tf.train.AdamOptimizer(RATE)
        if args.sync:
            optimizer = tf.train.SyncReplicasOptimizer(
                optimizer, replicas_to_aggregate=args.workers, total_num_replicas=args.workers)
        train = optimizer.minimize(loss, global_step=step)
    return step, images, labels, loss, optimizer, train


def work(args):
    import numpy as np
    import tensorflow.compat.v1 as tf
    tf.disable_v2_behavior()
    cluster = tf.train.ClusterSpec(json.loads(args.cluster))
    config = tf.ConfigProto(allow_soft_placement=True,
                            device_filters=['/job:ps', f'/job:worker/task:{args.task}'])
    server = tf.train.Server(cluster, args.job, args.task, config=config)
    if args.job == 'ps':
        server.join()
    x = read_idx(args.data_dir, 'train-images-idx3-ubyte').reshape(-1, 784).astype(np.float32) / 255
    y = np.eye(10, dtype=np.float32)[read_idx(args.data_dir, 'train-labels-idx1-ubyte')]
    setter = tf.train.replica_device_setter(worker_device=f'/job:worker/task:{args.task}',
                                            cluster=cluster)
    step, images, labels, loss, optimizer, train = build(tf, args, setter)
    chief = args.task == 0
    extra, tokens, runner = {}, None, None
    if args.sync:
        local = optimizer.chief_init_op if chief else optimizer.local_step_init_op
        extra = {'local_init_op': local,
                 'ready_for_local_init_op': optimizer.ready_for_local_init_op}
        tokens, runner = optimizer.get_init_tokens_op(), optimizer.get_chief_queue_runner()
    supervisor = tf.train.Supervisor(is_chief=chief, logdir=None, recovery_wait_secs=1,
                                     init_op=tf.global_variables_initializer(), global_step=step,
                                     summary_op=None, saver=None, **extra)
    session = supervisor.prepare_or_wait_for_session(server.target, config=config)
    if args.sync and chief:
        session.run(tokens)
        supervisor.start_queue_runners(session, [runner])
    open(os.path.join(args.folder, f'ready{args.task}'), 'w').close()
    while len([f for f in os.listdir(args.folder) if f.startswith('ready')]) < args.workers:
        time.sleep(0.005)
    order, at, done = np.random.default_rng().permutation(len(x) - VALIDATION) + VALIDATION, 0, 0
    begin = time.time()
    while done < args.steps:
        if at + BATCH > len(order):
            np.random.default_rng().shuffle(order)
            at = 0
        batch = order[at:at + BATCH]
        at += BATCH
        _, done = session.run([train, step], {images: x[batch], labels: y[batch]})
    seconds = time.time() - begin
    value = float(session.run(loss, {images: x[:VALIDATION], labels: y[:VALIDATION]})) if chief else 0
    path = os.path.join(args.folder, f'result{args.task}')
    with open(path, 'w') as out:
        json.dump({'seconds': seconds, 'loss': value}, out)
    os._exit(0)


def launch(args):
    sockets = [socket.socket() for _ in range(args.workers + 1)]
    for s in sockets:
        s.bind(('127.0.0.1', 0))
    hosts = [f'127.0.0.1:{s.getsockname()[1]}' for s in sockets]
    for s in sockets:
        s.close()
    with tempfile.TemporaryDirectory() as folder:
        base = [sys.executable, os.path.abspath(__file__), '--data_dir', args.data_dir,
                '--steps', str(args.steps), '--workers', str(args.workers), '--folder', folder,
                '--cluster', json.dumps({'ps': hosts[:1], 'worker': hosts[1:]})]
        base += ['--sync'] if args.sync else []
        ps = subprocess.Popen(base + ['--job', 'ps', '--task', '0'])
        workers = [subprocess.Popen(base + ['--job', 'worker', '--task', str(i)])
                   for i in range(args.workers)]
        try:
            for worker in workers:
                worker.wait(300)
        finally:
            for process in workers + [ps]:
                process.kill()
                process.wait()
        results = []
        for i in range(args.workers):
            with open(os.path.join(folder, f'result{i}')) as stream:
                results.append(json.load(stream))
    print(json.dumps({'seconds': max(r['seconds'] for r in results), 'loss': results[0]['loss']}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--data_dir', required=True)
    parser.add_argument('--steps', type=int, default=2000)
    parser.add_argument('--workers', type=int, default=2)
    parser.add_argument('--sync', action='store_true')
    for hidden in ('--job', '--cluster', '--folder'):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument('--task', type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    work(args) if args.job else launch(args)


if __name__ == '__main__':
    main()
