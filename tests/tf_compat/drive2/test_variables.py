# SPDX-License-Identifier: Apache-2.0
"""Variables, tables and checkpoints on parameter servers."""
import tempfile

from harness import *  # noqa: F401,F403


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32",
                                   "int64", "bool", "string", "complex64",
                                   "uint8"])
def test_create_assign_read(duo, dtype):
    connect(duo)
    t = tf.as_dtype(dtype)
    if dtype == "string":
        a, b = np.array([b"x", b"yy"], object), np.array([b"", b"z"], object)
    else:
        a = np.array([0, 1]).astype(t.as_numpy_dtype)
        b = np.array([1, 0]).astype(t.as_numpy_dtype)
    with tf.device(P0):
        v = tf.Variable(a, dtype=t)
    assert v.device == P0 and v.dtype == t and v.shape == (2,)
    same(v.numpy(), a)
    v.assign(b)
    with tf.device(W0):
        r = v.read_value()
    assert where(r) in ("worker/0", "ps/0")
    same(r.numpy(), b)


def test_assign_add_and_sub_from_workers(duo):
    connect(duo)
    with tf.device(P0):
        v = tf.Variable([1.0, 2.0])

    @tf.function
    def f(x):
        v.assign_add(x)
        v.assign_sub([0.5, 0.5])
    for device in (W0, W1, W0):
        with tf.device(device):
            f(tf.constant([1.0, 1.0]))
    same(v.numpy(), np.float32([2.5, 3.5]))


def test_scatter_updates(duo):
    connect(duo)
    with tf.device(P0):
        v = tf.Variable(tf.zeros([5, 2]))

    @tf.function
    def f():
        ids = tf.constant([0, 3, 3])
        x = tf.constant([[1., 1.], [2., 2.], [3., 3.]])
        v.scatter_add(tf.IndexedSlices(x, ids))
        v.scatter_sub(tf.IndexedSlices(x[:1], ids[:1] + 1))
        v.scatter_update(tf.IndexedSlices(x[:1] * 9, ids[:1] + 2))
        v.scatter_max(tf.IndexedSlices(x[:1] * 7, ids[1:2]))
        v.scatter_nd_add([[4, 1]], [8.0])
    with tf.device(W0):
        f()
    same(v.numpy(), np.float32([[1, 1], [-1, -1], [9, 9], [7, 7], [0, 8]]))


def test_sparse_read(duo):
    connect(duo)
    with tf.device(P0):
        v = tf.Variable(np.arange(20, dtype=np.float32).reshape(10, 2))

    @tf.function
    def f(ids):
        return v.sparse_read(ids), tf.gather(v, ids), v.gather_nd([[3, 1]])
    with tf.device(W1):
        a, b, c = f(tf.constant([7, 0]))
    same(a.numpy(), np.float32([[14, 15], [0, 1]]))
    same(b.numpy(), a.numpy())
    same(c.numpy(), np.float32([7]))


def test_sliced_assign(duo):
    connect(duo)
    with tf.device(P0):
        v = tf.Variable(tf.zeros([3, 3]))

    @tf.function
    def f():
        v[1, :].assign([1.0, 2.0, 3.0])
        v[:, 0].assign(tf.ones([3]))
    with tf.device(W0):
        f()
    same(v.numpy(), np.float32([[1, 0, 0], [1, 2, 3], [1, 0, 0]]))


def test_scatter_outside_the_range(duo):
    connect(duo)
    with tf.device(P0):
        v = tf.Variable(tf.zeros([3]))

    @tf.function
    def f():
        return v.scatter_add(tf.IndexedSlices([1.0], [7])) + 0.0
    with raises(errors.InvalidArgumentError, "7"):
        with tf.device(W0):
            f().numpy()
    same(v.numpy(), np.zeros([3], np.float32))


