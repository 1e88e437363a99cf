# SPDX-License-Identifier: Apache-2.0
"""Training with parameter servers, as TensorFlow's users write it, on our servers.

    python parameter_servers.py --server "path/to/millrace server"
    python parameter_servers.py --server ... --part own_loop --mixed

Two ps and three workers, and a coordinator of stock TensorFlow that finds them in TF_CONFIG. The
parts, each a program of its own: fit of tf_keras with its callbacks; a loop with a coordinator,
words looked up in a vocabulary, and an evaluation between the epochs; the same loop while a worker
is killed and started again; and a ps that is lost. With --mixed some of the tasks are TensorFlow's
own servers. Exit code 1 when a part fails.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["GRPC_FAIL_FAST"] = "use_caller"

from clusters import ServerCluster, free_ports

PART_DEADLINE_S = 240
WORDS = ["river", "mill", "stone", "grain", "wheel", "dam"]
GOOD = set(WORDS[:3])
STEPS_PER_EPOCH, BATCH = 20, 32


# -- the cluster and its faults: the parent ---------------------------------------------

def commands(server, mixed):
    """By task: None is one of TensorFlow's."""
    if not mixed:
        return server
    return {"ps": [server, None], "worker": [None, server, server]}


def run_part(part, args):
    """Runs a part as a child and does to the cluster what it asks for. Returns the exit code."""
    jobs = {"ps": 2, "worker": 3}
    with ServerCluster(jobs, 1, commands(args.server, args.mixed)) as cluster:
        chief = ["127.0.0.1:%d" % free_ports(1)[0]]
        config = {"cluster": dict(cluster.spec, chief=chief),
                  "task": {"type": "chief", "index": 0}}
        child = subprocess.Popen(
            [sys.executable, "-B", os.path.abspath(__file__), "--child", part],
            env=dict(os.environ, TF_CONFIG=json.dumps(config)), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        timer = threading.Timer(PART_DEADLINE_S, child.kill)
        timer.start()
        try:
            for line in child.stdout:
                words = line.split()
                if words[:1] != ["please"]:
                    print(line, end="", flush=True)
                    continue
                getattr(cluster, words[1])(words[2], int(words[3]))
                child.stdin.write("done\n")
                child.stdin.flush()
            return child.wait()
        finally:
            timer.cancel()
            child.kill()
            child.wait()


# -- programs of a coordinator: the child -----------------------------------------------

def please(what, job, task):
    """Asks the parent to "kill" or "restart" a task; returns when that has happened."""
    print("please", what, job, task, flush=True)
    if sys.stdin.readline() != "done\n":
        sys.exit("the parent is gone")


def make_strategy(tf):
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
        min_shard_bytes=64, max_shards=2)
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)


def fit(tf, keras):
    """A line is found by fit, with what people hang onto it."""
    strategy = make_strategy(tf)

    def make_data(context):
        x = tf.random.stateless_uniform([256, 4], [1, 2])
        y = tf.linalg.matvec(x, [1.0, -2.0, 0.5, 3.0]) + 0.25
        data = tf.data.Dataset.from_tensor_slices((x, y))
        return data.shuffle(64).repeat().batch(BATCH).prefetch(2)

    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(4,))])
        model.compile(keras.optimizers.legacy.SGD(0.2), loss="mse", steps_per_execution=5)
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [
            keras.callbacks.ModelCheckpoint(os.path.join(folder, "weights-{epoch}"),
                                            save_weights_only=True),
            keras.callbacks.BackupAndRestore(os.path.join(folder, "backup"))]
        history = model.fit(keras.utils.experimental.DatasetCreator(make_data), epochs=5,
                            steps_per_epoch=40, verbose=0, callbacks=callbacks).history["loss"]
        assert history[-1] < 0.01 * history[0], history
        written = [n for n in os.listdir(folder) if n.endswith(".index")]
        assert len(written) == 5, written
        model.load_weights(os.path.join(folder, "weights-5"))
    loss = model.evaluate(make_data(None), steps=4, verbose=0)
    assert loss < 0.02, loss
    assert {v.device.split("/")[1] for v in model.weights} == {"job:ps"}
    assert int(model.optimizer.iterations) == 200, model.optimizer.iterations


