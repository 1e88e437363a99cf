# SPDX-License-Identifier: Apache-2.0
"""ParameterServerStrategy and ClusterCoordinator."""
import threading

from harness import *  # noqa: F401,F403

part = tf.distribute.experimental.partitioners


# -- variables -------------------------------------------------------------------

def test_variables_go_round_robin(five):
    s = ps_strategy(five)
    with s.scope():
        vs = [tf.Variable(float(i)) for i in range(5)]
    assert [v.device for v in vs] == [P0, P1, P0, P1, P0]
    assert [float(v) for v in vs] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_fixed_shards(five):
    s = ps_strategy(five, part.FixedShardsPartitioner(2))
    full = np.arange(10, dtype=np.float32).reshape(5, 2)
    with s.scope():
        v = tf.Variable(full)
    assert [p.shape.as_list() for p in v.variables] == [[3, 2], [2, 2]]
    assert [p.device for p in v.variables] == [P0, P1]
    same(np.concatenate([p.numpy() for p in v.variables]), full)


def test_min_size_partitioner(five):
    s = ps_strategy(five, part.MinSizePartitioner(
        min_shard_bytes=64, max_shards=2))
    with s.scope():
        small = tf.Variable(tf.zeros([4]))
        large = tf.Variable(tf.zeros([100, 4]))
    assert not hasattr(small, "variables")
    assert [p.shape[0] for p in large.variables] == [50, 50]


def test_max_size_partitioner(five):
    s = ps_strategy(five, part.MaxSizePartitioner(max_shard_bytes=160))
    with s.scope():
        v = tf.Variable(tf.zeros([30, 4]))
    assert [p.shape[0] for p in v.variables] == [10, 10, 10]
    assert [p.device for p in v.variables] == [P0, P1, P0]


def test_sharded_table_in_a_scheduled_function(five):
    s, co = coordinator(five, part.FixedShardsPartitioner(2))
    with s.scope():
        table = tf.Variable(lambda: tf.reshape(tf.range(12.0), [6, 2]))

    @tf.function
    def f():
        return tf.nn.embedding_lookup(table, [0, 5, 3])
    r = co.schedule(f)
    same(r.fetch(), np.float32([[0, 1], [10, 11], [6, 7]]))


def test_worker_functions_see_one_variable(five):
    s, co = coordinator(five)
    with s.scope():
        v = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def f():
        v.assign_add(1)
    for _ in range(60):
        co.schedule(f)
    co.join()
    assert int(v) == 60 and co.done()


# -- schedule, fetch -----------------------------------------------------------------

def test_schedule_returns_remote_values(five):
    s, co = coordinator(five)

    @tf.function
    def f(x, y=2):
        return x * y, {"s": x + y}
    r = co.schedule(f, args=(tf.constant([1, 2]),), kwargs={"y": 5})
    co.join()
    a, d = co.fetch(r)
    same(a, np.int32([5, 10]))
    same(d["s"], np.int32([6, 7]))
    t, d = r.get()
    assert isinstance(t, tf.Tensor)
    same(t.numpy(), np.int32([5, 10]))
    same(d["s"].numpy(), np.int32([6, 7]))


def test_results_of_many_closures_are_their_own(five):
    s, co = coordinator(five)

    @tf.function
    def f(i):
        return i * i
    rs = [co.schedule(f, args=(tf.constant(i),)) for i in range(50)]
    co.join()
    assert [int(x) for x in co.fetch(rs)] == [i * i for i in range(50)]


def test_fetch_waits_for_the_result(five):
    s, co = coordinator(five)

    @tf.function
    def slow(n):
        x = 0.0
        while x < n:
            x += 1.0
        return x
    r = co.schedule(slow, args=(tf.constant(20000.0),))
    assert float(r.fetch()) == 20000.0


def test_concrete_function_is_scheduled(five):
    s, co = coordinator(five)

    @tf.function
    def f(x):
        return x + 1
    c = f.get_concrete_function(tf.TensorSpec([2], tf.int32))
    same(co.fetch(co.schedule(c, args=(tf.constant([4, 5]),))),
         np.int32([5, 6]))