def test_assign_of_another_shape(duo):
    connect(duo)
    with tf.device(P0):
        fixed = tf.Variable([1.0, 2.0])
        free = tf.Variable([1.0, 2.0], shape=tf.TensorShape(None))
    with pytest.raises(ValueError):
        fixed.assign([1.0, 2.0, 3.0])

    @tf.function
    def f(x):
        free.assign(x)
        return free.read_value() * 2.0
    with tf.device(W0):
        r = f(tf.ones([2, 3, 4]))
    same(r.numpy(), np.full([2, 3, 4], 2, np.float32))
    assert free.numpy().shape == (2, 3, 4)


def test_destroyed_variable_is_gone(duo):
    connect(duo)
    with tf.device(P0):
        h = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2],
                                   shared_name="d%d" % os.getpid())
        tf.raw_ops.AssignVariableOp(resource=h, value=tf.ones([2]))
        same(tf.raw_ops.ReadVariableOp(resource=h, dtype=tf.float32).numpy(),
             np.ones([2], np.float32))
        assert tf.raw_ops.VarIsInitializedOp(resource=h).numpy()
        tf.raw_ops.DestroyResourceOp(resource=h)
        assert not tf.raw_ops.VarIsInitializedOp(resource=h).numpy()
        with raises(errors.FailedPreconditionError):
            tf.raw_ops.ReadVariableOp(resource=h, dtype=tf.float32).numpy()
        with raises(errors.NotFoundError):
            tf.raw_ops.DestroyResourceOp(resource=h, ignore_lookup_error=False)
            tf.raw_ops.ReadVariableOp(resource=h, dtype=tf.float32).numpy()


def test_memory_of_dropped_variables_returns(duo):
    connect(duo)

    def make(i):
        with tf.device(P0):
            v = tf.Variable(tf.fill([4 << 20], float(i)))
            assert float(tf.reduce_max(v)) == i
    make(1)
    before = rss_mb(duo.pid("ps"))
    for i in range(30):
        make(i)
    after = rss_mb(duo.pid("ps"))
    assert after - before < 250, (before, after)


