# SPDX-License-Identifier: Apache-2.0
"""Model.fit of Keras 2 (package tf_keras) with ParameterServerStrategy.

Keras 3 does not support fit with this strategy, so programs that use it run
with tf_keras.
"""
import glob
import tempfile

from harness import *  # noqa: F401,F403

keras = pytest.importorskip("tf_keras")
tf.get_logger().setLevel("CRITICAL")

X = np.random.RandomState(0).randn(64, 3).astype(np.float32)
Y = X @ np.float32([[1.0], [-2.0], [0.5]]) + 0.3


def dataset():
    return tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(16)


def make(s, optimizer=None, **kw):
    with s.scope():
        m = keras.Sequential([keras.layers.Dense(
            1, input_shape=(3,), kernel_initializer="zeros")])
        m.compile(optimizer or keras.optimizers.SGD(0.1), loss="mse", **kw)
    return m


def sgd_weights(steps, lr=0.1):
    w, b = np.zeros([3, 1]), np.zeros([1])
    losses = []
    for t in range(steps):
        i = (t * 16) % 64
        x, y = X[i:i + 16].astype(np.float64), Y[i:i + 16]
        d = x @ w + b - y
        losses.append((d ** 2).mean())
        w, b = w - lr * x.T @ d / 8, b - lr * 2 * d.mean(0)
    return w, b, losses


def test_fit_on_one_worker_is_exact(own):
    s = ps_strategy(own(ps=2, worker=1))
    m = make(s)
    h = m.fit(dataset(), epochs=2, steps_per_epoch=6, verbose=0)
    w, b, losses = sgd_weights(12)
    close(m.weights[0].numpy(), w, 1e-4)
    close(m.weights[1].numpy(), b, 1e-4)
    close(h.history["loss"], [np.mean(losses[:6]), np.mean(losses[6:])], 1e-4)
    assert {v.device for v in m.weights} == {P0, P1}


def test_steps_per_execution(own):
    s = ps_strategy(own(ps=1, worker=1))
    m = make(s, steps_per_execution=4)
    m.fit(dataset(), epochs=2, steps_per_epoch=8, verbose=0)
    w, b, _ = sgd_weights(16)
    close(m.weights[0].numpy(), w, 1e-4)
    assert int(m.optimizer.iterations) == 16


def test_fit_on_three_workers_with_dataset_creator(five):
    s = ps_strategy(five)
    m = make(s, keras.optimizers.SGD(0.05))
    creator = keras.utils.experimental.DatasetCreator(
        lambda context: dataset().prefetch(2))
    h = m.fit(creator, epochs=4, steps_per_epoch=30, verbose=0)
    losses = h.history["loss"]
    assert losses[-1] < 0.02 < losses[0]
    assert int(m.optimizer.iterations) == 120


def test_evaluate_and_predict(own):
    s = ps_strategy(own(ps=1, worker=1))
    m = make(s, metrics=["mae"])
    loss, mae = m.evaluate(dataset(), steps=4, verbose=0)
    close([loss, mae], [(Y ** 2).mean(), np.abs(Y).mean()], 1e-4)


def test_model_checkpoint_callback(own):
    folder = tempfile.mkdtemp()
    s = ps_strategy(own(ps=1, worker=1))
    m = make(s)
    m.fit(dataset(), epochs=2, steps_per_epoch=4, verbose=0, callbacks=[
        keras.callbacks.ModelCheckpoint(
            os.path.join(folder, "w-{epoch}"), save_weights_only=True)])
    assert len(glob.glob(os.path.join(folder, "w-*.index"))) == 2
    w1, _, _ = sgd_weights(4)
    m.load_weights(os.path.join(folder, "w-1"))
    close(m.weights[0].numpy(), w1, 1e-4)


def _interrupted(talk, c, folder, stop_after):
    s = ps_strategy(c)
    m = make(s)

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            seen.append(epoch)
            if epoch == stop_after:
                raise KeyboardInterrupt
    seen = []
    try:
        m.fit(dataset(), epochs=4, steps_per_epoch=4, verbose=0, callbacks=[
            keras.callbacks.BackupAndRestore(folder), Stop()])
    except KeyboardInterrupt:
        pass
    return seen, m.weights[0].numpy().tolist()


