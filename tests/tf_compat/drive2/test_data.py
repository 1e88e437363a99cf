# SPDX-License-Identifier: Apache-2.0
"""Input pipelines whose ops and iterators are on workers."""
import tempfile

from harness import *  # noqa: F401,F403


def values(ds):
    return [x.numpy() for x in ds]


PIPELINES = {
    "range": (lambda d: d.range(5), [0, 1, 2, 3, 4]),
    "slices": (lambda d: d.from_tensor_slices([1.5, 2.5]), [1.5, 2.5]),
    "tensors": (lambda d: d.from_tensors(7), [7]),
    "map": (lambda d: d.range(4).map(lambda x: x * x), [0, 1, 4, 9]),
    "parallel_map": (lambda d: d.range(6).map(
        lambda x: x + 1, num_parallel_calls=2, deterministic=True),
        [1, 2, 3, 4, 5, 6]),
    "filter": (lambda d: d.range(10).filter(lambda x: x % 3 == 0),
               [0, 3, 6, 9]),
    "batch": (lambda d: d.range(5).batch(2), [[0, 1], [2, 3], [4]]),
    "batch_drop": (lambda d: d.range(5).batch(2, drop_remainder=True),
                   [[0, 1], [2, 3]]),
    "unbatch": (lambda d: d.range(4).batch(2).unbatch(), [0, 1, 2, 3]),
    "padded": (lambda d: d.range(1, 4).map(lambda x: tf.fill([x], x))
               .padded_batch(2), [[[1, 0], [2, 2]], [[3, 3, 3]]]),
    "repeat": (lambda d: d.range(2).repeat(3), [0, 1, 0, 1, 0, 1]),
    "take_skip": (lambda d: d.range(10).skip(2).take(3), [2, 3, 4]),
    "shard": (lambda d: d.range(10).shard(3, 1), [1, 4, 7]),
    "zip": (lambda d: d.zip((d.range(3), d.range(10, 13)))
            .map(lambda a, b: a * b), [0, 11, 24]),
    "concatenate": (lambda d: d.range(2).concatenate(d.range(5, 7)),
                    [0, 1, 5, 6]),
    "flat_map": (lambda d: d.range(3).flat_map(
        lambda x: tf.data.Dataset.range(x)), [0, 0, 1]),
    "interleave": (lambda d: d.range(1, 4).interleave(
        lambda x: tf.data.Dataset.from_tensors(x).repeat(2),
        cycle_length=2, block_length=1), [1, 2, 1, 2, 3, 3]),
    "window": (lambda d: d.range(5).window(3, shift=2, drop_remainder=True)
               .flat_map(lambda w: w.batch(3)), [[0, 1, 2], [2, 3, 4]]),
    "scan": (lambda d: d.range(5).scan(
        tf.constant(0, tf.int64), lambda s, x: (s + x, s + x)),
        [0, 1, 3, 6, 10]),
    "reduce_group": (lambda d: d.range(6).group_by_window(
        lambda x: x % 2, lambda k, w: w.batch(3), 3), [[0, 2, 4], [1, 3, 5]]),
    "enumerate": (lambda d: d.range(5, 8).enumerate().map(lambda i, x: i * x),
                  [0, 6, 14]),
    "cache": (lambda d: d.range(3).cache().repeat(2), [0, 1, 2, 0, 1, 2]),
    "prefetch": (lambda d: d.range(4).prefetch(2), [0, 1, 2, 3]),
    "take_while": (lambda d: d.range(9).take_while(lambda x: x < 3), [0, 1, 2]),
    "shuffle": (lambda d: d.range(8).shuffle(8, seed=3,
                                             reshuffle_each_iteration=False),
                None),
    "choose": (lambda d: d.choose_from_datasets(
        [d.range(3), d.range(10, 13)],
        d.from_tensor_slices(np.int64([0, 1, 1, 0]))), [0, 10, 11, 1]),
    "rebatch": (lambda d: d.range(6).batch(3).rebatch(2),
                [[0, 1], [2, 3], [4, 5]]),
    "unique": (lambda d: d.from_tensor_slices([3, 1, 3, 2, 1]).unique(),
               [3, 1, 2]),
    "strings": (lambda d: d.from_tensor_slices(["a b", "c"]).map(
        lambda s: tf.strings.length(s)), [3, 1]),
}