def test_concurrent_increments_of_two_workers(duo):
    import threading
    connect(duo)
    with tf.device(P0):
        v = tf.Variable(0)

    @tf.function
    def f(n):
        for _ in tf.range(n):
            v.assign_add(1)

    def run(device):
        with tf.device(device):
            f(tf.constant(200))
            tf_context.async_wait()
    threads = [threading.Thread(target=run, args=(d,)) for d in (W0, W1)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert int(v) == 400


def test_checkpoint_of_ps_variables(five):
    connect(five)
    folder = tempfile.mkdtemp()
    with tf.device(P0):
        a = tf.Variable([1.0, 2.0])
        n = tf.Variable(3, dtype=tf.int64)
    with tf.device(P1):
        b = tf.Variable([["x", "y"]])
    c = tf.train.Checkpoint(a=a, b=b, n=n)
    path = c.save(os.path.join(folder, "ck"))
    listed = dict(tf.train.list_variables(path))
    assert listed["a/.ATTRIBUTES/VARIABLE_VALUE"] == [2]
    assert listed["b/.ATTRIBUTES/VARIABLE_VALUE"] == [1, 2]
    a.assign([9.0, 9.0])
    b.assign([["", ""]])
    n.assign(0)
    c.restore(path).assert_consumed()
    same(a.numpy(), np.float32([1, 2]))
    same(b.numpy(), np.array([[b"x", b"y"]], object))
    assert int(n) == 3 and a.device == P0 and b.device == P1


def _save(talk, c, folder):
    connect(c)
    with tf.device(P0):
        v = tf.Variable(tf.range(1000.0))
    with tf.device(W0):
        v.assign(v * 2.0)
    return tf.train.Checkpoint(v=v).write(os.path.join(folder, "x"))


def _restore(talk, c, path):
    connect(c)
    with tf.device(P1):
        v = tf.Variable(tf.zeros([1000]))
    tf.train.Checkpoint(v=v).read(path).assert_consumed()
    with tf.device(W1):
        s = tf.reduce_sum(v)
    return float(s), v.device


def test_checkpoint_is_read_by_the_next_client(five):
    path = run_client(_save, five, tempfile.mkdtemp())
    assert run_client(_restore, five, path) == (999000.0, P1)


def test_restore_on_create(duo):
    """Deferred restoration: the variable is made after restore()."""
    connect(duo)
    folder = tempfile.mkdtemp()
    with tf.device(P0):
        v = tf.Variable([5.0, 6.0])
    path = tf.train.Checkpoint(v=v).write(os.path.join(folder, "x"))
    root = tf.Module()
    status = tf.train.Checkpoint(m=root).restore(path)
    del status
    c = tf.train.Checkpoint()
    c.restore(path)
    with tf.device(P0):
        c.v = tf.Variable([0.0, 0.0])
    same(c.v.numpy(), np.float32([5, 6]))


def test_sharded_variable(five):
    from tensorflow.python.distribute import sharded_variable
    connect(five)
    parts = []
    for i, device in enumerate((P0, P1)):
        with tf.device(device):
            parts.append(tf.Variable(np.arange(6, dtype=np.float32).reshape(
                3, 2) + 10 * i))
    v = sharded_variable.ShardedVariable(parts)
    full = np.concatenate([p.numpy() for p in parts])
    assert v.shape == (6, 2)

    @tf.function
    def f(ids):
        return (tf.convert_to_tensor(v), tf.nn.embedding_lookup(v, ids),
                v[1:5, 0])
    with tf.device(W0):
        whole, rows, some = f(tf.constant([5, 0, 3]))
    same(whole.numpy(), full)
    same(rows.numpy(), full[[5, 0, 3]])
    same(some.numpy(), full[1:5, 0])
    v.assign(full * 2)
    same(parts[1].numpy(), full[3:] * 2)


def test_sharded_variable_checkpoint_changes_the_shards(five):
    from tensorflow.python.distribute import sharded_variable
    connect(five)
    full = np.arange(8, dtype=np.float32).reshape(8, 1)

    def make(bounds, value):
        parts = []
        for k, (a, b) in enumerate(zip(bounds, bounds[1:])):
            with tf.device((P0, P1)[k % 2]):
                parts.append(tf.Variable(
                    value[a:b], name="t/part_%d" % k))
        return sharded_variable.ShardedVariable(parts, name="t")
    v = make([0, 4, 8], full)
    path = tf.train.Checkpoint(v=v).write(
        os.path.join(tempfile.mkdtemp(), "x"))
    w = make([0, 3, 6, 8], full * 0)
    tf.train.Checkpoint(v=w).read(path)
    same(np.concatenate([p.numpy() for p in w.variables]), full)


@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_embedding_lookup_over_two_ps(five, strategy):
    connect(five)
    table = np.random.RandomState(3).randn(10, 4).astype(np.float32)
    if strategy == "mod":
        shards = [table[0::2], table[1::2]]
    else:
        shards = [table[:5], table[5:]]
    parts = []
    for device, s in zip((P0, P1), shards):
        with tf.device(device):
            parts.append(tf.Variable(s))

    @tf.function
    def f(ids):
        return tf.compat.v1.nn.embedding_lookup(
            parts, ids, partition_strategy=strategy)
    ids = [9, 0, 5, 5, 2]
    with tf.device(W0):
        got = f(tf.constant(ids))
    same(got.numpy(), table[ids])


def test_embedding_lookup_sparse(duo):
    connect(duo)
    table = np.arange(12, dtype=np.float32).reshape(6, 2)
    with tf.device(P0):
        v = tf.Variable(table)
    ids = tf.sparse.SparseTensor([[0, 0], [0, 1], [2, 0]],
                                 tf.constant([1, 5, 3], tf.int64), [3, 2])

    @tf.function
    def f(sp):
        return (tf.nn.embedding_lookup_sparse(v, sp, None, combiner="sum"),
                tf.nn.safe_embedding_lookup_sparse(v, sp, combiner="mean"))
    with tf.device(W0):
        s, m = f(ids)
    same(s.numpy(), np.float32([[12, 14], [0, 0], [6, 7]]))
    same(m.numpy(), np.float32([[6, 7], [0, 0], [6, 7]]))


def test_static_hash_table_on_a_worker(duo):
    connect(duo)
    with tf.device(W0):
        t = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
            ["a", "b", "c"], tf.constant([1, 2, 3], tf.int64)), -1)
        assert int(t.size()) == 3
        r = t.lookup(tf.constant(["c", "nope", "a"]))

    @tf.function
    def f(x):
        with tf.device(W0):
            return t.lookup(x) * 10
    same(r.numpy(), np.int64([3, -1, 1]))
    same(f(tf.constant(["b"])).numpy(), np.int64([20]))


