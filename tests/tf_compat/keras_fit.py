# SPDX-License-Identifier: Apache-2.0
"""Keras' fit through ParameterServerStrategy on our servers.

    python keras_fit.py --server "path/to/millrace server"

A ps and two workers, and the model of one layer whose weights after each step are known: fit with a
data set, evaluate, fit with a DatasetCreator, a checkpoint of the weights. Keras 3 refuses this
strategy, so it needs tf_keras. Exit code 1 when a check fails.
"""
import argparse
import os
import sys
import tempfile
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.pop("TF_CONFIG", None)

import numpy as np
import tensorflow as tf
import tf_keras as keras

from clusters import ServerCluster

RATE, BATCH = 0.1, 16
X = np.random.RandomState(0).randn(64, 3).astype(np.float32)
Y = X @ np.float32([[1.0], [-2.0], [0.5]]) + 0.3


def data_set():
    return tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(BATCH)


def make_model(strategy, rate=RATE):
    with strategy.scope():
        model = keras.Sequential([
            keras.layers.Dense(1, input_shape=(3,), kernel_initializer="zeros")])
        model.compile(keras.optimizers.SGD(rate), loss="mse")
    return model


def weights_after(steps):
    """By hand: one step after the other over the batches."""
    w, b = np.zeros([3, 1]), np.zeros([1])
    for t in range(steps):
        at = t * BATCH % len(X)
        x, y = X[at:at + BATCH].astype(np.float64), Y[at:at + BATCH]
        d = x @ w + b - y
        w, b = w - RATE * x.T @ d * 2 / BATCH, b - RATE * 2 * d.mean(0)
    return w, b


def one_step_at_a_time_is_exact(strategy):
    """Steps of two workers may overlap; epochs of one step cannot, and each begins the data anew."""
    model = make_model(strategy)
    model.fit(data_set(), epochs=1, steps_per_epoch=1, verbose=0)
    w, b = weights_after(1)
    np.testing.assert_allclose(model.weights[0].numpy(), w, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.weights[1].numpy(), b, rtol=1e-4, atol=1e-6)
    devices = {v.device for v in model.weights}
    assert devices == {"/job:ps/replica:0/task:0/device:CPU:0"}, devices


def two_workers_learn(strategy):
    model = make_model(strategy, 0.05)
    losses = model.fit(data_set(), epochs=4, steps_per_epoch=30, verbose=0).history["loss"]
    assert losses[-1] < 0.05 < losses[0], losses
    assert int(model.optimizer.iterations) == 120, model.optimizer.iterations
    loss = model.evaluate(data_set(), steps=4, verbose=0)
    assert loss < 0.05, loss


def a_creator_makes_the_data_at_each_worker(strategy):
    model = make_model(strategy, 0.05)
    creator = keras.utils.experimental.DatasetCreator(lambda context: data_set().prefetch(2))
    losses = model.fit(creator, epochs=3, steps_per_epoch=30, verbose=0).history["loss"]
    assert losses[-1] < 0.1 < losses[0], losses


def weights_are_written_and_read(strategy):
    model = make_model(strategy)
    model.fit(data_set(), epochs=1, steps_per_epoch=4, verbose=0)
    trained = [v.numpy() for v in model.weights]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "weights")
        model.save_weights(path)
        model.fit(data_set(), epochs=1, steps_per_epoch=4, verbose=0)
        model.load_weights(path)
    for v, want in zip(model.weights, trained):
        np.testing.assert_array_equal(v.numpy(), want)


CHECKS = [one_step_at_a_time_is_exact, two_workers_learn, a_creator_makes_the_data_at_each_worker,
          weights_are_written_and_read]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", required=True, help="command that starts one of our servers")
    args = parser.parse_args()
    failed = 0
    with ServerCluster({"ps": 1, "worker": 2}, 1, args.server) as cluster:
        strategy = tf.distribute.ParameterServerStrategy(
            tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec(cluster.spec), rpc_layer="grpc"))
        for check in CHECKS:
            try:
                check(strategy)
                print("ok: " + check.__name__, flush=True)
            except Exception:
                failed += 1
                print("FAILED: " + check.__name__, flush=True)
                traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    # The coordinator's threads may be waiting for tasks that are gone by now.
    code = main()
    sys.stdout.flush()
    os._exit(code)
