# SPDX-License-Identifier: Apache-2.0
"""Clients that come, go, freeze and die; servers must outlive them all."""
import os
import socket

import grpc

import eager_wire as pb

from harness import *  # noqa: F401,F403


def _hold_memory(talk, c, mb):
    connect(c)
    with tf.device(P0):
        v = tf.Variable(tf.ones([mb << 18]))
        assert float(tf.reduce_max(v)) == 1.0
    talk.say("ready")
    talk.hear()
    return True


def _small_program(talk, c):
    connect(c)
    with tf.device(P0):
        v = tf.Variable(2.0)

    @tf.function
    def f(x):
        return v * x
    with tf.device(W0):
        return float(f(tf.constant(3.0)))


def test_killed_client_does_not_disturb_the_next(duo):
    a = spawn(_hold_memory, duo, 8)
    a.said()
    a.kill()
    assert run_client(_small_program, duo) == 6.0
    assert duo.all_alive()


def test_killed_client_does_not_disturb_another(duo):
    a, b = spawn(_hold_memory, duo, 8), spawn(_hold_memory, duo, 8)
    a.said(), b.said()
    a.kill()
    assert run_client(_small_program, duo) == 6.0
    b.tell("go")
    assert b.result() is True


def test_memory_returns_when_a_client_leaves(own):
    """200 MB of variables are freed with the context."""
    c = own(ps=1, worker=1)
    run_client(_small_program, c)
    before = rss_mb(c.pid("ps"))
    a = spawn(_hold_memory, c, 200)
    a.said()
    assert rss_mb(c.pid("ps")) > before + 150
    a.tell("go")
    a.result()
    freed = eventually(lambda: rss_mb(c.pid("ps")) < before + 100)
    if not freed and os.environ.get("TFDRIVE_SERVER", "tf") == "tf":
        pytest.xfail("TensorFlow's allocator does not always give it back")
    assert freed, (before, rss_mb(c.pid("ps")))


def _busy(talk, c):
    connect(c)

    @tf.function
    def f(x):
        while x < 300000.0:
            x += 1.0
        return x
    talk.say("ready")
    with tf.device(W0):
        f(tf.constant(0.0, tf.float64)).numpy()


def test_client_killed_while_a_function_runs(own):
    c = own(ps=1, worker=1)
    a = spawn(_busy, c)
    a.said()
    time.sleep(0.7)
    a.kill()
    assert run_client(_small_program, c) == 6.0


@pytest.mark.limit(90)
def test_thirty_clients(own):
    """Six times five clients leave nothing behind."""
    c = own(ps=1, worker=1)

    def some(n):
        clients = [spawn(_small_program, c) for _ in range(n)]
        assert [k.result() for k in clients] == [6.0] * n
    some(2)
    before = [rss_mb(c.pid(j)) for j in ("ps", "worker")]
    for _ in range(6):
        some(5)
    after = [rss_mb(c.pid(j)) for j in ("ps", "worker")]
    for a, b in zip(before, after):
        assert b - a < 120, (before, after)


def _frozen(talk, c, keep_alive):
    """Connects with a short lease, then is stopped from outside."""
    tf_context._KEEP_ALIVE_SECS = keep_alive
    connect(c)
    with tf.device(W0):
        v = tf.Variable(3.0)
        x = float(v + 1.0)
    talk.say(x)
    talk.hear()
    try:
        with tf.device(W0):
            return float(v + 1.0)
    except errors.OpError as e:
        return type(e).__name__, str(e)


def test_keep_alive_while_the_client_is_idle(duo):
    a = spawn(_frozen, duo, 2)
    assert a.said() == 4.0
    time.sleep(5)
    a.tell("go")
    assert a.result() == 4.0


def test_context_of_a_frozen_client_expires(duo):
    import signal
    a = spawn(_frozen, duo, 1, clean_exit=False)
    assert a.said() == 4.0
    a.signal(signal.SIGSTOP)
    time.sleep(5)
    a.signal(signal.SIGCONT)
    time.sleep(0.2)
    a.tell("go")
    kind, text = a.result()
    assert kind == "AbortedError" and "context_id" in text, (kind, text)
    assert run_client(_small_program, duo) == 6.0


def test_frozen_server_answers_later(own):
    c = own(ps=1, worker=1)
    connect(c)
    with tf.device(W0):
        assert tf.add(1, 2).numpy() == 3
        with c.stop_cont("worker"):
            x = tf.add(2, 3)
            time.sleep(1.5)
        assert x.numpy() == 5


def test_killed_server_is_unavailable(own):
    c = own(ps=1, worker=1)
    connect(c)
    with tf.device(W0):
        assert tf.add(1, 2).numpy() == 3
    c.kill("worker")
    with raises(errors.UnavailableError):
        with tf.device(W0):
            for _ in range(3):
                tf.add(1, 2).numpy()
    with tf.device(P0):
        assert tf.add(1, 2).numpy() == 3


