# SPDX-License-Identifier: Apache-2.0
"""Eager ops on remote devices: values, types, copies, errors."""
from harness import *  # noqa: F401,F403

NUMBERS = ["float16", "float32", "float64", "bfloat16", "int8", "int16", "int32",
           "int64", "uint8", "uint16", "uint32", "uint64", "complex64",
           "complex128"]


# -- values --------------------------------------------------------------------

@pytest.mark.parametrize("dtype", NUMBERS + ["bool", "string", "qint8"])
def test_type_there_and_back(duo, dtype):
    """Client -> ps -> worker -> client, for one type; with empty and scalar."""
    connect(duo)
    t = tf.as_dtype(dtype)
    if dtype == "string":
        values = [np.array([b"", b"a\0b", b"\xff" * 300], object),
                  np.array([], object), np.array(b"scalar", object)]
        tensors = [tf.constant(v, tf.string) for v in values]
    elif dtype == "qint8":
        x = tf.quantization.quantize([-1.0, 0.0, 0.5, 1.0], -1.0, 1.0, tf.qint8)
        tensors, values = [x.output], [x.output.numpy()]
    else:
        values = [np.array([[0, 1, 2], [3, 4, 100]]), np.zeros([0, 3]),
                  np.array(7)]
        values = [v.astype(t.as_numpy_dtype) for v in values]
        if dtype.startswith("complex"):
            values[0] = (values[0] * (1 - 2j)).astype(t.as_numpy_dtype)
        tensors = [tf.constant(v, t) for v in values]
    for x, v in zip(tensors, values):
        with tf.device(P0):
            a = tf.identity(x)
        with tf.device(W1):
            b = tf.identity(a)
        assert (where(a), where(b)) == ("ps/0", "worker/1")
        assert b.dtype == t and b.shape == v.shape
        same(b.numpy(), v)


def test_arithmetic_of_many_types(duo):
    connect(duo)
    for dtype in NUMBERS:
        if dtype == "uint32" or dtype == "uint64" or dtype == "uint16":
            continue
        with tf.device(W0):
            x = tf.constant([1, 2, 3], dtype)
            y = x * x + x
        assert where(y) == "worker/0"
        close(np.asarray(y.numpy(), np.complex128), [2, 6, 12])


OPS = {
    "matmul": (lambda: tf.matmul([[1., 2.], [3., 4.]], [[5.], [6.]]),
               [[17.], [39.]]),
    "matmul_t": (lambda: tf.matmul([[1., 2.]], [[3., 4.]], transpose_b=True),
                 [[11.]]),
    "concat": (lambda: tf.concat([[[1, 2]], [[3, 4]], [[5, 6]]], 0),
               [[1, 2], [3, 4], [5, 6]]),
    "split": (lambda: tf.split(tf.range(6), 3)[1], [2, 3]),
    "split_sizes": (lambda: tf.split(tf.range(6), [1, 3, 2])[1], [1, 2, 3]),
    "unstack": (lambda: tf.unstack(tf.constant([[1, 2], [3, 4]]), axis=1)[1],
                [2, 4]),
    "pack": (lambda: tf.stack([1, 2, 3]), [1, 2, 3]),
    "reduce": (lambda: tf.reduce_sum([[1., 2.], [3., 4.]], axis=0), [4., 6.]),
    "mean": (lambda: tf.reduce_mean([[1., 2.], [3., 4.]]), 2.5),
    "argmax": (lambda: tf.argmax([[1, 9, 2], [7, 3, 5]], axis=1), [1, 0]),
    "gather": (lambda: tf.gather([10, 20, 30], [2, 0]), [30, 10]),
    "gather_nd": (lambda: tf.gather_nd([[1, 2], [3, 4]], [[1, 0]]), [3]),
    "scatter_nd": (lambda: tf.scatter_nd([[1], [3]], [5, 6], [4]),
                   [0, 5, 0, 6]),
    "where": (lambda: tf.where([True, False, True]), [[0], [2]]),
    "select": (lambda: tf.where([True, False], [1, 2], [3, 4]), [1, 4]),
    "cast": (lambda: tf.cast([1.7, -1.7], tf.int32), [1, -1]),
    "strided_slice": (lambda: tf.range(10)[8:2:-3], [8, 5]),
    "transpose": (lambda: tf.transpose([[1, 2, 3], [4, 5, 6]]),
                  [[1, 4], [2, 5], [3, 6]]),
    "one_hot": (lambda: tf.one_hot([1, 0], 3), [[0, 1, 0], [1, 0, 0]]),
    "softmax": (lambda: tf.nn.softmax([0., np.log(3.)]), [0.25, 0.75]),
    "topk": (lambda: tf.nn.top_k([1, 9, 5], 2).values, [9, 5]),
    "unique": (lambda: tf.unique([3, 1, 3, 2]).y, [3, 1, 2]),
    "cumsum": (lambda: tf.cumsum([1, 2, 3]), [1, 3, 6]),
    "tile": (lambda: tf.tile([1, 2], [2]), [1, 2, 1, 2]),
    "pad": (lambda: tf.pad([1], [[1, 2]]), [0, 1, 0, 0]),
    "conv": (lambda: tf.nn.conv2d(tf.ones([1, 3, 3, 1]), tf.ones([2, 2, 1, 1]),
                                  1, "VALID")[0, :, :, 0], [[4, 4], [4, 4]]),
    "maxpool": (lambda: tf.nn.max_pool2d(tf.reshape(tf.range(4.), [1, 2, 2, 1]),
                                         2, 2, "VALID")[0, 0, 0], [3.]),
    "segment": (lambda: tf.math.unsorted_segment_sum([1, 2, 3], [0, 1, 0], 2),
                [4, 2]),
    "einsum": (lambda: tf.einsum("ij,jk->ik", tf.constant([[1., 2.]]),
                               tf.constant([[3.], [4.]])), [[11]]),
    "sparse": (lambda: tf.sparse.to_dense(tf.sparse.SparseTensor(
        [[0, 1]], [5], [1, 3])), [[0, 5, 0]]),
    "linalg": (lambda: tf.linalg.inv([[2., 0.], [0., 4.]]),
               [[.5, 0], [0, .25]]),
    "bitwise": (lambda: tf.bitwise.bitwise_xor([5, 6], [3, 3]), [6, 5]),
    "logical": (lambda: tf.logical_and([True, True], [True, False]),
                [True, False]),
    "sort": (lambda: tf.sort([3, 1, 2]), [1, 2, 3]),
    "searchsorted": (lambda: tf.searchsorted([1, 3, 5], [2, 5]), [1, 2]),
    "linspace": (lambda: tf.linspace(0., 1., 3), [0, .5, 1]),
}