def test_closures_run_on_all_workers_at_once(five):
    """Three closures wait for each other through a variable on a ps."""
    s, co = coordinator(five)
    with s.scope():
        arrived = tf.Variable(0)

    @tf.function
    def meet():
        arrived.assign_add(1)
        polls, seen = 0, arrived.read_value()
        while seen < 3 and polls < 100000:
            polls += 1
            seen = arrived.read_value()
        return seen, polls
    rs = [co.schedule(meet) for _ in range(3)]
    co.join()
    assert [int(r[0]) for r in co.fetch(rs)] == [3, 3, 3]


def test_strategy_run_and_replica_context(five):
    s, co = coordinator(five)

    @tf.function
    def f():
        def replica():
            c = tf.distribute.get_replica_context()
            return c.num_replicas_in_sync + 10 * c.replica_id_in_sync_group
        return s.run(replica)
    assert int(co.fetch(co.schedule(f))) == 1


def test_schedule_from_several_threads(five):
    s, co = coordinator(five)
    with s.scope():
        v = tf.Variable(0)

    @tf.function
    def f(n):
        v.assign_add(n)
    f_threads = [threading.Thread(target=lambda: [
        co.schedule(f, args=(tf.constant(1),)) for _ in range(10)])
        for _ in range(4)]
    for t in f_threads:
        t.start()
    for t in f_threads:
        t.join()
    co.join()
    assert int(v) == 40


# -- per-worker values ---------------------------------------------------------------

def test_per_worker_dataset(five):
    s, co = coordinator(five)
    it = iter(co.create_per_worker_dataset(
        lambda: tf.data.Dataset.range(1, 1000)))

    @tf.function
    def f(it):
        return next(it)
    rs = [co.schedule(f, args=(it,)) for _ in range(30)]
    co.join()
    got = sorted(int(x) for x in co.fetch(rs))
    # Each worker counts from 1; together 30 values without a gap per worker.
    counts = [got.count(v) for v in range(1, max(got) + 1)]
    assert sum(counts) == 30 and counts == sorted(counts, reverse=True)
    assert counts[0] <= 3


def test_per_worker_dataset_object_is_sent_whole(five):
    s, co = coordinator(five)
    ds = tf.data.Dataset.from_tensor_slices(
        np.arange(8, dtype=np.float32)).repeat().batch(4)
    it = iter(co.create_per_worker_dataset(ds))

    @tf.function
    def f(it):
        return tf.reduce_sum(next(it)), tf.reduce_sum(next(it))
    for _ in range(4):
        a, b = co.fetch(co.schedule(f, args=(it,)))
        assert (float(a), float(b)) == (6.0, 22.0)


def test_distribute_datasets_from_function(five):
    s, co = coordinator(five)

    def dataset_fn(ctx):
        assert ctx.num_replicas_in_sync == 1
        return tf.data.Dataset.range(100).shard(
            ctx.num_input_pipelines, ctx.input_pipeline_id).batch(2)
    it = iter(co.create_per_worker_dataset(
        lambda: s.distribute_datasets_from_function(dataset_fn)))

    @tf.function
    def f(it):
        return next(it)
    got = [co.fetch(co.schedule(f, args=(it,))) for _ in range(6)]
    assert all(g.shape == (2,) and g[1] - g[0] == 1 for g in got)


def test_per_worker_values_of_a_function(five):
    s, co = coordinator(five)

    @tf.function
    def make():
        return tf.constant([1.0, 2.0])
    per = co._create_per_worker_resources(make)
    assert len(per._values) == 3

    @tf.function
    def use(v):
        return v * 2.0
    same(co.fetch(co.schedule(use, args=(per,))), np.float32([2, 4]))


def test_end_of_a_per_worker_dataset(five):
    s, co = coordinator(five)
    it = iter(co.create_per_worker_dataset(lambda: tf.data.Dataset.range(2)))

    @tf.function
    def f(it):
        return next(it)
    with raises(errors.OutOfRangeError, "End of sequence"):
        for _ in range(10):
            co.schedule(f, args=(it,))
        co.join()


# -- errors --------------------------------------------------------------------------

def _failing():
    @tf.function
    def bad(x):
        return tf.debugging.check_numerics(x, "it broke")
    return bad


