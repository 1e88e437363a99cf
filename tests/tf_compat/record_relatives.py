# SPDX-License-Identifier: Apache-2.0
"""Records what TensorFlow's kernels answer of older and rarer forms of ops, which graphs of
TensorFlow 1, and loops and tables of today, still have.

    python record_relatives.py
writes ../goldens/kernels/cases_relatives.pb; see record_kernels.py.
"""
from record_kernels import Recorder, np, tf, v1

raw = tf.raw_ops


class Programs(Recorder):
    def program(self, op, build, error="", producer=None):
        """One case of a small graph, made by a client of version `producer` if that is given:
        build() gives the tensors to fetch, in one step."""
        with tf.Graph().as_default() as graph:
            if producer is not None:
                empty = v1.GraphDef()
                empty.versions.producer = producer
                tf.import_graph_def(empty)
            made = build()
            flat = list(made) if isinstance(made, (list, tuple)) else [made]
            n = self.names[op] = self.names.get(op, 0) + 1
            case = self.set.case.add(name=f"{op}_{self.tag}_{n}", op=op, family=5, compare="bits",
                                     graph_def=graph.as_graph_def().SerializeToString(),
                                     dtype=flat[0].dtype.base_dtype.name)
            step = case.step.add()
            step.fetch.extend(t.name for t in flat)
            config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
            with v1.Session(graph=graph, config=config) as session:
                try:
                    values = session.run(flat)
                except tf.errors.OpError as e:
                    if not error or error not in e.message:
                        raise
                    step.error_code, step.error_contains = e.error_code, error
                else:
                    if error:
                        raise AssertionError(f"{case.name} gave no error")
                    for t, value in zip(flat, values):
                        step.expected.append(
                            tf.make_tensor_proto(value, t.dtype).SerializeToString())
                        case.inferred_shape.append(t.shape.as_proto().SerializeToString())
            print(case.name, op, case.dtype, error or case.compare)


def record_joins(r):
    a, b = np.float32([[1, 2], [3, 4]]), np.float32([[5], [6]])
    for axis in (1, -1):
        r.add("Concat", {"concat_dim": np.int32(axis), "values": [a, b]}, bits=True)
    r.add("Concat", {"concat_dim": np.int32(0), "values": [a, a, a]}, bits=True)
    r.add("Concat", {"concat_dim": np.int32(0), "values": [np.array(["a", "b"], object),
                                                           np.array(["c"], object)]}, bits=True)
    r.add("Concat", {"concat_dim": np.int32(0), "values": [a, b]},
          error="Dimension 1 in both shapes must be equal")
    for dtype in (np.float32, np.int64, np.float16):
        v = np.arange(6).reshape(2, 3).astype(dtype)
        r.add("AccumulateNV2", {"inputs": [v, v + 1, v * 2]}, shape=[2, 3])
    r.add("AccumulateNV2", {"inputs": [a]}, shape=[2, 2])


def record_diagonals(r):
    rng = np.random.default_rng(3)
    m = rng.normal(size=(2, 3, 4)).astype(np.float32)
    d = rng.normal(size=(2, 3)).astype(np.float32)
    r.add("MatrixDiag", {"diagonal": d}, bits=True)
    r.add("MatrixDiag", {"diagonal": np.int32([1, 2, 3])}, bits=True)
    r.add("MatrixDiagPart", {"input": m}, bits=True)
    r.add("MatrixDiagPart", {"input": m[0].T.copy()}, bits=True)
    r.add("MatrixSetDiag", {"input": m, "diagonal": d}, bits=True)
    for k in (0, 1, -1, [-1, 1], [0, 2]):
        ks = np.int32(k)
        r.add("MatrixDiagPartV2", {"input": m, "k": ks, "padding_value": np.float32(9)}, bits=True)
        with tf.Graph().as_default(), v1.Session() as s:
            part = s.run(raw.MatrixDiagPartV2(input=m, k=ks, padding_value=np.float32(9)))
        r.add("MatrixSetDiagV2", {"input": m * 0, "diagonal": part, "k": ks}, bits=True)
        r.add("MatrixDiagV2", {"diagonal": part, "k": ks, "num_rows": np.int32(3),
                               "num_cols": np.int32(4), "padding_value": np.float32(-1)}, bits=True)
    r.add("MatrixDiagV2", {"diagonal": d, "k": np.int32(1), "num_rows": np.int32(-1),
                           "num_cols": np.int32(-1), "padding_value": np.float32(0)}, bits=True)


