# SPDX-License-Identifier: Apache-2.0
"""What a session promises beyond values: long errors, metadata, connections, graphs as they come."""
import grpc
import numpy as np
import pytest
from harness import config, errors, run_meta, session, tf
from tensorflow.core.framework import graph_pb2, node_def_pb2, tensor_pb2
from tensorflow.core.protobuf import config_pb2


def _megabyte_failure(device):
    with tf.device(device):
        text = tf.constant("x" * (1 << 20))
        return tf.Assert(tf.equal(tf.strings.length(text), 3), [text])


@pytest.mark.parametrize("device", ["/job:ps/task:0", "/job:worker/task:1"])
def test_error_of_a_megabyte_arrives_whole(duo, device):
    """The text of an error is not cut on its way through two tasks."""
    check = _megabyte_failure(device)
    with session(duo.target("worker", 0)) as s:
        with pytest.raises(errors.InvalidArgumentError) as e:
            s.run(check)
        assert "x" * (1 << 20) in e.value.message
        assert s.run(tf.constant(1)) == 1


def test_callable_with_tensor_connections(duo):
    """A callable may take the value of one tensor for another."""
    with tf.device("/job:worker/task:1"):
        a = tf.placeholder(tf.float32, [], name="a")
        tf.multiply(a, 2.0, name="double")
    with tf.device("/job:ps/task:0"):
        c = tf.placeholder(tf.float32, [], name="c")
        tf.add(c, 1.0, name="d")
    options = config_pb2.CallableOptions(feed=["a:0"], fetch=["d:0"])
    options.tensor_connection.add(from_tensor="double:0", to_tensor="c:0")
    with session(duo.target()) as s:
        f = s._make_callable_from_options(options)
        assert float(f(np.float32(5))[0]) == 11.0
        assert float(f(np.float32(-1))[0]) == -1.0
        bad = config_pb2.CallableOptions(feed=["a:0"], fetch=["d:0"])
        bad.tensor_connection.add(from_tensor="nobody:0", to_tensor="c:0")
        with pytest.raises(errors.InvalidArgumentError):
            s._make_callable_from_options(bad)


def test_partial_run_refuses_what_was_not_announced(one):
    """Feeds and fetches of a partial run were named when it was set up, and happen once."""
    a = tf.placeholder(tf.float32, [])
    b = tf.placeholder(tf.float32, [])
    x, y = a + 1.0, b + 2.0
    z = x * y
    with session(one.target()) as s:
        h = s.partial_run_setup([x, z], [a, b])
        with pytest.raises(errors.InvalidArgumentError):
            s.partial_run(h, z, {a: 1.0})
    with session(one.target()) as s:
        h = s.partial_run_setup([x, z], [a, b])
        assert s.partial_run(h, x, {a: 1.0}) == 2.0
        with pytest.raises(errors.InvalidArgumentError):
            s.partial_run(h, y, {b: 1.0})


def test_statistics_name_nodes_and_outputs(duo):
    """Step statistics tell times and outputs of every node that ran."""
    with tf.device("/job:ps/task:0"):
        a = tf.random_uniform([4, 3], name="a")
    with tf.device("/job:worker/task:1"):
        b = tf.matmul(a, a, transpose_b=True, name="b")
    with session(duo.target("worker", 0)) as s:
        s.run(b)
        _, meta = run_meta(s, b, trace_level=tf.RunOptions.FULL_TRACE)
    nodes = {n.node_name: (d.device, n) for d in meta.step_stats.dev_stats for n in d.node_stats}
    device, stats = nodes["b"]
    assert device == "/job:worker/replica:0/task:1/device:CPU:0"
    assert stats.all_start_micros > 0
    assert 0 <= stats.op_start_rel_micros <= stats.op_end_rel_micros <= stats.all_end_rel_micros
    shape = stats.output[0].tensor_description.shape
    assert [d.size for d in shape.dim] == [4, 4]
    assert len(meta.partition_graphs) >= 2


def _import_nodes(nodes, **versions):
    g = graph_pb2.GraphDef(node=nodes)
    g.versions.producer = versions.get("producer", tf.GraphDef().versions.producer or 1395)
    g.versions.min_consumer = versions.get("min_consumer", 0)
    g.versions.bad_consumers.extend(versions.get("bad_consumers", []))
    return g