@pytest.mark.limit(90)
def test_backup_and_restore(own):
    """The second run goes on with the epoch in which the first one ended."""
    folder = tempfile.mkdtemp()
    c = own(ps=1, worker=1)
    seen, _ = run_client(_interrupted, c, folder, 2)
    assert seen == [0, 1, 2]
    seen, _ = run_client(_interrupted, c, folder, None)
    assert seen == [2, 3]


def test_tensorboard_callback(own):
    pytest.importorskip("tensorboard")
    folder = tempfile.mkdtemp()
    s = ps_strategy(own(ps=1, worker=1))
    m = make(s)
    m.fit(dataset(), epochs=2, steps_per_epoch=4, verbose=0, callbacks=[
        keras.callbacks.TensorBoard(folder)])
    tags = []
    for path in glob.glob(os.path.join(folder, "train", "events*")):
        for e in tf.compat.v1.train.summary_iterator(path):
            tags += [v.tag for v in e.summary.value]
    assert "epoch_loss" in tags


def test_early_stopping_and_history(own):
    s = ps_strategy(own(ps=1, worker=1))
    m = make(s, keras.optimizers.SGD(0.0))
    h = m.fit(dataset(), epochs=6, steps_per_epoch=4, verbose=0, callbacks=[
        keras.callbacks.EarlyStopping("loss", patience=2)])
    assert len(h.history["loss"]) == 3
    close(h.history["loss"], [(Y ** 2).mean()] * 3, 1e-4)


def test_fit_with_adam_and_sharded_embedding(five):
    s = ps_strategy(five, tf.distribute.experimental.partitioners
                    .FixedShardsPartitioner(2))
    with s.scope():
        m = keras.Sequential([
            keras.layers.Embedding(10, 4, input_length=2),
            keras.layers.Flatten(), keras.layers.Dense(1)])
        m.compile(keras.optimizers.Adam(0.1), loss="mse")
    ids = np.random.RandomState(1).randint(0, 10, [60, 2])
    ds = tf.data.Dataset.from_tensor_slices(
        (ids, (ids[:, :1] > ids[:, 1:]).astype(np.float32))
    ).repeat().batch(20)
    h = m.fit(ds, epochs=6, steps_per_epoch=20, verbose=0)
    assert min(h.history["loss"][1:]) < 0.8 * h.history["loss"][0]


def test_preprocessing_layers_and_saved_model(own):
    s = ps_strategy(own(ps=1, worker=1))
    vocab = ["hulk", "batman", "avenger"]
    with s.scope():
        lookup = keras.layers.StringLookup(vocabulary=vocab, mask_token=None)
        inputs = keras.Input((2,), dtype=tf.int64)
        e = keras.layers.Embedding(4, 8)(inputs)
        out = keras.layers.Dense(1, "sigmoid")(tf.reduce_mean(e, 1))
        m = keras.Model(inputs, out)
        m.compile(keras.optimizers.SGD(1.0), "binary_crossentropy")

    def dataset_fn(_):
        ds = tf.data.Dataset.from_tensor_slices(
            ([["hulk", "batman"], ["avenger", "hulk"]], [[0.0], [1.0]]))
        return ds.map(lambda f, y: (lookup(f), y)).repeat().batch(2)
    h = m.fit(keras.utils.experimental.DatasetCreator(dataset_fn), epochs=3,
              steps_per_epoch=20, verbose=0)
    assert h.history["loss"][-1] < h.history["loss"][0]
    folder = os.path.join(tempfile.mkdtemp(), "m")
    m.save_weights(folder)
    assert any("embeddings" in n for n, _ in tf.train.list_variables(folder))


@pytest.mark.limit(90)
def test_fit_goes_on_while_a_worker_restarts(own):
    import threading
    c = own(ps=1, worker=2)
    s = ps_strategy(c)
    m = make(s, keras.optimizers.SGD(0.05))

    def disturb():
        time.sleep(1.5)
        c.kill("worker", 1)
        time.sleep(0.5)
        c.start(only=[("worker", 1)])
    t = threading.Thread(target=disturb)
    t.start()
    h = m.fit(keras.utils.experimental.DatasetCreator(lambda _: dataset()),
              epochs=8, steps_per_epoch=100, verbose=0)
    t.join()
    assert len(h.history["loss"]) == 8 and h.history["loss"][-1] < 0.02