@pytest.mark.parametrize("group", range(4))
def test_ops(duo, group):
    """Each op, with inputs made at the client and the op at a worker."""
    connect(duo)
    for name in sorted(OPS)[group::4]:
        make, want = OPS[name]
        with tf.device(W1):
            got = make()
        assert where(got) == "worker/1", name
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6, err_msg=name)


def test_string_ops(duo):
    connect(duo)
    with tf.device(W0):
        s = tf.constant(["ab", "", "c d"])
        same(tf.strings.length(s).numpy(), np.int32([2, 0, 3]))
        same(tf.strings.upper(s).numpy(), np.array([b"AB", b"", b"C D"], object))
        same(tf.strings.join([s, s], "-").numpy(),
             np.array([b"ab-ab", b"-", b"c d-c d"], object))
        same(tf.strings.to_hash_bucket_fast(s, 1000).numpy(),
             np.int64([502, 263, 694]))
        same(tf.strings.as_string([1.5, 2.0], precision=2).numpy(),
             np.array([b"1.50", b"2.00"], object))
        same(tf.strings.to_number(["1.5", "-2"]).numpy(), np.float32([1.5, -2]))
        same(tf.strings.regex_replace("aXbX", "X", "1").numpy(), b"a1b1")
        same(tf.io.decode_raw(tf.constant(b"\x01\x00\x02\x00"),
                              tf.int16).numpy(), np.int16([1, 2]))


def test_stateless_random_values(duo):
    """The recorded values of the Philox generator, on every task."""
    connect(duo)
    for device in (P0, W1):
        with tf.device(device):
            u = tf.random.stateless_uniform([4], seed=[1, 2])
            n = tf.random.stateless_normal([3], seed=[3, 4])
            i = tf.random.stateless_uniform([4], seed=[5, 6], minval=0,
                                            maxval=100, dtype=tf.int32)
            s = tf.random.experimental.stateless_shuffle(tf.range(6), [1, 2])
        close(u.numpy(), [0.84406042, 0.19204533, 0.99622321, 0.16038740])
        close(n.numpy(), [-0.17393383, 1.67235470, 0.34817016])
        same(i.numpy(), np.int32([39, 99, 48, 5]))
        same(s.numpy(), np.int32([4, 5, 0, 3, 1, 2]))


def test_seeded_random_sequence(duo):
    """Stateful random ops with the global seed draw the recorded sequence."""
    connect(duo)
    tf.random.set_seed(42)
    local = [tf.random.uniform([2]).numpy() for _ in range(3)]
    tf.random.set_seed(42)
    with tf.device(W0):
        remote = [tf.random.uniform([2]).numpy() for _ in range(3)]
    same(remote, local)