def record_rows(r):
    x = np.arange(12).reshape(4, 3)
    for op in ("InplaceUpdate", "InplaceAdd", "InplaceSub"):
        for dtype in (np.float32, np.int32, np.uint8, np.float16, np.complex64):
            v = np.full((2, 3), 100).astype(dtype)
            r.add(op, {"x": x.astype(dtype), "i": np.int32([1, 3]), "v": v}, bits=True, feed=True)
        f, v = x.astype(np.float32), np.float32([[1, 2, 3], [4, 5, 6]])
        r.add(op, {"x": f, "i": np.int32([2, 2]), "v": v}, bits=True, feed=True)
        r.add(op, {"x": f, "i": np.int32([-1, 5]), "v": v}, bits=True, feed=True)
        r.add(op, {"x": f, "i": np.zeros(0, np.int32), "v": v[:0]}, bits=True, feed=True)
        r.add(op, {"x": f, "i": np.int32(1), "v": v[0]}, error="i must be a vector.")
        r.add(op, {"x": f, "i": np.int32([1, 3]), "v": v[:1]},
              error="i and x shape doesn't match at index 0: [2] vs. [1,3]")
        r.add(op, {"x": f, "i": np.int32([1, 3]), "v": v[:, :2]},
              error="x and v shape doesn't match at index 1 : [4,3] vs. [2,2]")
        r.add(op, {"x": f, "i": np.int32([1, 3]), "v": v[0]},
              error="x and v shape doesn't match (ranks differ): [4,3] vs. [3]")
    r.add("InplaceUpdate", {"x": np.array(["a", "b"], object), "i": np.int32([1]),
                            "v": np.array(["c"], object)}, bits=True, feed=True)
    r.add("InplaceAdd", {"x": np.bool_([1, 0]), "i": np.int32([1]), "v": np.bool_([1])},
          error="Unsupported data type: bool")
    for dtype in (np.float32, np.bool_, np.complex64, np.int8):
        r.add("DeepCopy", {"x": x.astype(dtype)}, bits=True)
    formats = (("NHWC", "NCHW"), ("NCHW", "NHWC"), ("NHWC", "HWNC"))
    for source, target in formats + (("NDHWC", "NCDHW"),):
        of = dict(src_format=source, dst_format=target)
        n = len(source)
        r.add("DataFormatDimMap", {"x": np.arange(-n, n).astype(np.int32)}, bits=True, **of)
        r.add("DataFormatDimMap", {"x": np.int64([[0, 1], [2, 3]])}, bits=True, **of)
        for size in (n, n - 2):
            r.add("DataFormatVecPermute", {"x": np.arange(size).astype(np.int32)}, bits=True, **of)
            r.add("DataFormatVecPermute", {"x": np.arange(2 * size).reshape(size, 2)}, bits=True,
                  **of)
    for value, error in ((np.int32([1, 2, 3]), "1D input must be of size 2 or 4, but got shape [3]"),
                         (np.int32(3), "input must be a vector or 2D tensor, but got shape []"),
                         (np.zeros((3, 2), np.int32), "First dimension of 2D input must be of size "
                          "2 or 4, but got shape [3,2]"),
                         (np.zeros((4, 3), np.int32), "Second dimension of 2D input must be of size "
                          "2, but got shape [4,3]")):
        r.add("DataFormatVecPermute", {"x": value}, error=error)
    for target, error in (("NHC", "Destination format must be of length 4 or 5, received "
                           "dst_format = NHC"),
                          ("NHWX", "Destination and source format must determine a permutation, got "
                           "NHWC and NHWX")):
        r.add("DataFormatDimMap", {"x": np.int32([0])}, error=error, dst_format=target)