def _node(name, op, inputs=(), **attrs):
    n = node_def_pb2.NodeDef(name=name, op=op, input=list(inputs))
    for key, value in attrs.items():
        n.attr[key].CopyFrom(value)
    return n


def _float(value):
    return tf.AttrValue(tensor=tf.make_tensor_proto(value, tf.float32))


FLOAT = tf.AttrValue(type=tf.float32.as_datatype_enum)


def _field(number, value):
    """A field of bytes in a message, on the wire."""
    size, n = b"", len(value)
    while n > 127:
        size, n = size + bytes([n & 127 | 128]), n >> 7
    return bytes([number << 3 | 2]) + size + bytes([n]) + value


def _first_field(message):
    """The bytes of the field that a message begins with."""
    size, shift, at = 0, 0, 1
    while True:
        size |= (message[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 128:
            return message[at:at + size], message[at + size:]


class _Raw:
    """A session as the wire has it: the graph is sent as it is."""

    def __init__(self, target, graph):
        self.channel = grpc.insecure_channel(target[len("grpc://"):])
        created = self.call("CreateSession", _field(1, graph.SerializeToString()))
        self.handle = _first_field(created)[0]

    def call(self, method, request):
        return self.channel.unary_unary("/tensorflow.MasterService/" + method)(request, timeout=60)

    def run(self, fetch):
        """RunStepResponse.tensor[0].tensor of one fetch."""
        ran = self.call("RunStep", _field(1, self.handle) + _field(3, fetch.encode()))
        named = _first_field(ran)[0]  # name, tensor
        tensor = _first_field(_first_field(named)[1])[0]
        return tf.make_ndarray(tensor_pb2.TensorProto.FromString(tensor))

    def close(self):
        self.call("CloseSession", _field(1, self.handle))
        self.channel.close()


def _small_graph():
    return [
        _node("sum", "AddV2", ["a", "b", "^c"], T=FLOAT,
              _private=tf.AttrValue(s=b"mine"), _list=tf.AttrValue(b=True)),
        _node("c", "NoOp"),
        _node("b", "Const", dtype=FLOAT, value=_float(2.0)),
        _node("a", "Const", dtype=FLOAT, value=_float(1.0)),
    ]


def test_order_of_nodes_and_private_attributes(one):
    """Nodes may come in any order, with attributes of anybody's that begin with '_'."""
    for nodes in (_small_graph(), _small_graph()[::-1]):
        s = _Raw(one.target(), _import_nodes(nodes))
        assert s.run("sum:0") == 3.0
        s.close()


def test_default_attributes_are_filled_in(one):
    """A node without the attributes that have defaults is the node with the defaults."""
    nodes = [_node("a", "Const", dtype=FLOAT, value=_float([[1.0, 2.0], [3.0, 4.0]])),
             _node("y", "MatMul", ["a", "a"], T=FLOAT)]  # no transpose_a, transpose_b
    s = _Raw(one.target(), _import_nodes(nodes))
    assert s.run("y:0").tolist() == [[7.0, 10.0], [15.0, 22.0]]
    s.close()


@pytest.mark.parametrize("versions", [
    dict(producer=1395, min_consumer=1000000), dict(producer=1395, bad_consumers=None)])
def test_versions_that_must_not_be_read(one, versions):
    """A graph says which consumers it is not for."""
    if versions.get("bad_consumers", 1) is None:
        versions = dict(versions, bad_consumers=list(range(500, 4000)))
    with pytest.raises(grpc.RpcError) as e:
        _Raw(one.target(), _import_nodes(_small_graph(), **versions))
    assert e.value.code() in (grpc.StatusCode.INVALID_ARGUMENT,
                              grpc.StatusCode.FAILED_PRECONDITION)


def test_missing_op_is_named(one):
    """An op that there is not is named, and what else there may be to say."""
    with pytest.raises(grpc.RpcError) as e:
        _Raw(one.target(), _import_nodes([_node("x", "MatMull", T=FLOAT)]))
    assert e.value.code() == grpc.StatusCode.NOT_FOUND
    assert "Op type not registered 'MatMull'" in e.value.details()


def test_gradient_of_a_function(one):
    """SymbolicGradient of a function in the graph's library."""
    from tensorflow.python.framework import function

    @function.Defun(tf.float32)
    def cube(x):
        return x * x * x

    x = tf.constant(3.0)
    y = cube(x)
    d = tf.gradients(y, x)[0]
    with session(one.target()) as s:
        assert s.run([y, d]) == [27.0, 27.0]


def test_saver_of_resource_variables(duo, tmp_path):
    """A stock Saver's graph saves and restores, over two parameter tasks."""
    with tf.device("/job:ps/task:0"):
        v = tf.get_variable("v", [3], initializer=tf.ones_initializer(), use_resource=True)
        p = tf.get_variable("p", [4, 2], partitioner=tf.fixed_size_partitioner(2),
                            initializer=tf.zeros_initializer(), use_resource=True)
    saver = tf.train.Saver(sharded=True)
    path = str(tmp_path / "model")
    with session(duo.target()) as s:
        s.run(tf.global_variables_initializer())
        saver.save(s, path, global_step=7)
        s.run([v.assign([5.0, 6.0, 7.0])] + [x.assign(x + 1.0) for x in p])
        saver.restore(s, tf.train.latest_checkpoint(str(tmp_path)))
        assert s.run(v).tolist() == [1.0, 1.0, 1.0]
        assert s.run(tf.concat(list(p), 0)).tolist() == [[0.0, 0.0]] * 4


def test_images_embeddings_and_sparse_ops(one):
    """Ops that programs for images, embeddings and sparse features are made of."""
    rng = np.random.RandomState(3)
    image = rng.rand(2, 6, 5, 3).astype(np.float32)
    table = tf.constant(rng.rand(7, 3).astype(np.float32))
    ids = tf.SparseTensor([[0, 0], [0, 2], [1, 1]], tf.constant([1, 4, 1], tf.int64), [2, 3])
    bag = tf.nn.embedding_lookup_sparse(table, ids, None, combiner="mean")
    sp = tf.SparseTensor([[0, 1], [1, 0]], [1.0, 2.0], [2, 3])
    with tf.Session() as local, session(one.target()) as s:
        fetches = {
            "hue": tf.image.adjust_hue(image, 0.2), "contrast": tf.image.adjust_contrast(image, 2.0),
            "lrn": tf.nn.lrn(image), "bag": bag, "dbag": tf.gradients(bag, table)[0],
            "top": tf.nn.in_top_k(image[0, 0], [1] * 5, 2),
            "sum": tf.sparse.reduce_sum(sp, 1), "concat": tf.sparse.concat(0, [sp, sp]).values,
            "hist": tf.histogram_fixed_width(image, [0.0, 1.0], 4),
            "det": tf.linalg.det(image[0, :3, :3, 0]),
        }
        want, got = local.run(fetches), s.run(fetches)
    for key, value in want.items():
        if key == "dbag":
            np.testing.assert_array_equal(value.indices, got[key].indices)
            value, other = value.values, got[key].values
        else:
            other = got[key]
        np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-5, err_msg=key)


def test_cost_graph_when_asked_for(duo):
    """A session with a cost model tells what nodes cost and how large their outputs are."""
    with tf.device("/job:ps/task:0"):
        a = tf.random_uniform([4, 3], name="a")
    with tf.device("/job:worker/task:1"):
        b = tf.matmul(a, a, transpose_b=True, name="b")
    c = config()
    c.graph_options.build_cost_model = 1
    with tf.Session(duo.target("worker", 0), config=c) as s:
        meta = tf.RunMetadata()
        s.run(b, options=tf.RunOptions(), run_metadata=meta)
    assert not meta.step_stats.dev_stats
    nodes = {n.name: n for n in meta.cost_graph.node}
    product = nodes["b"]
    assert product.device == "/job:worker/replica:0/task:1/device:CPU:0"
    assert product.output_info[0].size == 64
    assert [d.size for d in product.output_info[0].shape.dim] == [4, 4]
    assert len(product.input_info) == 2
