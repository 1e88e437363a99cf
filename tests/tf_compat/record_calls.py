# SPDX-License-Identifier: Apache-2.0
"""Records what TensorFlow's kernels answer to calls that compare_calls.py found answered otherwise here.

    python record_calls.py
writes ../goldens/kernels/cases_calls.pb; see record_kernels.py.
"""
from record_kernels import Recorder, np, tf

f = np.float32


def record_text(r):
    words = ["AbC Zz", "\u00c4\u00e9\u0178\u00ff", "Stra\u00dfe \ufb01", "\u0130i\u0131I", "", "1 2",
             "\u039f\u0394\u039f\u03a3 \u03a3\u03a3 \u03a3", "\u03a3'\u03a3'", "A\u0301\u03a3. \u03a3\u03b1",
             "\u01c4\u01c5\u01c6", "\u1f80\u1f88\u1fb3", "\U00010400\U00010428", "\u10d0\u1c90",
             "\u2c2f\u2c5f\ua7c1", "\u0410\u044f"]
    broken = [b"\xff\xfeA", b"a\xc3", b"\xe2\x82B", b"\xed\xa0\x80", b"\xc0\x80Q", b"\xf4\x90\x80\x80",
              b"\xf0\x9f\x98", b"\xf1\x80\x80\xc3\xa4", b"cut\0Off"]
    texts = np.array([w.encode() for w in words] + broken, object)
    for op in ("StringLower", "StringUpper"):
        for encoding in ("utf-8", ""):
            r.add(op, {"input": texts}, bits=True, encoding=encoding)
        r.add(op, {"input": texts}, encoding="utf-16",
              error="only utf-8 or '' (no encoding) is supported, received utf-16")


def record_gradients_of_outputs(r):
    """dy may have another shape than y, if there are as many elements."""
    for op in ("SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad"):
        for y, dy in ((f([.5]), f([[.25]])), (f([[.25]]), f(.5)), (f(.5), f([[2]])),
                      (f([.5, 2]), f([[3], [4]])), (f([[]]), f([]))):
            r.add(op, {"y": y, "dy": dy}, feed=True)
        r.add(op, {"y": f([.5, .5]), "dy": f([1])}, error="The two arguments to a cwise op must have "
              "same number of elements, got 2 and 1")


def record_cross_entropies(r):
    rng = np.random.default_rng(5)
    for x, y in (([1, 3], [2, 3]), ([2, 3], [1, 3]), ([3], [2, 3]), ([2, 3], [3]), ([2, 3], []),
                 ([], [2, 3]), ([2, 1], [3]), ([0, 3], [3]), ([2, 0], [1]), ([1], [1, 1])):
        r.add("SoftmaxCrossEntropyWithLogits",
              {"features": rng.normal(size=x).astype(f), "labels": rng.uniform(size=y).astype(f)},
              feed=True)
    for x, y in (([3], [3]), ([], []), ([1, 2, 3], [2, 3]), ([2, 3], [3, 2])):
        r.add("SoftmaxCrossEntropyWithLogits", {"features": np.zeros(x, f), "labels": np.zeros(y, f)},
              error=" ")


def record_complex(r):
    x = np.array([0, 1 + 2j, 0, 2 - 1j, 3j, -2, 1e30 + 1e30j])
    y = np.array([5j, 3 - 4j, 0, .5 + 1j, 1e-3 - 2e-3j, -3, 1e30 + 1e30j])
    for dtype in (np.complex64, np.complex128):
        for op in ("Xlog1py", "Xlogy", "Xdivy"):
            n = 6 if op == "Xlogy" else 7
            r.add(op, {"x": x[:n].astype(dtype), "y": y[:n].astype(dtype)})
        r.add("DivNoNan", {"x": x.astype(dtype), "y": y.astype(dtype)})
        r.add("Log1p", {"x": y.astype(dtype)})


def record_diagonals(r):
    r.add("DiagPart", {"input": f(3)}, bits=True, feed=True)
    r.add("DiagPart", {"input": f([3])}, error="even and positive, got shape [1]")