def record_numbers(r):
    farm = np.array("farmhash64", object)
    for data in (np.arange(12).reshape(4, 3).astype(np.float32), np.int64([1, 2]),
                 np.array(["a", "bc", ""], object), np.array([["a", "bc"], ["d", "e"]], object),
                 np.zeros((2, 0), np.float32), np.zeros((0, 2), np.float32), np.bool_([1, 0])):
        r.add("Fingerprint", {"data": data, "method": farm}, bits=True)
    r.add("Fingerprint", {"data": np.int64(1), "method": farm},
          error="`data` should have at least one dimension: []")
    r.add("Fingerprint", {"data": np.int64([1]), "method": np.array("x", object)},
          error="Unsupported fingerprint method: x")
    for dtype in (tf.int32, tf.int64, tf.uint32, tf.uint64):
        r.add("StatelessRandomUniformFullInt", {"shape": np.int32([7]), "seed": np.int64([1, 2])},
              dtype=dtype, bits=True)
    r.add("StatelessRandomUniformFullInt", {"shape": np.int64([2, 3]), "seed": np.int32([3, -4])},
          dtype=tf.int64, bits=True)
    r.add("StatelessRandomGetKeyCounterAlg", {"seed": np.int64([5, -6])}, bits=True)


def filled(size=3, **attrs):
    """An array of V2 with a row in each element, and the flow behind it."""
    handle = raw.TensorArrayV2(size=size, dtype=tf.float32, **attrs)
    flow = tf.constant(0.0)
    for i in range(size):
        flow = raw.TensorArrayWriteV2(handle=handle, index=i, value=np.float32([i, 10 * i]),
                                      flow_in=flow)
    return handle, flow


def record_arrays(r):
    def gather():
        handle, flow = filled()
        return raw.TensorArrayGatherV2(handle=handle, indices=[2, 0], flow_in=flow,
                                       dtype=tf.float32)

    def read():
        handle, flow = filled()
        return [raw.TensorArrayReadV2(handle=handle, index=1, flow_in=flow, dtype=tf.float32),
                raw.TensorArraySizeV2(handle=handle, flow_in=flow)]

    def concat():
        handle, flow = filled()
        return list(raw.TensorArrayConcatV2(handle=handle, flow_in=flow, dtype=tf.float32))

    def scatter():
        handle = raw.TensorArrayV2(size=2, dtype=tf.int32)
        flow = raw.TensorArrayScatterV2(handle=handle, indices=[1, 0], value=[[1, 2], [3, 4]],
                                        flow_in=0.0)
        return raw.TensorArrayReadV2(handle=handle, index=0, flow_in=flow, dtype=tf.int32)

    def split():
        handle = raw.TensorArrayV2(size=2, dtype=tf.int32)
        flow = raw.TensorArraySplitV2(handle=handle, value=[1, 2, 3], lengths=np.int64([1, 2]),
                                      flow_in=0.0)
        return raw.TensorArrayReadV2(handle=handle, index=1, flow_in=flow, dtype=tf.int32)

    def close():
        handle, flow = filled()
        with tf.control_dependencies([flow]):
            closed = raw.TensorArrayCloseV2(handle=handle)
        with tf.control_dependencies([closed]):
            return tf.identity(flow)

    def gradient():
        handle, flow = filled()
        back = raw.TensorArrayGradV2(handle=handle, flow_in=flow, source="g")
        for _ in range(2):
            flow = raw.TensorArrayWriteV2(handle=back, index=1, value=np.float32([1, 2]),
                                          flow_in=flow)
        return raw.TensorArrayGatherV2(handle=back, indices=[0, 1], flow_in=flow, dtype=tf.float32)

    def nothing():
        return list(raw.TensorArrayConcatV2(handle=["a", "b"], flow_in=0.0, dtype=tf.float32))

    def outer():
        handle, flow = raw.TensorArrayV3(size=2, dtype=tf.float32, element_shape=[2])
        flow = raw.TensorArrayWriteV3(handle=handle, index=0, value=np.float32([1, 2]),
                                      flow_in=flow)
        back, flow = raw.TensorArrayGradWithShape(handle=handle, flow_in=flow,
                                                  shape_to_prepend=[3], source="g")
        flow = raw.TensorArrayWriteV3(handle=back, index=1, value=np.ones((3, 2), np.float32),
                                      flow_in=flow)
        return raw.TensorArrayGatherV3(handle=back, indices=[0, 1], flow_in=flow, dtype=tf.float32)

    for op, build in (("TensorArrayGatherV2", gather), ("TensorArrayReadV2", read),
                      ("TensorArraySizeV2", read), ("TensorArrayWriteV2", read),
                      ("TensorArrayV2", read), ("TensorArrayConcatV2", concat),
                      ("TensorArrayScatterV2", scatter), ("TensorArraySplitV2", split),
                      ("TensorArrayCloseV2", close), ("TensorArrayGradV2", gradient),
                      ("TensorArrayGradWithShape", outer)):
        r.program(op, build, producer=None if op == "TensorArrayGradWithShape" else 20)
    r.program("TensorArrayConcatV2", nothing, error="does not exist", producer=20)