def test_generator_on_a_worker(duo):
    connect(duo)
    local = tf.random.Generator.from_seed(7)
    want = [local.normal([2]).numpy() for _ in range(2)]
    with tf.device(W1):
        g = tf.random.Generator.from_seed(7)
        got = [g.normal([2]).numpy() for _ in range(2)]
    same(got, want)


# -- copies --------------------------------------------------------------------

@pytest.mark.parametrize("size", [1, 1000, 65537, 1 << 20, 5000001, 32 << 20])
def test_copies_of_all_sizes(duo, size):
    connect(duo)
    x = np.arange(size, dtype=np.uint32).astype(np.uint8)
    with tf.device(P0):
        a = tf.identity(tf.constant(x))
    with tf.device(W0):
        b = tf.identity(a)
        n = tf.reduce_sum(tf.cast(b, tf.int64))
    with tf.device(W1):
        c = tf.identity(b)
    assert int(n) == int(x.astype(np.int64).sum())
    assert np.array_equal(c.numpy(), x)


def test_copy_of_many_strings(duo):
    connect(duo)
    x = np.array([b"%d" % i * (i % 7) for i in range(20000)], object)
    with tf.device(W0):
        a = tf.identity(tf.constant(x))
    with tf.device(P0):
        b = tf.strings.join([a, a])
    same(b.numpy(), x + x)


def test_one_tensor_read_by_all_tasks(five):
    connect(five)
    with tf.device(P0):
        x = tf.reshape(tf.range(1000.0), [10, 100])
    sums = []
    for device in (W0, W1, dev("worker", 2), P1, HOME):
        with tf.device(device):
            sums.append(tf.reduce_sum(x, axis=1))
    want = np.arange(1000.0).reshape(10, 100).sum(1)
    for s in sums:
        close(s.numpy(), want)


def test_chain_over_all_tasks(five):
    connect(five)
    x = tf.constant([1.0, 2.0])
    route = [P0, W0, P1, W1, dev("worker", 2), HOME, W0, P0]
    for device in route * 4:
        with tf.device(device):
            x = tf.add(x, 1.0)
    same(x.numpy(), np.float32([33, 34]))


def test_ragged_and_sparse_values_on_a_worker(duo):
    connect(duo)
    with tf.device(W0):
        r = tf.ragged.constant([[1, 2], [], [3]])
        total = tf.reduce_sum(r, axis=1)
        s = tf.sparse.from_dense([[0, 3], [4, 0]])
        m = tf.sparse.sparse_dense_matmul(
            tf.cast(s, tf.float32), tf.ones([2, 1]))
    same(total.numpy(), np.int32([3, 0, 3]))
    same(m.numpy(), np.float32([[3], [4]]))


def test_variant_tensor_list_crosses_tasks(duo):
    """A variant made on one task is used on another."""
    connect(duo)
    with tf.device(W0):
        tl = tf.raw_ops.TensorListFromTensor(
            tensor=tf.constant([[1., 2.], [3., 4.]]),
            element_shape=tf.constant([2]))
    with tf.device(W1):
        t = tf.raw_ops.TensorListStack(
            input_handle=tl, element_shape=tf.constant([2]),
            element_dtype=tf.float32)
    assert where(t) == "worker/1"
    same(t.numpy(), np.float32([[1, 2], [3, 4]]))


def test_many_small_ops_in_a_row(duo):
    connect(duo)
    with tf.device(W0):
        x = tf.constant(0)
        for i in range(500):
            x = tf.add(x, i)
    assert x.numpy() == 124750


def test_dropped_tensors_are_freed(duo):
    """64 tensors of 16 MB, each dropped after use, do not pile up."""
    connect(duo)
    with tf.device(W0):
        tf.ones([4 << 20]).numpy()
    before = rss_mb(duo.pid("worker", 0))
    with tf.device(W0):
        for i in range(64):
            x = tf.fill([4 << 20], float(i))
            assert float(tf.reduce_max(x)) == i
    after = rss_mb(duo.pid("worker", 0))
    assert after - before < 300, (before, after)


# -- shapes --------------------------------------------------------------------

def test_shapes_known_after_the_op_ran(duo):
    connect(duo)
    with tf.device(W0):
        x = tf.constant([3.0, -1.0, 4.0, -1.0])
        w = tf.where(x > 0.0)
        y, index = tf.unique(x)
        b = tf.boolean_mask(x, x > 0.0)
    assert w.shape == (2, 1)
    assert y.shape == (3,) and index.shape == (4,)
    assert b.shape == (2,)
    assert tf.rank(w).numpy() == 2 and tf.size(b).numpy() == 2


