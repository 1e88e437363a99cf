# SPDX-License-Identifier: Apache-2.0
"""Records what TensorFlow's kernels answer of ops that clients of TensorFlow 2 send: packed sparse
tensors, orders and generators that are a function of their operands, data sets of one element.

    python record_clients.py
writes ../goldens/kernels/cases_clients.pb; see record_kernels.py.
"""
from record_kernels import Recorder, np, tf, v1

TYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32",
         "uint32", "int64", "uint64", "bool", "complex64", "complex128", "string")


def values_of(numbers, dtype):
    if dtype == "string":
        return np.array(["text %d" % n for n in numbers], object)
    return np.asarray(numbers).astype(tf.as_dtype(dtype).as_numpy_dtype)


def record_packed(r):
    rows, shape = np.int64([[0, 1], [0, 3], [2, 0]]), np.int64([4, 5])
    for dtype in TYPES:
        v = values_of([1, 0, 5], dtype)
        sparse = dict(sparse_indices=rows, sparse_values=v, sparse_shape=shape)
        r.add("SerializeSparse", sparse, bits=True)
        r.add("SerializeManySparse", sparse, bits=True)
        with tf.Graph().as_default(), v1.Session() as s:
            one, many = s.run([tf.raw_ops.SerializeSparse(**sparse),
                               tf.raw_ops.SerializeManySparse(**sparse)])
        of = dict(dtype=tf.as_dtype(dtype), bits=True)
        r.add("DeserializeSparse", {"serialized_sparse": one}, **of)
        r.add("DeserializeSparse", {"serialized_sparse": many}, **of)
        r.add("DeserializeManySparse", {"serialized_sparse": many}, **of)
    other = dict(sparse, sparse_shape=np.int64([3, 9]))
    with tf.Graph().as_default(), v1.Session() as s:
        two = s.run(tf.raw_ops.SerializeSparse(**other))
    r.add("DeserializeSparse", {"serialized_sparse": np.array([[one, two], [two, one]])}, **of)
    none = dict(sparse_indices=np.zeros([0, 2], np.int64), sparse_values=np.zeros(0, np.float32),
                sparse_shape=np.int64([2, 0]))
    r.add("SerializeSparse", none, bits=True)
    r.add("SerializeManySparse", none, bits=True)
    record_packed_errors(r, one, many)


def record_packed_errors(r, one, many):
    rows, v, shape = np.int64([[0, 1], [2, 0]]), np.float32([1, 2]), np.int64([3, 4])

    def bad(op, error, **parts):
        whole = dict(sparse_indices=rows, sparse_values=v, sparse_shape=shape)
        r.add(op, {**whole, **parts}, error=error)

    bad("SerializeSparse", "should be a matrix", sparse_indices=np.int64([0]))
    bad("SerializeSparse", "should be a vector", sparse_values=v[:, None])
    bad("SerializeManySparse", "Rank of input SparseTensor should be > 1",
        sparse_indices=rows[:, :1], sparse_shape=shape[:1])
    bad("SerializeManySparse", "is out of bounds", sparse_indices=np.int64([[0, 1], [9, 0]]))
    bad("SerializeManySparse", "is out of order", sparse_indices=rows[::-1].copy())
    unpack = lambda packed, error, dtype=tf.string: r.add(
        "DeserializeSparse", {"serialized_sparse": packed}, error=error, dtype=dtype)
    unpack(np.array(["a", "b", "c"], object), "Could not parse serialized proto")
    unpack(one, "Requested SparseTensor of type", tf.int32)
    unpack(one[:2], "as the last dimension")
    unpack(many[:0], "has a zero dimension")


def record_orders(r):
    rng = np.random.default_rng(3)
    key, counter = np.uint64([0x1234567887654321]), np.uint64([5, 7])
    for dtype in TYPES:
        r.add("StatelessShuffle", {"value": values_of(range(9), dtype), "key": key,
                                   "counter": counter, "alg": np.int32(1)}, bits=True)
    for shape in ([1], [0], [5, 0], [7, 3], [4, 2, 3], [1000]):
        for alg in (1, 3):
            r.add("StatelessShuffle", {"value": rng.normal(size=shape), "key": key,
                                       "counter": counter, "alg": np.int32(alg)}, bits=True)


def record_generators(r):
    """Each case: a state, then two draws of a read with the state after them."""
    for alg, state, delta in ((1, [5, 7, 11], 0), (1, [5, 7, 11], 1), (3, [-1, -1, 3], 10),
                              (1, [-1, 7, 11], 3), (1, [0, 0, 9], 2 ** 55)):
        for op in ("RngReadAndSkip", "RngSkip"):
            with tf.Graph().as_default() as graph:
                h = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[len(state)], shared_name="s",
                                           name="s")
                init = tf.raw_ops.AssignVariableOp(resource=h, value=tf.constant(state, tf.int64),
                                                   name="init")
                if op == "RngSkip":
                    y = tf.raw_ops.RngSkip(resource=h, algorithm=np.int64(alg),
                                           delta=np.int64(delta), name="y")
                    with tf.control_dependencies([y]):
                        fetched = [tf.raw_ops.ReadVariableOp(resource=h, dtype=tf.int64)]
                else:
                    y = tf.raw_ops.RngReadAndSkip(resource=h, alg=np.int32(alg),
                                                  delta=np.uint64(delta), name="y")
                    with tf.control_dependencies([y]):
                        fetched = [y, tf.raw_ops.ReadVariableOp(resource=h, dtype=tf.int64)]
                n = r.names[op] = r.names.get(op, 0) + 1
                case = r.set.case.add(name=f"{op}_{r.tag}_{n}", op=op, family=5, compare="bits",
                                      dtype="int64",
                                      graph_def=graph.as_graph_def().SerializeToString())
                with v1.Session(graph=graph) as session:
                    session.run(init)
                    case.step.add().target.append(init.name)
                    for _ in range(2):
                        step = case.step.add()
                        step.fetch.extend(t.name for t in fetched)
                        step.expected.extend(tf.make_tensor_proto(v, tf.int64).SerializeToString()
                                             for v in session.run(fetched))
                print(case.name)


def main():
    recorder = Recorder("clients")
    for record in (record_packed, record_orders, record_generators):
        record(recorder)
    recorder.write("cases_clients.pb")


if __name__ == "__main__":
    main()