class WordLoop:
    """Finds out which words are good, from lines of three words whose label is that of most."""

    def __init__(self, tf, keras):
        self.tf, self.strategy = tf, make_strategy(tf)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        with self.strategy.scope():
            self.lookup = keras.layers.StringLookup(vocabulary=WORDS, mask_token=None)
            ids = keras.Input((3,), dtype=tf.int64)
            vectors = keras.layers.Embedding(len(WORDS) + 1, 16)(ids)
            out = keras.layers.Dense(1, "sigmoid")(tf.reduce_mean(vectors, 1))
            self.model = keras.Model(ids, out)
            self.optimizer = keras.optimizers.legacy.RMSprop(0.05)
            self.accuracy = keras.metrics.Accuracy()
            self.seen = tf.Variable(0, dtype=tf.int64)
        # The embeddings are cut in two.
        tasks = [v.device.split("/")[3] for v in self.model.layers[1].weights]
        assert tasks == ["task:0", "task:1"], tasks
        self.training = iter(self.coordinator.create_per_worker_dataset(self.make_training))
        self.train_step, self.eval_step = self.make_steps(keras)

    def lines(self, seed):
        tf = self.tf
        picks = tf.random.stateless_uniform([512, 3], [seed, 7], 0, len(WORDS), tf.int32)
        good = tf.constant([1.0 if w in GOOD else 0.0 for w in WORDS])
        labels = tf.cast(tf.reduce_sum(tf.gather(good, picks), 1) > 1.5, tf.float32)
        return tf.data.Dataset.from_tensor_slices(
            (tf.gather(tf.constant(WORDS), picks), labels[:, None]))

    def make_training(self):
        return (self.lines(1).map(lambda line, label: (self.lookup(line), label))
                .shuffle(128).repeat().batch(BATCH).prefetch(2))

    def make_evaluation(self):
        return self.lines(2).map(lambda line, label: (self.lookup(line), label)).batch(BATCH)

    def make_steps(self, keras):
        tf, strategy, model = self.tf, self.strategy, self.model

        @tf.function
        def train_step(iterator):
            def replica(batch, labels):
                with tf.GradientTape() as tape:
                    guess = model(batch, training=True)
                    loss = tf.reduce_mean(keras.losses.binary_crossentropy(labels, guess))
                grads = tape.gradient(loss, model.trainable_variables)
                self.optimizer.apply_gradients(zip(grads, model.trainable_variables))
                self.accuracy.update_state(labels, tf.cast(guess > 0.5, tf.float32))
                return loss
            losses = strategy.run(replica, args=next(iterator))
            return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

        @tf.function
        def eval_step(iterator):
            def replica(batch, labels):
                guess = model(batch, training=False)
                self.accuracy.update_state(labels, tf.cast(guess > 0.5, tf.float32))
                self.seen.assign_add(tf.shape(labels, tf.int64)[0])
            strategy.run(replica, args=next(iterator))
        return train_step, eval_step

    def train(self, epochs, disturb=None):
        for epoch in range(epochs):
            self.accuracy.reset_states()
            for step in range(STEPS_PER_EPOCH):
                loss = self.coordinator.schedule(self.train_step, args=(self.training,))
                if disturb is not None:
                    disturb(epoch * STEPS_PER_EPOCH + step)
            self.coordinator.join()
        return loss.fetch()

    def evaluate(self):
        """All batches once, whichever workers take them."""
        iterator = iter(self.coordinator.create_per_worker_dataset(
            lambda: self.make_evaluation().repeat()))
        self.accuracy.reset_states()
        self.seen.assign(0)
        for _ in range(16):
            self.coordinator.schedule(self.eval_step, args=(iterator,))
        self.coordinator.join()
        assert int(self.seen) == 512, int(self.seen)
        return float(self.accuracy.result())


def own_loop(tf, keras):
    loop = WordLoop(tf, keras)
    before = loop.evaluate()
    loss = loop.train(epochs=5)
    after = loop.evaluate()
    assert loss < 0.5 and after > 0.95 and after > before, (loss, before, after)
    assert int(loop.optimizer.iterations) == 5 * STEPS_PER_EPOCH
    with tempfile.TemporaryDirectory() as folder:
        manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(model=loop.model, optimizer=loop.optimizer), folder, 2)
        manager.save()
        for v in loop.model.trainable_variables:
            v.assign(tf.zeros_like(v))
        manager.checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    assert loop.evaluate() == after


def worker_restarts(tf, keras):
    """Steps of the worker that was lost are taken by others; it comes back with its data."""
    loop = WordLoop(tf, keras)

    def disturb(step):
        if step == 30:
            please("kill", "worker", 1)
        if step == 50:
            please("restart", "worker", 1)
    loop.train(epochs=5, disturb=disturb)
    assert loop.evaluate() > 0.95
    assert int(loop.optimizer.iterations) >= 5 * STEPS_PER_EPOCH


def ps_lost(tf, keras):
    """What it kept is gone, so the program is told, and soon."""
    loop = WordLoop(tf, keras)
    loop.train(epochs=1)
    please("kill", "ps", 1)
    try:
        loop.train(epochs=2)
    except tf.errors.UnavailableError:
        return
    raise AssertionError("the loop goes on without a ps")


PARTS = [fit, own_loop, worker_restarts, ps_lost]


def run_child(part):
    import tensorflow as tf
    import tf_keras as keras
    tf.get_logger().setLevel("CRITICAL")
    failed = 0
    try:
        next(p for p in PARTS if p.__name__ == part)(tf, keras)
    except Exception:
        failed = 1
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # The coordinator's threads may be waiting for tasks that are gone by now.
    os._exit(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", help="command that starts one of our servers; else TensorFlow's")
    parser.add_argument("--mixed", action="store_true", help="some tasks are TensorFlow's servers")
    parser.add_argument("--part", action="append", choices=[p.__name__ for p in PARTS])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        run_child(args.child)
    failed = 0
    for part in args.part or [p.__name__ for p in PARTS]:
        code = run_part(part, args)
        failed += code != 0
        print("ok: " + part if code == 0 else "FAILED: %s (exit code %d)" % (part, code),
              flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