@pytest.mark.parametrize("group", range(4))
def test_pipelines_iterated_by_the_client(duo, group):
    """Datasets and iterators on worker 1; the values come to the client."""
    connect(duo)
    for name in sorted(PIPELINES)[group::4]:
        make, want = PIPELINES[name]
        with tf.device(HOME):
            tf.random.set_seed(1)
            local = values(make(tf.data.Dataset))
        with tf.device(W1):
            tf.random.set_seed(1)
            got = values(make(tf.data.Dataset))
        assert len(got) == len(local), name
        for a, b in zip(got, want if want is not None else local):
            np.testing.assert_array_equal(a, b, err_msg=name)
        for a, b in zip(got, local):
            np.testing.assert_array_equal(a, b, err_msg=name)


def test_dataset_of_pairs_and_dicts(duo):
    connect(duo)
    with tf.device(W0):
        ds = tf.data.Dataset.from_tensor_slices(
            ({"x": [1, 2, 3], "s": ["a", "b", "c"]}, [10., 20., 30.]))
        got = [(int(d["x"]), d["s"].numpy(), float(y))
               for d, y in ds.batch(1).unbatch()]
    assert got == [(1, b"a", 10.), (2, b"b", 20.), (3, b"c", 30.)]


def test_whole_dataset_inside_a_function(duo):
    connect(duo)

    @tf.function
    def f(n):
        total = tf.constant(0, tf.int64)
        for x in tf.data.Dataset.range(n).filter(lambda x: x % 2 == 1):
            total += x * x
        return total
    with tf.device(W0):
        assert int(f(tf.constant(10, tf.int64))) == 1 + 9 + 25 + 49 + 81


def test_iterator_as_an_argument_of_a_function(duo):
    connect(duo)

    @tf.function
    def step(it):
        a = next(it)
        b = next(it)
        return a * 100 + b
    with tf.device(W0):
        it = iter(tf.data.Dataset.range(1, 7))
        got = [int(step(it)) for _ in range(3)]
    assert got == [102, 304, 506]


def test_end_of_the_data(duo):
    connect(duo)

    @tf.function
    def step(it):
        return next(it)
    with tf.device(W0):
        it = iter(tf.data.Dataset.range(2))
        assert [int(step(it)), int(step(it))] == [0, 1]
        with raises(errors.OutOfRangeError, "End of sequence"):
            step(it).numpy()
        it = iter(tf.data.Dataset.range(1))
        assert int(next(it)) == 0
        with pytest.raises(StopIteration):
            next(it)


def test_get_next_as_optional(duo):
    connect(duo)

    @tf.function
    def total(it):
        s = tf.constant(0, tf.int64)
        o = it.get_next_as_optional()
        while o.has_value():
            s += o.get_value()
            o = it.get_next_as_optional()
        return s
    with tf.device(W1):
        it = iter(tf.data.Dataset.range(11))
        assert int(total(it)) == 55
        assert not it.get_next_as_optional().has_value().numpy()


def test_get_value_of_an_empty_optional(duo):
    connect(duo)
    with tf.device(W0):
        it = iter(tf.data.Dataset.range(1))
        next(it)
        o = it.get_next_as_optional()
        with raises(errors.InvalidArgumentError, "optional"):
            o.get_value().numpy()


def test_tfrecord_files(duo):
    connect(duo)
    folder = tempfile.mkdtemp()
    paths = []
    for k in range(2):
        paths.append(os.path.join(folder, "f%d" % k))
        with tf.io.TFRecordWriter(paths[-1]) as w:
            for i in range(3):
                w.write(tf.train.Example(features=tf.train.Features(feature={
                    "id": tf.train.Feature(int64_list=tf.train.Int64List(
                        value=[10 * k + i])),
                    "x": tf.train.Feature(float_list=tf.train.FloatList(
                        value=[i, -i])),
                    "t": tf.train.Feature(bytes_list=tf.train.BytesList(
                        value=[b"n%d" % i]))})).SerializeToString())
    spec = {"id": tf.io.FixedLenFeature([], tf.int64),
            "x": tf.io.FixedLenFeature([2], tf.float32),
            "t": tf.io.VarLenFeature(tf.string)}
    with tf.device(W0):
        ds = tf.data.Dataset.from_tensor_slices(paths).interleave(
            tf.data.TFRecordDataset, cycle_length=2).map(
                lambda r: tf.io.parse_single_example(r, spec))
        got = [(int(d["id"]), d["x"].numpy().tolist(),
                d["t"].values.numpy().tolist()) for d in ds]
    assert got == [(10 * k + i, [i, -i], [b"n%d" % i])
                   for i in range(3) for k in range(2)]