def test_error_is_raised_once_at_join(five):
    s, co = coordinator(five)
    bad = _failing()
    r = co.schedule(bad, args=(tf.constant(np.nan, tf.float32),))
    with raises(errors.InvalidArgumentError, "it broke"):
        co.join()
    co.join()
    with raises(errors.InvalidArgumentError, "it broke"):
        r.fetch()
    ok = co.schedule(bad, args=(tf.constant(1.0),))
    co.join()
    assert float(ok.fetch()) == 1.0


def test_error_is_raised_by_a_later_schedule(five):
    s, co = coordinator(five)
    bad = _failing()
    nan, good = tf.constant(np.nan, tf.float32), tf.constant(1.0)
    with raises(errors.InvalidArgumentError, "it broke"):
        co.schedule(bad, args=(nan,))
        for _ in range(1000):
            co.schedule(bad, args=(good,))
            time.sleep(0.005)
    co.join()
    assert co.done()


def test_error_is_raised_by_done(five):
    s, co = coordinator(five)
    co.schedule(_failing(), args=(tf.constant(np.nan, tf.float32),))
    with raises(errors.InvalidArgumentError, "it broke"):
        while not co.done():
            time.sleep(0.01)
    co.join()


def test_error_cancels_what_is_queued(five):
    s, co = coordinator(five)
    with s.scope():
        go = tf.Variable(False)

    @tf.function
    def slow(x):
        polls = 0
        while not go.read_value():
            polls += 1
        return x, polls
    rs = [co.schedule(slow, args=(tf.constant(i),)) for i in range(2)]
    rs.append(co.schedule(_failing(), args=(tf.constant(np.nan, tf.float32),)))
    failed = rs.pop()
    with raises(errors.InvalidArgumentError, "it broke"):
        for i in range(100):
            rs.append(co.schedule(slow, args=(tf.constant(i),)))
            time.sleep(0.01)
    with raises(errors.InvalidArgumentError, "it broke"):
        failed.fetch()
    go.assign(True)
    kinds = set()
    for r in rs:
        try:
            r.fetch()
        except errors.OpError as e:
            kinds.add(type(e))
    assert kinds == {errors.CancelledError}
    r = co.schedule(slow, args=(tf.constant(5),))
    co.join()
    assert int(r.fetch()[0]) == 5


def test_python_exception_in_a_closure(five):
    s, co = coordinator(five)

    @tf.function
    def f():
        raise KeyError("while tracing")
    with pytest.raises(KeyError):
        co.schedule(f)
        co.join()

    @tf.function
    def g():
        return tf.constant(1)
    assert int(co.fetch(co.schedule(g))) == 1


def test_input_error_of_a_remote_value(five):
    s, co = coordinator(five)
    per = co._create_per_worker_resources(_no_such_file)

    @tf.function
    def use(v):
        return v
    from tensorflow.python.distribute.coordinator import cluster_coordinator
    co.schedule(use, args=(per,))
    with pytest.raises((cluster_coordinator.ClosureInputError,
                        errors.NotFoundError)) as info:
        co.join()
    assert "/nowhere" in str(info.value)


@tf.function
def _no_such_file():
    return tf.io.read_file("/nowhere/at/all")


# -- faults --------------------------------------------------------------------------

def test_worker_killed_and_restarted(own):
    """200 increments are done although a worker is gone for a while."""
    c = own(ps=2, worker=3)
    s, co = coordinator(c)
    with s.scope():
        v = tf.Variable(0)

    @tf.function
    def f():
        v.assign_add(1)
        x = 0.0
        while x < 2000.0:
            x += 1.0
        return x
    for i in range(200):
        co.schedule(f)
        if i == 40:
            c.kill("worker", 1)
        if i == 80:
            c.start(only=[("worker", 1)])
    co.join()
    assert 200 <= int(v) <= 210
    for _ in range(9):
        co.schedule(f)
    co.join()
    assert 209 <= int(v) <= 220


def test_worker_restart_rebuilds_its_dataset(own):
    c = own(ps=1, worker=2)
    s, co = coordinator(c)
    it = iter(co.create_per_worker_dataset(
        lambda: tf.data.Dataset.range(100).repeat()))

    @tf.function
    def f(it):
        return next(it)
    rs = [co.schedule(f, args=(it,)) for _ in range(20)]
    co.join()
    c.restart("worker", 0)
    rs = [co.schedule(f, args=(it,)) for _ in range(40)]
    co.join()
    assert all(0 <= int(x) < 100 for x in co.fetch(rs))


