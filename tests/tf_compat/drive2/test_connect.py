# SPDX-License-Identifier: Apache-2.0
"""Connecting a TF2 program to servers: devices, contexts, several clients."""
from harness import *  # noqa: F401,F403


def logical_names():
    return sorted(d.name for d in tf.config.list_logical_devices())


def test_devices_are_listed(duo):
    connect(duo)
    assert logical_names() == sorted(["/device:CPU:0", P0, W0, W1])
    assert {d.device_type for d in tf.config.list_logical_devices()} == {"CPU"}


def test_two_cpu_devices_on_a_task(own):
    c = own(worker=1, cpus=2)
    connect(c)
    assert logical_names() == sorted(
        ["/device:CPU:0", W0, dev("worker", 0, 1)])
    with tf.device(dev("worker", 0, 1)):
        x = tf.add(1, 2)
    assert x.device == dev("worker", 0, 1) and x.numpy() == 3


def test_connect_to_host(one):
    tf.config.experimental_connect_to_host(one.address("worker"))
    with tf.device("/job:worker"):
        x = tf.multiply(tf.constant([2, 3]), 5)
    assert x.device == W0
    same(x.numpy(), np.int32([10, 15]))


def test_connect_to_hosts_with_scheme_and_another_job_name(duo):
    """The client names the tasks; the server takes the name it is given."""
    tf.config.experimental_connect_to_host(
        ["grpc://" + duo.address("ps"), duo.address("worker", 1)],
        job_name="machine")
    assert logical_names() == sorted(
        ["/device:CPU:0", dev("machine", 0), dev("machine", 1)])
    with tf.device(dev("machine", 1)):
        x = tf.add(1, 2)
    assert x.device == dev("machine", 1) and x.numpy() == 3


def test_ops_without_a_device_stay_at_the_client(duo):
    connect(duo)
    x = tf.add(1, 2)
    assert x.device == HOME and x.numpy() == 3


def test_master_of_a_resolver_becomes_the_default_device(duo):
    tf.config.experimental_connect_to_cluster(
        tf.distribute.cluster_resolver.SimpleClusterResolver(
            duo.cluster_spec(), master=duo.address("worker", 1),
            rpc_layer="grpc"))
    x = tf.add(1, 2)
    assert x.device == W1 and x.numpy() == 3


def test_client_is_the_chief_of_the_cluster(duo):
    spec = duo.cluster_spec(chief=["127.0.0.1:%d" % free_port()])
    tf.config.experimental_connect_to_cluster(spec, job_name="chief")
    assert logical_names() == sorted([dev("chief"), P0, W0, W1])
    assert tf.add(1, 2).device == dev("chief")
    with tf.device(W0):
        assert where(tf.add(1, 2)) == "worker/0"


def test_chief_ps_worker_evaluator(own):
    c = own(chief=1, ps=1, worker=1, evaluator=1)
    connect(c)
    assert logical_names() == sorted(
        ["/device:CPU:0", dev("chief"), dev("evaluator"), P0, W0])
    for job in ("chief", "ps", "worker", "evaluator"):
        with tf.device(dev(job)):
            x = tf.square(tf.constant(3.0))
        assert x.device == dev(job) and x.numpy() == 9.0


def test_check_alive(duo):
    connect(duo)
    tf.config.list_logical_devices()
    for task in ("/job:ps/replica:0/task:0", "/job:worker/replica:0/task:1"):
        assert tf_context.check_alive(task) is True


def test_check_alive_of_a_killed_task(own):
    c = own(worker=2)
    connect(c)
    tf.config.list_logical_devices()
    c.kill("worker", 1)
    assert tf_context.check_alive("/job:worker/replica:0/task:0") is True
    assert tf_context.check_alive("/job:worker/replica:0/task:1") is False


def test_connecting_again_keeps_tensors_and_variables(duo):
    """The same cluster again is an update, not a new context."""
    connect(duo)
    with tf.device(W1):
        x = tf.add(tf.constant([1, 2]), 1)
        v = tf.Variable([1.0, 2.0])
    connect(duo)
    same(x.numpy(), np.int32([2, 3]))
    v.assign_add([1.0, 1.0])
    same(v.numpy(), np.float32([2, 3]))


def test_connecting_to_another_cluster(duo, one):
    """A new context; handles of the old one are void."""
    connect(duo)
    with tf.device(W1):
        assert tf.add(1, 2).numpy() == 3
    connect(one)
    with tf.device(W0):
        assert tf.add(3, 4).numpy() == 7
    with raises(errors.InvalidArgumentError, "unknown device"):
        with tf.device(W1):
            tf.add(1, 2)


def _server_def(c, workers, job="localhost"):
    """A ServerDef of this client with only the workers named."""
    from tensorflow.core.protobuf import tensorflow_server_pb2
    current = tf_context.get_server_def()
    d = tensorflow_server_pb2.ServerDef()
    d.CopyFrom(current)
    for j in d.cluster.job:
        if j.name == "worker":
            for key in list(j.tasks):
                del j.tasks[key]
            for key, address in workers.items():
                j.tasks[key] = address
    return d


def test_update_adds_a_worker(duo):
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec(
        {"ps": duo.spec["ps"], "worker": duo.spec["worker"][:1]}))
    with tf.device(P0):
        v = tf.Variable([1.0, 2.0])
    with tf.device(W0):
        x = tf.add(v, 1.0)
    tf_context.update_server_def(_server_def(
        duo, dict(enumerate(duo.spec["worker"]))))
    with tf.device(W1):
        y = tf.add(x, v)
    assert where(y) == "worker/1"
    same(y.numpy(), np.float32([3, 5]))