def test_text_and_fixed_length_files(duo):
    connect(duo)
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "t.csv"), "w") as f:
        f.write("a,b\n1,2.5\n3,4.5\n")
    with open(os.path.join(folder, "r.bin"), "wb") as f:
        f.write(b"HHaabbccF")
    with tf.device(W1):
        rows = values(tf.data.TextLineDataset(
            os.path.join(folder, "t.csv")).skip(1).map(
                lambda s: tf.io.decode_csv(s, [0, 0.0])[1]))
        recs = values(tf.data.FixedLengthRecordDataset(
            os.path.join(folder, "r.bin"), 2, header_bytes=2, footer_bytes=1))
    assert rows == [2.5, 4.5] and recs == [b"aa", b"bb", b"cc"]


def test_error_in_a_map_function(duo):
    connect(duo)
    with tf.device(W0):
        ds = tf.data.Dataset.from_tensor_slices([1., np.nan, 3.]).map(
            lambda x: tf.debugging.check_numerics(x, "bad element"))
        it = iter(ds)
        assert float(next(it)) == 1.0
        with raises(errors.InvalidArgumentError, "bad element"):
            next(it).numpy()
        assert float(next(it)) == 3.0


def test_shuffle_order_is_that_of_the_seed(duo):
    connect(duo)

    def order(device):
        tf.random.set_seed(11)
        with tf.device(device):
            return [int(x) for x in
                    tf.data.Dataset.range(20).shuffle(7, seed=5).repeat(2)]
    local = order(HOME)
    assert order(W0) == local and order(W1) == local
    assert sorted(local[:20]) == list(range(20)) != local[:20]


def test_random_dataset_of_a_seed(duo):
    connect(duo)

    def draw(device):
        with tf.device(device):
            return values(tf.data.Dataset.random(seed=4).take(5))
    assert draw(W0) == draw(HOME)


def test_map_with_a_captured_remote_variable_and_table(duo):
    connect(duo)
    with tf.device(W0):
        v = tf.Variable(10, dtype=tf.int64)
        t = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
            tf.constant([0, 1], tf.int64), tf.constant([5, 6], tf.int64)), -1)
        got = values(tf.data.Dataset.range(3).map(
            lambda x: v * x + t.lookup(x)))
    assert got == [5, 16, 19]


def test_two_iterators_of_one_dataset(duo):
    connect(duo)
    with tf.device(W0):
        ds = tf.data.Dataset.range(5)
        a, b = iter(ds), iter(ds)
        got = [int(next(a)), int(next(a)), int(next(b)), int(next(a)),
               int(next(b))]
    assert got == [0, 1, 0, 2, 1]


def test_cardinality_and_reduce(duo):
    connect(duo)
    with tf.device(W0):
        ds = tf.data.Dataset.range(10).batch(3)
        assert int(ds.cardinality()) == 4
        assert int(tf.data.Dataset.range(3).repeat().cardinality()) == -1
        s = ds.reduce(tf.constant(0, tf.int64),
                      lambda a, x: a + tf.reduce_sum(x))
    assert int(s) == 45


def test_iterator_state_is_saved_and_restored(duo):
    connect(duo)
    with tf.device(W0):
        it = iter(tf.data.Dataset.range(10).map(lambda x: x * x))
        assert [int(next(it)) for _ in range(3)] == [0, 1, 4]
        c = tf.train.Checkpoint(it=it)
        path = c.write(os.path.join(tempfile.mkdtemp(), "it"))
        assert [int(next(it)) for _ in range(3)] == [9, 16, 25]
        c.read(path)
        assert [int(next(it)) for _ in range(2)] == [9, 16]


def test_pipeline_from_ps_data_consumed_on_a_worker(duo):
    connect(duo)
    with tf.device(P0):
        x = tf.range(6.0) + 0.0
    with tf.device(W0):
        got = values(tf.data.Dataset.from_tensor_slices(x).batch(4))
    same(got[0], np.float32([0, 1, 2, 3]))
    same(got[1], np.float32([4, 5]))