def record_scalars(r):
    """Axes and counts: which ops take tensors of one element for a scalar, and which do not."""
    x, i, one = f([[1, 2, 3], [4, 5, 6]]), np.int32, f([1])
    r.add("ConcatV2", {"values": [x, x], "axis": i([1])}, bits=True, feed=True)
    r.add("SplitV", {"value": x, "size_splits": i([1, 2]), "axis": i([[1]])}, bits=True, feed=True,
          num_split=2)
    r.add("ExpandDims", {"input": x, "axis": i([[1]])}, bits=True, feed=True)
    for axis in ([[0]], [[0, 1]], [[[-1]]]):
        r.add("Sum", {"input": x, "axis": i(axis)}, feed=True)
        r.add("Max", {"input": x, "axis": i(axis)}, feed=True)
    r.add("Range", {"start": i([0]), "limit": i(3), "delta": i([1])}, bits=True, feed=True)
    r.add("ReverseV2", {"tensor": f(1), "axis": i([4])}, bits=True, feed=True)
    r.add("ReverseV2", {"tensor": x[:0], "axis": i([4])}, bits=True, feed=True)
    r.add("ReverseV2", {"tensor": np.array([["a", "b", "c"]], object), "axis": i([-1])}, bits=True,
          feed=True)
    ids, seed = i([0, 1]), i([1, 2])
    for op, inputs, attrs in (
            ("ConcatV2", {"values": [x, x], "axis": i([[1]])}, {}),
            ("Split", {"axis": i([0]), "value": x}, {"num_split": 2}),
            ("GatherV2", {"params": x, "indices": ids, "axis": i([0])}, {}),
            ("ArgMax", {"input": x, "dimension": i([0])}, {}),
            ("Cumsum", {"x": x, "axis": i([0])}, {}),
            ("TopKV2", {"input": x, "k": i([2])}, {}),
            ("InTopKV2", {"predictions": x, "targets": ids, "k": i([2])}, {}),
            ("OneHot", {"indices": ids, "depth": i([3]), "on_value": f(1), "off_value": f(0)}, {}),
            ("OneHot", {"indices": ids, "depth": i(3), "on_value": one, "off_value": f(0)}, {}),
            ("Range", {"start": i([[0]]), "limit": i(3), "delta": i(1)}, {}),
            ("LinSpace", {"start": one, "stop": f(2), "num": i(3)}, {}),
            ("LinSpace", {"start": f(1), "stop": f(2), "num": i([3])}, {}),
            ("UnsortedSegmentSum", {"data": x, "segment_ids": ids, "num_segments": i([2])}, {}),
            ("Bincount", {"arr": ids, "size": i([2]), "weights": one[:0]}, {}),
            ("MatrixBandPart", {"input": x, "num_lower": i([0]), "num_upper": i(0)}, {}),
            ("PadV2", {"input": x, "paddings": i([[0, 1], [0, 1]]), "constant_values": one}, {}),
            ("StatelessRandomUniformInt", {"shape": i([2]), "seed": seed, "minval": i([0]),
                                           "maxval": i(4)}, {}),
            ("SparseToDense", {"sparse_indices": ids, "output_shape": i([2]), "sparse_values": f(1),
                               "default_value": one}, {}),
            ("StackV2", {"max_size": i([2])}, {"elem_type": tf.float32})):
        r.add(op, inputs, error=" ", **attrs)


def record_windows(r):
    images = np.arange(32).reshape(1, 4, 4, 2).astype(f)
    r.add("MaxPool", {"input": images}, bits=True, feed=True, ksize=[1, 1, 1, 2],
          strides=[1, 2, 1, 2], padding="VALID")
    one = [1, 1, 1, 1]
    for op, name in (("MaxPool", "input"), ("AvgPool", "value")):
        for ksize, strides, form in (([2, 1, 1, 1], one, "NHWC"), (one, [2, 1, 1, 1], "NHWC"),
                                     ([2, 1, 1, 1], one, "NCHW"), (one, [2, 1, 1, 1], "NCHW"),
                                     ([1, 2, 1, 1], one, "NCHW"), ([1, 1, 1, 2], one, "NHWC")):
            r.add(op, {name: images}, error=" ", ksize=ksize, strides=strides, padding="VALID",
                  data_format=form)
    for op in ("Conv2D", "DepthwiseConv2dNative"):
        for strides in ([2, 1, 1, 1], [1, 1, 1, 2]):
            r.add(op, {"input": images, "filter": np.ones((2, 2, 2, 1), f)}, error=" ",
                  strides=strides, padding="VALID")
    # With elements to fill and none to fill them from, TensorFlow answers what was in the memory.
    for shape, filter_shape, out in (([1, 3, 3, 0], [2, 2, 0, 1], [1, 2, 2, 0]),
                                     ([0, 3, 3, 2], [2, 2, 2, 1], [0, 2, 2, 2])):
        r.add("DepthwiseConv2dNativeBackpropInput",
              {"input_sizes": np.int32(shape), "filter": np.ones(filter_shape, f),
               "out_backprop": np.ones(out, f)}, feed=True, strides=one, padding="VALID")