def test_vocabulary_table_from_a_file(duo):
    connect(duo)
    path = os.path.join(tempfile.mkdtemp(), "vocab.txt")
    with open(path, "w") as f:
        f.write("red\ngreen\nblue\n")
    with tf.device(W1):
        t = tf.lookup.StaticVocabularyTable(tf.lookup.TextFileInitializer(
            path, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER), num_oov_buckets=2)
        r = t.lookup(tf.constant(["blue", "red", "pink"])).numpy()
    same(r[:2], np.int64([2, 0]))
    assert r[2] in (3, 4)


def test_mutable_hash_table_on_ps(duo):
    connect(duo)
    with tf.device(P0):
        t = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
    with tf.device(W0):
        t.insert(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64))
        t.insert(tf.constant(["b", "c"]), tf.constant([20, 3], tf.int64))
        t.remove(tf.constant(["a"]))
        same(t.lookup(tf.constant(["a", "b", "c", "d"])).numpy(),
             np.int64([0, 20, 3, 0]))
        assert int(t.size()) == 2
    keys, values = t.export()
    assert sorted(zip(keys.numpy(), values.numpy())) == [(b"b", 20), (b"c", 3)]


def test_dense_hash_table(duo):
    connect(duo)
    with tf.device(P0):
        t = tf.lookup.experimental.DenseHashTable(
            tf.int64, tf.float32, default_value=[-1.0, -1.0],
            empty_key=-1, deleted_key=-2)
        t.insert(tf.constant([5, 6], tf.int64), [[1., 2.], [3., 4.]])
        t.erase(tf.constant([5], tf.int64))
        same(t.lookup(tf.constant([6, 5], tf.int64)).numpy(),
             np.float32([[3, 4], [-1, -1]]))


def test_queue_on_ps(duo):
    connect(duo)
    with tf.device(P0):
        q = tf.queue.FIFOQueue(10, [tf.int32, tf.string], [[], []])
    with tf.device(W0):
        for i in range(3):
            q.enqueue([i, "v%d" % i])
        q.enqueue_many([[7, 8], ["x", "y"]])
    with tf.device(W1):
        n, s = q.dequeue()
        m, t = q.dequeue_many(2)
    assert (int(n), s.numpy()) == (0, b"v0")
    same(m.numpy(), np.int32([1, 2]))
    assert int(q.size()) == 2
    q.close()


def test_variables_in_a_module_are_all_saved(duo):
    connect(duo)

    class Net(tf.Module):
        def __init__(self):
            with tf.device(P0):
                self.w = [tf.Variable(tf.fill([2], float(i)))
                          for i in range(3)]
                self.d = {"k": tf.Variable("text")}
    net = Net()
    path = tf.train.Checkpoint(net=net).write(
        os.path.join(tempfile.mkdtemp(), "n"))
    for v in net.w:
        v.assign([0.0, 0.0])
    net.d["k"].assign("")
    tf.train.Checkpoint(net=net).read(path).assert_consumed()
    same([v.numpy() for v in net.w], np.float32([[0, 0], [1, 1], [2, 2]]))
    assert net.d["k"].numpy() == b"text"


def test_saved_model_of_a_remote_variable(duo):
    connect(duo)
    folder = os.path.join(tempfile.mkdtemp(), "m")

    class Net(tf.Module):
        def __init__(self):
            with tf.device(P0):
                self.w = tf.Variable([2.0, 3.0])

        @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
        def __call__(self, x):
            return x * self.w
    net = Net()
    tf.saved_model.save(net, folder)
    with tf.device(HOME):
        again = tf.saved_model.load(folder)
        same(again(tf.constant([1.0, 10.0])).numpy(), np.float32([2, 30]))