def test_shape_op_at_another_task(duo):
    connect(duo)
    with tf.device(W0):
        x = tf.zeros([2, 0, 5], tf.int8)
    with tf.device(W1):
        s = tf.shape(x)
    same(s.numpy(), np.int32([2, 0, 5]))


# -- errors --------------------------------------------------------------------

def _at_worker(f):
    with tf.device(W0):
        return f().numpy()


ERRORS = {
    "matmul": (lambda: tf.matmul(tf.ones([2, 3]), tf.ones([2, 3])),
               errors.InvalidArgumentError, ["[2,3]"]),
    "add": (lambda: tf.raw_ops.AddV2(x=tf.ones([2]), y=tf.ones([3])),
            errors.InvalidArgumentError, ["[2]", "[3]"]),
    "nan": (lambda: tf.debugging.check_numerics([1., np.nan], "bad one"),
            errors.InvalidArgumentError, ["bad one", "NaN"]),
    "gather": (lambda: tf.gather([1, 2, 3], [5]),
               errors.InvalidArgumentError, ["indices[0] = 5", "[0, 3)"]),
    "number": (lambda: tf.strings.to_number("abc"),
               errors.InvalidArgumentError, ["abc"]),
    "reshape": (lambda: tf.reshape(tf.range(6), [4, -1]),
                errors.InvalidArgumentError, ["6"]),
    "divide": (lambda: tf.constant([1]) // tf.constant([0]),
               errors.InvalidArgumentError, ["division by zero"]),
    "file": (lambda: tf.io.read_file("/nowhere/file"),
             errors.NotFoundError, ["/nowhere/file"]),
    "uninitialized": (lambda: tf.raw_ops.ReadVariableOp(
        resource=tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[],
                                        shared_name="void"),
        dtype=tf.float32), errors.FailedPreconditionError, ["void"]),
    "concat": (lambda: tf.raw_ops.ConcatV2(
        values=[tf.ones([1, 2]), tf.ones([1, 3])], axis=0),
        errors.InvalidArgumentError, ["[1,2]", "[1,3]"]),
}


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_error(duo, name):
    connect(duo)
    make, cls, parts = ERRORS[name]
    with raises(cls, *parts):
        _at_worker(make)
    # The context is as good as before.
    assert _at_worker(lambda: tf.add(1, 2)) == 3


def test_error_of_an_unknown_op(duo):
    from tensorflow.python.eager import execute
    connect(duo)
    with raises(errors.NotFoundError, "NoSuchOp"):
        with tf.device(W0):
            execute.execute(b"NoSuchOp", 1, [], None, tf_context.context())


def test_wrong_resource_type(duo):
    connect(duo)
    with tf.device(W0):
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0) \
            if hasattr(tf.lookup.experimental, "MutableHashTable") else None
        v = tf.Variable(1.0)
        if table is None:
            table = tf.lookup.experimental.DenseHashTable(
                tf.int64, tf.int64, 0, empty_key=-1, deleted_key=-2)
        with pytest.raises((errors.InvalidArgumentError, errors.NotFoundError)):
            tf.raw_ops.LookupTableSizeV2(table_handle=v.handle).numpy()
        assert int(table.size()) == 0


# -- async ---------------------------------------------------------------------

def test_async_errors_are_raised_at_the_next_sync(own):
    connect(own(worker=1))
    tf.config.experimental.set_synchronous_execution(False)
    with tf.device(W0):
        x = tf.debugging.check_numerics([np.nan], "late")
    with raises(errors.InvalidArgumentError, "late"):
        tf_context.async_wait()
    del x
    tf_context.async_clear_error()
    with tf.device(W0):
        assert tf.add(1, 2).numpy() == 3


def test_async_ops_keep_their_order(duo):
    connect(duo)
    tf.config.experimental.set_synchronous_execution(False)
    with tf.device(P0):
        v = tf.Variable(1.0)
    with tf.device(W0):
        for _ in range(10):
            v.assign(v * 2.0 - 0.5)
    tf_context.async_wait()
    want = 1.0
    for _ in range(10):
        want = want * 2.0 - 0.5
    assert v.numpy() == want


def test_async_executor_scope(duo):
    from tensorflow.python.eager import executor
    connect(duo)
    e = executor.new_executor(enable_async=True)
    with tf_context.executor_scope(e):
        with tf.device(W0):
            a = tf.add(tf.constant([1, 2]), 1)
        with tf.device(W1):
            b = tf.add(a, 1)
        tf_context.async_wait()
    e.wait()
    same(b.numpy(), np.int32([3, 4]))