def test_restarted_server_does_not_know_the_context(own):
    os.environ["TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"] = "False"
    c = own(worker=1)
    connect(c)
    with tf.device(W0):
        v = tf.Variable(1.0)
    c.restart("worker")
    seen = []
    for _ in range(20):
        try:
            with tf.device(W0):
                (v + 1.0).numpy()
        except errors.OpError as e:
            seen.append(e)
            if type(e) is errors.AbortedError:
                break
        time.sleep(0.2)
    assert {type(e) for e in seen} <= {errors.UnavailableError,
                                       errors.AbortedError}
    assert "context_id" in str(seen[-1]), seen[-1]


# -- calls that are no TensorFlow program ---------------------------------------------

class Raw:
    """The eager service without a client library."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)

    def call(self, method, request, timeout=10):
        return self.channel.unary_unary(
            "/tensorflow.eager.EagerService/" + method,
            request_serializer=lambda m: m if isinstance(m, bytes)
            else m.SerializeToString(),
            response_deserializer=getattr(
                pb, method + "Response").FromString)(request, timeout=timeout)

    def code(self, method, request):
        try:
            self.call(method, request)
            return None
        except grpc.RpcError as e:
            self.detail = e.details()
            return e.code()


def _raw_context(c, context_id=4711):
    from tensorflow.core.protobuf import tensorflow_server_pb2
    server_def = tensorflow_server_pb2.ServerDef(
        cluster=c.cluster_spec().as_cluster_def(), job_name="worker",
        task_index=0, protocol="grpc")
    return pb.CreateContextRequest(
        server_def=server_def, context_id=context_id, keep_alive_secs=60)


def test_unknown_context(duo):
    raw = Raw(duo.address("worker"))
    for method in ("Enqueue", "KeepAlive", "WaitQueueDone"):
        assert raw.code(method, getattr(pb, method + "Request")(
            context_id=99)) == grpc.StatusCode.ABORTED, method
        assert "context_id" in raw.detail
    assert run_client(_small_program, duo) == 6.0


def test_context_by_hand(duo):
    """CreateContext, one op with an inline input, KeepAlive, CloseContext."""
    raw = Raw(duo.address("worker"))
    made = raw.call("CreateContext", _raw_context(duo, 4712))
    assert [d.name for d in made.device_attributes] == [W0]
    assert made.device_attributes[0].device_type == "CPU"
    assert made.device_attributes[0].incarnation != 0
    q = pb.EnqueueRequest(context_id=4712)
    op = q.queue.add().operation
    op.id, op.name, op.device = 1, "Neg", W0
    op.attrs["T"].type = tf.float32.as_datatype_enum
    op.op_inputs.add().tensor.CopyFrom(tf.make_tensor_proto([1.0, -2.0]))
    answer = raw.call("Enqueue", q)
    shape = answer.queue_response[0].shape[0]
    assert [d.size for d in shape.dim] == [2]
    assert raw.call("KeepAlive", pb.KeepAliveRequest(
        context_id=4712)).context_view_id == 0
    raw.call("WaitQueueDone", pb.WaitQueueDoneRequest(context_id=4712))
    raw.call("CloseContext", pb.CloseContextRequest(context_id=4712))
    assert raw.code("KeepAlive", pb.KeepAliveRequest(
        context_id=4712)) == grpc.StatusCode.ABORTED


def test_bad_requests_leave_the_server_up(duo):
    raw = Raw(duo.address("worker"))
    assert raw.code("CreateContext", pb.CreateContextRequest()) is not None
    assert raw.code("Enqueue", b"\xff\xff\xff") is not None
    raw.call("CreateContext", _raw_context(duo, 4713))
    q = pb.EnqueueRequest(context_id=4713)
    q.queue.add().operation.name = "NoSuchOp"
    assert raw.code("Enqueue", q) == grpc.StatusCode.NOT_FOUND
    q = pb.EnqueueRequest(context_id=4713)
    op = q.queue.add().operation
    op.id, op.name = 5, "Neg"
    op.attrs["T"].type = 1
    op.op_inputs.add().remote_handle.op_id = 12345
    assert raw.code("Enqueue", q) is not None
    q = pb.EnqueueRequest(context_id=4713)
    q.queue.add().handle_to_decref.op_id = 777
    assert raw.code("Enqueue", q) is not None
    raw.call("CloseContext", pb.CloseContextRequest(context_id=4713))
    assert duo.all_alive()
    assert run_client(_small_program, duo) == 6.0


def test_garbage_on_the_port(duo):
    host, port = duo.address("ps").split(":")
    for data in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000), b"PRI * HTTP/2.0"):
        with socket.create_connection((host, int(port))) as s:
            s.sendall(data)
    assert run_client(_small_program, duo) == 6.0
    assert duo.all_alive()