def record_nothing(r):
    """Of what has no elements TensorFlow looks at less."""
    none = np.zeros((3, 1, 0), f)
    for op in ("UnsortedSegmentSum", "UnsortedSegmentMin", "UnsortedSegmentProd"):
        r.add(op, {"data": none, "segment_ids": np.int32([0, 7, 1]), "num_segments": np.int32(2)},
              bits=True, feed=True)
    for op in ("SparseSegmentSumGrad", "SparseSegmentSqrtNGradV2"):
        r.add(op, {"grad": np.ones((1, 2), f), "indices": np.int32([1, 0]),
                   "segment_ids": np.int32([1, 4]), "output_dim0" if op.endswith("Grad") else
                   "dense_output_dim0": np.int32(0)}, bits=True, feed=True)
    r.add("ScatterNdNonAliasingAdd", {"input": np.bool_([0, 1, 0]), "indices": np.int32([[0], [1]]),
                                      "updates": np.bool_([1, 0])}, bits=True, feed=True)


def record_parts(r):
    abc = np.array(["abc"], object)
    for unit, pos, length in (("BYTE", 0, -1), ("BYTE", -2, -2147483648), ("BYTE", 1, -1),
                              ("UTF8_CHAR", 0, -1), ("UTF8_CHAR", -2, 0)):
        r.add("Substr", {"input": abc, "pos": np.int32([pos]), "len": np.int32([length])},
              bits=True, feed=True, unit=unit)
    r.add("Substr", {"input": abc, "pos": np.int32([-2]), "len": np.int32([-1])}, unit="UTF8_CHAR",
          error="pos -2 out of range")
    r.add("ReduceJoin", {"inputs": abc, "reduction_indices": np.int32([[0]])}, bits=True, feed=True)
    r.add("ReduceJoin", {"inputs": abc, "reduction_indices": np.int32(1)}, error=" ")
    r.add("Cross", {"a": f(1), "b": f(1)}, error=" ")
    r.add("RGBToHSV", {"images": f(1)}, error=" ")
    r.add("RGBToHSV", {"images": f([1])}, error=" ")
    r.add("DepthToSpace", {"input": np.zeros((1, 4, 1, 1), f)}, error=" ", block_size=2,
          data_format="NCHW")


def record_cut_gradients(r):
    """Gradients that are no numbers, where a feature is cut off, too."""
    x = [-1, -.5, 0, -0., np.nan, np.inf, -np.inf, .5, 5.5, 6, 7]
    by = [np.nan, np.inf, -np.inf, 0, -0., 2, -3]
    features, gradients = (a.ravel() for a in np.meshgrid(x, by))
    # Ours computes in float and rounds once.
    for dtype, rtol in ((np.float16, 2e-3), (tf.bfloat16.as_numpy_dtype, 1e-2), (f, 1e-5),
                        (np.float64, 1e-5)):
        a, g = features.astype(dtype), gradients.astype(dtype)
        for op in ("ReluGrad", "Relu6Grad", "LeakyReluGrad"):
            r.add(op, {"gradients": g, "features": a}, rtol=rtol, feed=True)
        for op in ("EluGrad", "SeluGrad"):
            r.add(op, {"gradients": g, "outputs": a}, rtol=rtol, feed=True)
    for dtype in (np.int8, np.uint16, np.int32):
        for op in ("ReluGrad", "Relu6Grad"):
            r.add(op, {"gradients": dtype([1, 2, 100, 4, 5]), "features": dtype([0, 1, 5, 6, 7])},
                  bits=True, feed=True)


