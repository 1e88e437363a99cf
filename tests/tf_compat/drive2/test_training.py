# SPDX-License-Identifier: Apache-2.0
"""Training on parameter servers with loops of one's own."""
import tempfile

from harness import *  # noqa: F401,F403

X = np.random.RandomState(0).randn(64, 3).astype(np.float32)
TRUE_W = np.float32([[1.0], [-2.0], [0.5]])
Y = X @ TRUE_W + 0.3


def dataset():
    return tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(16)


def numpy_steps(update, steps, batch=16):
    """Plain gradient steps of the same model in float64."""
    w, b = np.zeros([3, 1]), np.zeros([1])
    state = {}
    for t in range(steps):
        i = (t * batch) % len(X)
        x, y = X[i:i + batch].astype(np.float64), Y[i:i + batch]
        d = 2 * (x @ w + b - y) / batch
        for name, v, g in (("w", w, x.T @ d), ("b", b, d.sum(0))):
            v -= update(state.setdefault(name, {}), g, t + 1)
    return w, b


def sgd(state, g, t):
    return 0.1 * g


def momentum(state, g, t):
    state["m"] = 0.9 * state.get("m", 0.0) - 0.05 * g
    return -state["m"]


def adagrad(state, g, t):
    state["a"] = state.get("a", 0.1) + g * g
    return 0.2 * g / np.sqrt(state["a"] + 1e-7)


def adam(state, g, t):
    state["m"] = 0.9 * state.get("m", 0.0) + 0.1 * g
    state["v"] = 0.999 * state.get("v", 0.0) + 0.001 * g * g
    a = 0.05 * np.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t)
    return a * state["m"] / (np.sqrt(state["v"]) + 1e-7)


def rmsprop(state, g, t):
    state["v"] = 0.9 * state.get("v", 0.0) + 0.1 * g * g
    return 0.01 * g / np.sqrt(state["v"] + 1e-7)


OPTIMIZERS = {
    "sgd": (lambda o: o.SGD(0.1), sgd),
    "momentum": (lambda o: o.SGD(0.05, momentum=0.9), momentum),
    "adagrad": (lambda o: o.Adagrad(0.2), adagrad),
    "adam": (lambda o: o.Adam(0.05), adam),
    "rmsprop": (lambda o: o.RMSprop(0.01), rmsprop),
}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_optimizer_on_one_worker(own, name):
    """12 steps on one worker and two ps give the weights of the formula."""
    c = own(ps=2, worker=1)
    s, co = coordinator(c)
    with s.scope():
        w, b = tf.Variable(tf.zeros([3, 1])), tf.Variable(tf.zeros([1]))
        optimizer = OPTIMIZERS[name][0](tf.keras.optimizers)
        optimizer.build([w, b])
    it = iter(co.create_per_worker_dataset(dataset))

    @tf.function
    def step(it):
        def replica(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.matmul(x, w) + b - y) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, [w, b]), [w, b]))
            return loss
        return s.run(replica, args=next(it))
    for _ in range(12):
        co.schedule(step, args=(it,))
    co.join()
    want_w, want_b = numpy_steps(OPTIMIZERS[name][1], 12)
    close(w.numpy(), want_w, 2e-4)
    close(b.numpy(), want_b, 2e-4)
    assert int(optimizer.iterations) == 12
    slots = [v for v in optimizer.variables if "/job:ps" in v.value.device]
    assert len(slots) == len(optimizer.variables)


def test_asynchronous_training_on_three_workers(five):
    s, co = coordinator(five)
    with s.scope():
        w, b = tf.Variable(tf.zeros([3, 1])), tf.Variable(tf.zeros([1]))
        steps = tf.Variable(0)
    it = iter(co.create_per_worker_dataset(
        lambda: dataset().shuffle(8, seed=1)))

    @tf.function
    def step(it):
        x, y = next(it)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.matmul(x, w) + b - y) ** 2)
        for v, g in zip([w, b], tape.gradient(loss, [w, b])):
            v.assign_sub(0.05 * g)
        steps.assign_add(1)
        return loss
    rs = [co.schedule(step, args=(it,)) for _ in range(150)]
    co.join()
    assert int(steps) == 150
    losses = [float(x) for x in co.fetch(rs)]
    assert np.mean(losses[-10:]) < 1e-2 < np.mean(losses[:5])
    close(w.numpy(), TRUE_W, 0.1)