def test_update_removes_a_worker(duo):
    connect(duo)
    with tf.device(W0):
        x = tf.add(tf.constant([1.0]), 1.0)
    tf_context.update_server_def(_server_def(
        duo, {0: duo.address("worker", 0)}))
    with tf.device(W0):
        same(tf.add(x, x).numpy(), np.float32([4]))
    with raises(errors.InvalidArgumentError, "unknown device"):
        with tf.device(W1):
            tf.add(1, 2)


def test_update_replaces_a_worker(duo, own):
    """Handles of the tasks that stay remain valid."""
    other = own(worker=1)
    connect(duo)
    with tf.device(P0):
        v = tf.Variable([1.0, 2.0])
    with tf.device(W0):
        x = tf.add(v, 1.0)
    with tf.device(W1):
        z = tf.add(v, 1.0)
    tf_context.update_server_def(_server_def(
        duo, {0: duo.address("worker", 0), 1: other.address("worker", 0)}))
    with tf.device(W1):
        same((x + v).numpy(), np.float32([3, 5]))
        v.assign_add([1.0, 1.0])
    with tf.device(W0):
        same((x + v).numpy(), np.float32([4, 6]))
    del z


def test_update_after_a_worker_was_restarted(own):
    c = own(ps=1, worker=2)
    connect(c)
    with tf.device(P0):
        v = tf.Variable(5.0)
    with tf.device(W1):
        tf.add(v, 1.0).numpy()
    c.restart("worker", 1)

    def fails():
        try:
            with tf.device(W1):
                tf.add(tf.constant(1.0), 1.0).numpy()
        except errors.OpError as e:
            return e
    e = fails()
    assert type(e) in (errors.UnavailableError, errors.AbortedError), e
    tf_context.update_server_def(tf_context.get_server_def())
    with tf.device(W1):
        assert tf.add(v, 1.0).numpy() == 6.0


def test_a_server_that_starts_late_is_waited_for(own):
    c = own.prepared(worker=1)
    import threading
    t = threading.Timer(1.5, c.start)
    t.start()
    connect(c)
    with tf.device(W0):
        assert tf.add(1, 2).numpy() == 3
    t.join()


def _make_variable(talk, c, value):
    connect(c)
    with tf.device(P0):
        v = tf.Variable(value, name="same_name")
    return float(v.numpy())


def test_clients_one_after_another(duo):
    assert run_client(_make_variable, duo, 1.0) == 1.0
    assert run_client(_make_variable, duo, 2.0) == 2.0


def _count_up(talk, c, start):
    connect(c)
    with tf.device(P0):
        v = tf.Variable(start, name="v")
    talk.say("ready")
    talk.hear()
    for _ in range(20):
        with tf.device(W0):
            v.assign_add(1.0)
    return float(v.numpy())


def test_two_clients_at_once_have_their_own_variables(duo):
    a, b = spawn(_count_up, duo, 100.0), spawn(_count_up, duo, 200.0)
    for client in (a, b):
        assert client.said() == "ready"
    for client in (a, b):
        client.tell("go")
    assert a.result() == 120.0
    assert b.result() == 220.0


def _named_handle(talk, c, name, write):
    """A variable with a fixed shared name in the servers' resource manager."""
    connect(c)
    with tf.device(P0):
        h = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name=name)
        if write is not None:
            tf.raw_ops.AssignVariableOp(resource=h, value=write)
        try:
            return float(tf.raw_ops.ReadVariableOp(
                resource=h, dtype=tf.float32).numpy())
        except errors.OpError as e:
            return type(e).__name__


def test_named_resources_belong_to_the_server(duo):
    """A shared name is one resource for all clients of a server.

    Contexts do not isolate named state; a later client finds what an earlier
    one left.  (Variables of tf.Variable have no shared name.)
    """
    name = "kept%d" % os.getpid()
    assert run_client(_named_handle, duo, name, None) == \
        "FailedPreconditionError"
    assert run_client(_named_handle, duo, name, 7.0) == 7.0
    assert run_client(_named_handle, duo, name, None) == 7.0


def _filters(job, tasks, seen):
    f = tf.config.experimental.ClusterDeviceFilters()
    for i in range(tasks):
        f.set_device_filters(job, i, seen)
    return f


def _add_on(device):
    @tf.function
    def f(x):
        with tf.device(device):
            return tf.add(x, 1.0)
    return f


def test_device_filters_hide_other_workers(duo):
    connect(duo, cluster_device_filters=_filters("worker", 2, ["/job:ps"]))
    with tf.device(W0):
        y = _add_on(P0)(tf.constant(1.0))
    assert where(y) == "ps/0" and y.numpy() == 2.0
    with raises(errors.InvalidArgumentError, "Cannot assign a device", W1):
        with tf.device(W0):
            _add_on(W1)(tf.constant(1.0)).numpy()


def test_device_filters_do_not_bind_the_client(duo):
    connect(duo, cluster_device_filters=_filters("worker", 2, ["/job:ps"]))
    with tf.device(W0):
        x = tf.constant([1.0, 2.0])
    with tf.device(P0):
        x = tf.add(x, 1.0)
    with tf.device(W1):
        x = tf.add(x, 1.0)
    same(x.numpy(), np.float32([3, 4]))


def test_unknown_task(duo):
    connect(duo)
    with raises(errors.InvalidArgumentError, "unknown device", "task:7"):
        with tf.device(dev("worker", 7)):
            tf.add(1, 2)


def test_worker_reads_from_the_client(duo):
    """The servers call the client's own address of the cluster."""
    connect(duo)
    v = tf.Variable([1.0, 2.0])

    @tf.function
    def f():
        with tf.device(W0):
            return tf.add(v.read_value(), 1.0)
    same(f().numpy(), np.float32([2, 3]))
    assert where(f()) == "worker/0"