def record_scatters(r):
    z = lambda *shape: np.zeros(shape, f)  # noqa: E731
    for op in ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMin",
               "TensorScatterMax"):
        for tensor, indices, updates in ((z(0), [], z(0)), (z(0, 3), [], z(0, 3)),
                                         (z(0, 7), z(0, 1), z(0, 7)), (z(2, 3), z(0, 1), z(0, 3))):
            r.add(op, {"tensor": tensor, "indices": np.int32(indices), "updates": updates},
                  bits=True, feed=True)
        for tensor, indices, updates, error in (
                (f(-1), [], f(-2), "Updates shape must have rank at least one. Found:[]"),
                (z(2), [1], f(5), "Updates shape must have rank at least one. Found:[]"),
                (z(2, 3), 1, z(3), "Indices shape must have rank at least one. Found:[]"),
                (z(3, 2), [], z(3, 2), "Indices and updates specified for empty output shape"),
                (z(2, 0), [[0]], z(1, 0), "Indices and updates specified for empty output shape"),
                (z(2, 3), [[]], z(1, 2, 3), "Indices and updates specified for empty output shape"),
                (z(2, 3), z(7, 1), z(6, 3), "Outer dimensions of indices and update must match. "
                 "Indices shape: [7,1], updates shape:[6,3]"),
                (z(2, 3), [[0, 0, 0]], z(1), "Inner dimensions of output shape must match inner "
                 "dimensions of updates shape. Output: [2,3] updates: [1]"),
                (z(2, 3), z(7, 1), z(7, 2), "The inner 1 dimensions of output.shape=[2,3] must "
                 "match the inner 1 dimensions of updates.shape=[7,2]"),
                (z(1, 3), [0], z(3), "Dimensions [0,1) of indices[shape=[1]] = 1 must match "
                 "dimensions [0,1) of updates[shape=[3]] = 3"),
                (z(1, 1), [0], z(1), "Dimensions [1,2) of input[shape=[1,1]] must match "
                 "dimensions [1,1) of updates[shape=[1]]")):
            r.add(op, {"tensor": tensor, "indices": np.int32(indices), "updates": updates},
                  error=error)
    op = "ScatterNdNonAliasingAdd"
    # Of a vector of several indices TensorFlow adds the first row alone.
    r.add(op, {"input": f([[1, 2], [3, 4]]), "indices": np.int32([1]), "updates": f([[5, 6]])},
          feed=True)
    r.add(op, {"input": z(0), "indices": np.int32([]), "updates": z(0)}, feed=True)
    r.add(op, {"input": f(1), "indices": np.int32([]), "updates": f(2)},
          error="Output must be at least 1-D, got shape: []")


def record_unravelled(r):
    op, i = "UnravelIndex", np.int32
    for indices, dims in (([3, 0, 0, -1], [4, 2, 7]), ([-5, -13], [2, 3]), (-1, [3]), ([0], [])):
        r.add(op, {"indices": i(indices), "dims": i(dims)}, bits=True, feed=True)
    for indices, dims, error in (
            ([], [[3]], "received empty tensor indices: Tensor<type: int32 shape: [0] values: >"),
            (0, [[3]], 'The indices can only be 1-D, got "[1,1]"'),
            ([1], 3, 'The indices can only be 1-D, got "[]"'),
            ([[1]], [3], 'The indices can only be scalar or vector, got "[1,1]"'),
            ([1], [3, 0], "Input dims cannot contain a dim of zero, but dims contains zero at "
             "index 1"),
            ([1], [-2, 3], "Input dims cannot be negative. Got dim = -2 at index 0"),
            (3, [65536, 32767, 1, 2], "Input dims product is causing integer overflow: "
             "(65536 32767     1     2)"),
            ([9, 8], [3, 3], "index is out of bound as with dims")):
        r.add(op, {"indices": i(indices), "dims": i(dims)}, error=error)
    r.add(op, {"indices": np.int64([5]), "dims": np.int64([2**40, 2**40])},
          error="Input dims product is causing integer overflow: (1099511627776 1099511627776)")
    r.add(op, {"indices": np.int64([5]), "dims": np.int64([2**16, 2**16])}, bits=True, feed=True)


def record_joined_segments(r):
    op = "UnsortedSegmentJoin"
    beyond = "segment_ids are not allowed to exceed num_segments or to have negative values."
    square = [["a", "b"], ["c", "d"]]

    def add(x, ids, n, **how):
        r.add(op, {"inputs": np.array(x, object), "segment_ids": np.int32(ids),
                   "num_segments": np.int32(n)}, separator=",", **how)
    for x, ids, n in ((square, [1, 1], 3), (square, [[0, 1], [1, 0]], 2), ([], [], 2),
                      ([], [], 0), ([[], []], [0, 1], 2)):
        add(x, ids, n, bits=True, feed=True)
    for x, ids, n, error in (
            (square, [0, -1], 2, beyond), (square, [0, 2], 2, beyond), ([[], []], [0, 5], 2, beyond),
            (["a", "b"], [0, 1, 2], 2, "Segment dimension is 3 while input dimension is 1 in rank 0"),
            ([["a"], ["b"]], [[0, 1], [1, 0]], 2,
             "Segment dimension is 2 while input dimension is 2 in rank 1"),
            (["a"], [[0]], 2, "Invalid segment_id rank 2 for input with 1 dimension(s)"),
            ("a", 0, 2, "Segment_id cannot have rank 0"),
            (["a"], [0], -1, "Number of segments must be non-negative but got -1"),
            (["a"], [0], [], "Number of segments cannot be empty."),
            (["a"], [0], [2], "Number of segments must be a scalar")):
        add(x, ids, n, error=error)