def test_all_workers_restarted(own):
    c = own(ps=1, worker=2)
    s, co = coordinator(c)
    with s.scope():
        v = tf.Variable(0)

    @tf.function
    def f():
        v.assign_add(1)
    for _ in range(10):
        co.schedule(f)
    co.join()
    for i in range(2):
        c.kill("worker", i)
    for _ in range(10):
        co.schedule(f)
    time.sleep(0.5)
    c.start(only=[("worker", 0), ("worker", 1)])
    co.join()
    assert 20 <= int(v) <= 24


def test_ps_killed(own):
    """The loss of a parameter server ends the training with an error."""
    c = own(ps=2, worker=2)
    s, co = coordinator(c)
    with s.scope():
        a, b = tf.Variable(0.0), tf.Variable(0.0)

    @tf.function
    def f():
        a.assign_add(1.0)
        b.assign_add(1.0)
    for _ in range(20):
        co.schedule(f)
    co.join()
    c.kill("ps", 1)
    with pytest.raises(errors.OpError) as info:
        for _ in range(200):
            co.schedule(f)
            time.sleep(0.02)
        co.join()
    assert isinstance(info.value, (errors.UnavailableError,
                                   errors.AbortedError)), info.value
    assert "/job:ps/replica:0/task:1" in str(info.value)


def test_ps_restarted_is_not_taken_for_the_old_one(own):
    c = own(ps=1, worker=1)
    s, co = coordinator(c)
    with s.scope():
        v = tf.Variable(0.0)

    @tf.function
    def f():
        v.assign_add(1.0)
        return v.read_value()
    assert float(co.fetch(co.schedule(f))) == 1.0
    c.restart("ps")
    with pytest.raises(errors.OpError) as info:
        for _ in range(100):
            co.schedule(f)
            time.sleep(0.02)
        co.join()
    assert isinstance(info.value, (
        errors.UnavailableError, errors.AbortedError,
        errors.FailedPreconditionError, errors.NotFoundError)), info.value


# -- start by TF_CONFIG ----------------------------------------------------------------

def test_start_by_tf_config(five):
    import json
    os.environ["TF_CONFIG"] = json.dumps({
        "cluster": {**five.spec, "chief": ["127.0.0.1:%d" % free_port()]},
        "task": {"type": "chief", "index": 0}, "rpc_layer": "grpc"})
    r = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    assert (r.task_type, r.task_id) == ("chief", 0)
    s = tf.distribute.ParameterServerStrategy(r)
    co = tf.distribute.coordinator.ClusterCoordinator(s)
    with s.scope():
        v = tf.Variable(1.0)

    @tf.function
    def f():
        v.assign_add(2.0)
        return v.read_value()
    assert float(co.fetch(co.schedule(f))) == 3.0


def test_experimental_name_of_the_strategy(five):
    s = tf.distribute.experimental.ParameterServerStrategy(resolver(five))
    co = tf.distribute.experimental.coordinator.ClusterCoordinator(s)
    assert co.strategy is s and s.num_replicas_in_sync == 1
    assert int(co.fetch(co.schedule(tf.function(lambda: tf.constant(3))))) == 3


# -- coordination service ----------------------------------------------------------------

def _by_coordination_service(c):
    os.environ["TF_PSS_ENABLE_COORDINATION_SERVICE"] = "1"
    s, co = coordinator(c)
    with s.scope():
        v = tf.Variable(0)

    @tf.function
    def f():
        v.assign_add(1)
    return co, v, f


def test_coordination_service_task_states(own):
    """ps 0 hosts the service; healthy tasks have no error."""
    co, v, f = _by_coordination_service(own(ps=1, worker=2))
    for _ in range(20):
        co.schedule(f)
    co.join()
    assert int(v) == 20
    states = tf_context.context().get_task_states([("worker", 2), ("ps", 1)])
    assert states == [None, None, None]


@pytest.mark.limit(60)
def test_coordination_service_sees_a_lost_worker(own):
    c = own(ps=1, worker=2)
    co, v, f = _by_coordination_service(c)
    for _ in range(20):
        co.schedule(f)
    co.join()
    c.kill("worker", 1)
    for _ in range(20):
        co.schedule(f)
    time.sleep(1)
    c.start(only=[("worker", 1)])
    co.join()
    assert 40 <= int(v) <= 43