def record_tables(r):
    def of_tensors():
        table = raw.AnonymousMutableHashTableOfTensors(key_dtype=tf.string, value_dtype=tf.int64,
                                                       value_shape=[2])
        put = raw.LookupTableInsertV2(table_handle=table, keys=["a", "b"],
                                      values=np.int64([[1, 2], [3, 4]]))
        with tf.control_dependencies([put]):
            return [raw.LookupTableFindV2(table_handle=table, keys=["b", "x"],
                                          default_value=np.int64([-1, -2])),
                    raw.LookupTableSizeV2(table_handle=table)]

    def dense():
        table = raw.AnonymousMutableDenseHashTable(
            empty_key=np.int64(0), deleted_key=np.int64(-1), value_dtype=tf.float32,
            initial_num_buckets=4)
        put = raw.LookupTableInsertV2(table_handle=table, keys=np.int64([5, 6, 7]),
                                      values=np.float32([50, 60, 70]))
        with tf.control_dependencies([put]):
            gone = raw.LookupTableRemoveV2(table_handle=table, keys=np.int64([6]))
        with tf.control_dependencies([gone]):
            return [raw.LookupTableFindV2(table_handle=table, keys=np.int64([7, 6, 5]),
                                          default_value=np.float32(-1)),
                    raw.LookupTableSizeV2(table_handle=table)]

    def marks():
        table = raw.AnonymousMutableDenseHashTable(
            empty_key=np.int64(0), deleted_key=np.int64(-1), value_dtype=tf.float32)
        return raw.LookupTableFindV2(table_handle=table, keys=np.int64([0]),
                                     default_value=np.float32(-1))

    r.program("AnonymousMutableHashTableOfTensors", of_tensors)
    r.program("AnonymousMutableDenseHashTable", dense)
    r.program("AnonymousMutableDenseHashTable", marks,
              error="Using the empty_key as a table key is not allowed")


def record_lists(r):
    """Elements that nobody wrote are as long as the others, if these are all of one length."""
    def joined(written):
        def build():
            made = raw.TensorListReserve(element_shape=-1, num_elements=3, element_dtype=tf.float32)
            for i, value in written.items():
                made = raw.TensorListSetItem(input_handle=made, index=i, item=np.float32(value))
            return list(raw.TensorListConcatV2(
                input_handle=made, element_shape=-1, leading_dims=np.zeros(0, np.int64),
                element_dtype=tf.float32))
        return build

    r.program("TensorListConcatV2", joined({1: [[4, 5]]}))
    r.program("TensorListConcatV2", joined({1: [[4, 5]], 2: [[6, 7]]}))
    r.program("TensorListConcatV2", joined({1: [[4, 5]], 2: [[6, 7], [8, 9]]}),
              error="ninitialized tensor")


def record_fixed_tables(r):
    def empty():
        table = raw.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, shared_name="t")
        put = raw.LookupTableImportV2(table_handle=table, keys=tf.constant([], tf.string),
                                      values=tf.constant([], tf.int64))
        with tf.control_dependencies([put]):
            return raw.LookupTableSizeV2(table_handle=table)

    r.program("LookupTableImportV2", empty, error="keys and values cannot be empty tensors.")


def record_references(r):
    def selected(index):
        def build():
            refs, ready = [], []
            for i in range(3):
                ref = raw.VariableV2(shape=[2], dtype=tf.float32, shared_name=f"v{i}")
                refs.append(ref)
                ready.append(raw.Assign(ref=ref, value=np.float32([i, i])))
            with tf.control_dependencies([r.op for r in ready]):
                chosen = raw.RefSelect(index=tf.constant(index), inputs=refs)
            return raw.AssignAdd(ref=chosen, value=np.float32([10, 20]))
        return build

    for index in (0, 2):
        r.program("RefSelect", selected(index))
    r.program("RefSelect", selected(3), error="Index must be in the range [0, 3) but got 3")


def main():
    r = Programs("relative")
    for record in (record_joins, record_diagonals, record_rows, record_numbers, record_arrays,
                   record_tables, record_lists, record_fixed_tables, record_references):
        record(r)
    r.write("cases_relatives.pb")


if __name__ == "__main__":
    main()