def test_several_steps_in_one_closure(five):
    s, co = coordinator(five)
    with s.scope():
        n = tf.Variable(0, dtype=tf.int64)
    it = iter(co.create_per_worker_dataset(
        lambda: tf.data.Dataset.range(10).repeat()))

    @tf.function
    def steps(it):
        for _ in tf.range(10):
            n.assign_add(next(it))
    for _ in range(12):
        co.schedule(steps, args=(it,))
    co.join()
    assert int(n) == 12 * 45


def test_sparse_updates_of_a_sharded_embedding(own):
    c = own(ps=2, worker=1)
    s, co = coordinator(
        c, tf.distribute.experimental.partitioners.FixedShardsPartitioner(2))
    table = np.random.RandomState(1).randn(10, 4).astype(np.float32)
    with s.scope():
        v = tf.Variable(table)

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(tf.nn.embedding_lookup(v, ids) ** 2)
        for shard, g in zip(v.variables, tape.gradient(y, v.variables)):
            shard.scatter_sub(tf.IndexedSlices(0.1 * g.values, g.indices))
        return y
    ids = [0, 9, 4, 9]
    r = co.schedule(step, args=(tf.constant(ids),))
    close(r.fetch(), (table[ids] ** 2).sum(), 1e-5)
    want = table.copy()
    for i in ids:
        want[i] -= 0.2 * table[i]
    close(np.concatenate([p.numpy() for p in v.variables]), want, 1e-5)


def test_metrics_on_parameter_servers(own):
    c = own(ps=1, worker=1)
    s, co = coordinator(c)
    with s.scope():
        total = tf.keras.metrics.Sum()
        acc = tf.keras.metrics.BinaryAccuracy()

    @tf.function
    def step(y, p):
        total.update_state(p)
        acc.update_state(y, p)
    for p in ([0.9, 0.2], [0.4, 0.8]):
        co.schedule(step, args=(tf.constant([[1.0], [0.0]]),
                                tf.constant(p)[:, None]))
    co.join()
    close([float(total.result()), float(acc.result())], [2.3, 0.5])
    total.reset_state()
    assert float(total.result()) == 0.0


def test_checkpoint_manager_around_the_loop(own):
    """Save in the loop, lose a ps, go on from the file with a new client."""
    folder = tempfile.mkdtemp()
    c = own(ps=1, worker=1)
    assert run_client(_train_some, c, folder, 5, None) == 5
    c.restart("ps")
    c.restart("worker")
    assert run_client(_train_some, c, folder, 4, 5) == 9


def _train_some(talk, c, folder, n, expect):
    s, co = coordinator(c)
    with s.scope():
        v = tf.Variable(0, name="count")
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(v=v), folder, max_to_keep=2)
    if manager.latest_checkpoint:
        manager.checkpoint.restore(
            manager.latest_checkpoint).assert_existing_objects_matched()
    if expect is not None:
        assert int(v) == expect

    @tf.function
    def step():
        v.assign_add(1)
    for _ in range(n):
        co.schedule(step)
        co.join()
        manager.save()
    assert len(manager.checkpoints) == 2
    return int(v)


# -- the program of the parameter server tutorial -----------------------------------

FEATURES = ["avenger", "ironman", "batman", "hulk", "spiderman", "kingkong",
            "wonder_woman"]
LABELS = ["yes", "no"]


def _feature_and_label(x, i):
    return {"features": x["features"], "label": x["label"]}