def record_sparse_shapes(r):
    """Indices need not lie within the shape that is given with them."""
    big = 2**40

    def add(x, dense, target, **how):
        r.add("SparseReshape", {"input_indices": np.int64(x), "input_shape": np.int64(dense),
                                "new_shape": np.int64(target)}, **how)
    for x, dense, target in (
            ([[5], [7], [-1]], [6], [2, 3]), ([[2]], [1], []), ([[2]], [1], [1]),
            ([[3, 4]], [0, 5], [-1, 5]), ([[3, 4]], [2, 3], [6]), ([[-3, 4]], [2, 3], [3, 2]),
            ([[-7, -8]], [6, 5], [5, 3, 2]), ([[2**62, 3]], [4, 4], [16]), ([[], []], [], [1]),
            (np.zeros((0, 2)), [0, 3], [-1]), (np.zeros((0, 1)), [0], [0, big, big])):
        add(x, dense, target, bits=True, feed=True)
    for x, dense, target, error in (
            ([1], [1], [1], "Input must be a matrix."),
            ([[1]], 6, [6], "Input shape must be a vector."),
            ([[1]], [2, 3], [6], "Input tensor rank must match input shape length."),
            ([[1]], [6], 6, "Target shape should be a vector but received shape []"),
            ([[1]], [-6], [6], "Expected shape dimensions to be non-negative, got -6"),
            ([[1]], [6], [-2, 3], "size 0 must be non-negative, not -2"),
            ([[1]], [6], [-1, -1], "only one output dimension may be -1, not both 0 and 1"),
            ([[1]], [6], [0, -1], "reshape cannot infer the missing input size for an empty tensor "
             "unless all specified input sizes are non-zero"),
            ([[1]], [6], [4, -1], "Input to reshape is a SparseTensor with 6 dense values, but the "
             "requested shape requires a multiple of 4. input_shape=[6] output_shape=[4,1]"),
            ([[1, 1]], [2, 3], [5], "Input to reshape is a tensor with 6 dense values, but the "
             "requested shape has 5. input_shape=[2,3] output_shape=[5]"),
            ([[3, 4]], [0, 5], [-1], "Input tensor has 1 non zero elements but input shape ([0,5]) "
             "or output shape ([0]) is empty"),
            ([[0, 0]], [big, big], [2], "Encountered overflow when multiplying 1099511627776 with "
             "1099511627776, result: -1")):
        add(x, dense, target, error=error)


def record_written_slices(r):
    """A slice of no elements takes any value."""
    def add(x, begin, end, value, **how):
        r.add("TensorStridedSliceUpdate",
              {"input": f(x), "begin": np.int32(begin), "end": np.int32(end),
               "strides": np.int32(np.ones(len(end))), "value": f(value)}, **how)
    for x, begin, end, value in (([1, 2, 3], [1], [1], [9, 9]), ([], [0], [2], [1, 2]),
                                 ([], [0], [2], [[[1, 2]]]), ([[], []], [0], [2], np.ones((3, 3))),
                                 ([[1, 2, 3], [4, 5, 6]], [0], [0], [1, 2]),
                                 (2, [], [], [[5]])):
        add(x, begin, end, value, bits=True, feed=True)
    add(np.ones((2, 5, 1)), [0, 3, 1], [1, 3, 1], np.ones((1, 2, 1)), bits=True, feed=True,
        end_mask=2, new_axis_mask=2, shrink_axis_mask=3)
    add([1, 2, 3], [0], [2], [], error="Cannot broadcast input shape [0] into final shape [2]")
    add([1, 2, 3], [0], [2], [1, 2], ellipsis_mask=-2,
        error="Multiple ellipses in slice spec not allowed")
    for begin in ([[0]], [0, 0]):
        add([1, 2, 3], begin, [2], [1, 2], error="Expected begin, end, and strides to be 1D equal "
            "size tensors, but got shapes %s, [1], and [1] instead." %
            str(list(np.shape(begin))).replace(" ", ""))


def main():
    r = Recorder("call")
    for record in (record_text, record_gradients_of_outputs, record_cross_entropies, record_complex,
                   record_diagonals, record_scalars,
                   record_windows, record_nothing, record_parts, record_cut_gradients,
                   record_scatters, record_unravelled, record_joined_segments,
                   record_sparse_shapes, record_written_slices):
        record(r)
    r.write("cases_calls.pb")


if __name__ == "__main__":
    main()