def test_tutorial_training_loop(five):
    """Vocabulary lookups, a Keras model, three workers, evaluation at the end."""
    import random
    s, co = coordinator(five, tf.distribute.experimental.partitioners
                        .MinSizePartitioner(min_shard_bytes=64, max_shards=2))
    keras = tf.keras
    with s.scope():
        feature_table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                FEATURES, tf.range(1, 8, dtype=tf.int64)), 0)
        label_table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                LABELS, tf.constant([1, 0], tf.int64)), -1)
        table = tf.Variable(tf.random.stateless_normal([8, 20], [1, 2]))
        dense = tf.Variable(tf.random.stateless_normal([20, 1], [3, 4]))
        accuracy = keras.metrics.BinaryAccuracy()

    def dataset_fn():
        r = random.Random(2)
        rows = []
        for _ in range(200):
            f = r.sample(FEATURES, 3)
            rows.append((f, ["yes"] if "avenger" in f else ["no"]))
        ds = tf.data.Dataset.from_tensor_slices(
            ([f for f, _ in rows], [y for _, y in rows]))
        return ds.map(lambda f, y: (
            feature_table.lookup(f), tf.cast(label_table.lookup(y),
                                             tf.float32))
        ).shuffle(200, seed=3).batch(32).repeat()
    it = iter(co.create_per_worker_dataset(dataset_fn))

    def model(f):
        e = tf.reduce_mean(tf.nn.embedding_lookup(table, f), 1)
        return tf.sigmoid(tf.matmul(e, tf.convert_to_tensor(dense)))

    @tf.function
    def step(it):
        def replica(f, y):
            variables = list(getattr(table, "variables", [table])) + list(
                getattr(dense, "variables", [dense]))
            with tf.GradientTape() as tape:
                p = model(f)
                loss = tf.reduce_mean(
                    tf.keras.losses.binary_crossentropy(y, p))
            for v, g in zip(variables, tape.gradient(loss, variables)):
                v.assign_sub(2.0 * tf.convert_to_tensor(g))
            accuracy.update_state(y, p)
            return loss
        return s.run(replica, args=next(it))
    for epoch in range(16):  # asynchronous: how many are needed varies
        accuracy.reset_state()
        for _ in range(25):
            co.schedule(step, args=(it,))
        co.join()
        if float(accuracy.result()) > 0.9:
            break
    assert float(accuracy.result()) > 0.9

    @tf.function
    def evaluate(f):
        return model(feature_table.lookup(f))
    p = co.fetch(co.schedule(evaluate, args=(tf.constant(
        [["avenger", "hulk", "batman"], ["hulk", "batman", "kingkong"]]),)))
    assert p[0, 0] > 0.5 > p[1, 0]


def test_lookup_layer_of_keras_in_the_dataset(five):
    """StringLookup made under the scope, used inside dataset_fn."""
    s, co = coordinator(five)
    with s.scope():
        layer = tf.keras.layers.StringLookup(
            vocabulary=FEATURES, num_oov_indices=1, mask_token=None)

    def dataset_fn():
        return tf.data.Dataset.from_tensor_slices(
            [["hulk", "nobody"], ["avenger", "batman"]]).map(layer).batch(
                2).repeat()
    it = iter(co.create_per_worker_dataset(dataset_fn))

    @tf.function
    def f(it):
        return next(it)
    same(co.fetch(co.schedule(f, args=(it,))), np.int64([[4, 0], [1, 3]]))


def test_keras_model_in_a_loop_of_ones_own(own):
    c = own(ps=2, worker=1)
    s, co = coordinator(c)
    tf.keras.utils.set_random_seed(1)
    with s.scope():
        model = tf.keras.Sequential([
            tf.keras.layers.Input((3,)),
            tf.keras.layers.Dense(8, activation="relu"),
            tf.keras.layers.Dense(1)])
        optimizer = tf.keras.optimizers.Adam(0.05)
        optimizer.build(model.trainable_variables)
    assert {w.value.device for w in model.weights} == {P0, P1}
    it = iter(co.create_per_worker_dataset(dataset))

    @tf.function
    def step(it):
        def replica(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            g = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(g, model.trainable_variables))
            return loss
        return s.run(replica, args=next(it))
    rs = [co.schedule(step, args=(it,)) for _ in range(60)]
    co.join()
    losses = [float(x) for x in co.fetch(rs)]
    assert losses[-1] < 0.1 * losses[0]
    assert int(optimizer.iterations) == 60
