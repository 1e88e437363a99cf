# SPDX-License-Identifier: Apache-2.0
"""Records what TensorFlow's kernels answer where answers are easily wrong: zeros, infinities, NaN,
complex numbers, empty tensors, windows that do not fit, indices that point nowhere.

    python record_values.py
writes ../goldens/kernels/cases_values.pb; see record_kernels.py.
"""
from record_kernels import Recorder, np, tf, v1

INF, NAN = np.inf, np.nan
FLOATS = ("float32", "float64", "float16", "bfloat16")


def of(values, dtype):
    """An array of a type that NumPy may know by TensorFlow's name only."""
    return np.asarray(values).astype(tf.as_dtype(dtype).as_numpy_dtype)


def record_gradient_functions(r):
    special = [0., -0., 1, -3.75, INF, -INF, NAN, .3]
    ys, dys = [y for y in special for _ in special], special * len(special)
    for dtype in FLOATS:
        close = dict(rtol=2e-2, atol=1e-2) if dtype in FLOATS[2:] else {}
        for op in ("SqrtGrad", "RsqrtGrad", "ReciprocalGrad"):
            # 16-bit floats of TensorFlow round each product, and overflow by it.
            y = [v if abs(v) != 3.75 else 2. for v in ys]
            r.add(op, {"y": of(y, dtype), "dy": of(dys, dtype)}, **close)
        for op in ("SigmoidGrad", "TanhGrad"):
            r.add(op, {"y": of(ys, dtype), "dy": of(dys, dtype)}, **close)
    y = np.array([1 + 2j, -2 + .5j, 3j, -1.5, .25 - 4j, 1 + 1j, 2 - 2j, 0, 1j])
    dy = np.array([1 - 1j, 2j, -3, .5 + .25j, 1, 0, 4 - 1j, 0, 0])
    for dtype in ("complex64", "complex128"):
        for op in ("SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "SigmoidGrad", "TanhGrad"):
            r.add(op, {"y": of(y, dtype), "dy": of(dy, dtype)})


def record_reshape(r):
    for have, want in (([0, 3, 4], [0, -1]), ([2, 0], [-1, 0]), ([0], [-1, 0]), ([0], [-1]),
                       ([0, 3], [-1, 3]), ([0, 3], [-1, 0, 2]), ([0, 3], [-1, 0, 5]),
                       ([2, 0, 3], [0, -1, 4]), ([0, 4], [3, -1]), ([0], [-1, 0, 0])):
        for dtype in (np.int32, np.int64):
            r.add("Reshape", {"tensor": np.zeros(have, np.float32), "shape": dtype(want)},
                  bits=True, feed=dtype is np.int64)
    for have, want, text in (([2, 3], [-1, 0], "has 0"), ([], [-1, 0], "has 0"),
                             ([2, 3], [4, -1], "multiple of 4")):
        r.add("Reshape", {"tensor": np.zeros(have, np.float32), "shape": np.int32(want)}, text)


def record_strided_slices(r):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for masks in (dict(shrink_axis_mask=1, begin_mask=1), dict(shrink_axis_mask=2, begin_mask=2),
                  dict(shrink_axis_mask=3, begin_mask=3, end_mask=3),
                  dict(shrink_axis_mask=4, begin_mask=7, end_mask=3)):
        sliced = {"begin": np.int32([1, 2, 3]), "end": np.int32([2, 3, 4]),
                  "strides": np.int32([1, 1, 1])}
        r.add("StridedSlice", {"input": x, **sliced}, bits=True, **masks)
        with tf.Graph().as_default(), tf.compat.v1.Session() as s:
            dy = s.run(tf.raw_ops.StridedSlice(input=x, **sliced, **masks))
        r.add("StridedSliceGrad", {"shape": np.int32(x.shape), **sliced, "dy": dy}, bits=True,
              **masks)
    r.add("StridedSlice", {"input": x, "begin": np.int32([2]), "end": np.int32([3]),
                           "strides": np.int32([1])}, "slice index 2", shrink_axis_mask=1,
          begin_mask=1)


def record_sets(r):
    # TensorFlow tells the zeros of 16-bit floats apart by their bits; we do not.
    for dtype in ("float32", "float64"):
        for x, y in (([-0., 1, NAN, 0., 1], [0.]), ([0., -0., NAN, NAN, INF], [NAN, INF])):
            x, y = of(x, dtype), of(y, dtype)
            r.add("ListDiff", {"x": x, "y": y}, bits=True)
            r.add("Unique", {"x": x}, bits=True)
            r.add("UniqueWithCounts", {"x": x}, bits=True)
            r.add("UniqueV2", {"x": x, "axis": np.int64([0])}, bits=True)
            r.add("UniqueV2", {"x": x, "axis": np.int64([])}, bits=True)
    rows = np.float32([[0., NAN], [-0., NAN], [1, 2], [-0., 1], [0, 1], [1, 2]])
    for axis in (0, 1):
        r.add("UniqueV2", {"x": rows, "axis": np.int64([axis])}, bits=True)
    r.add("ListDiff", {"x": np.array([True, False]), "y": np.array([True])}, bits=True)
    words = np.array([b"a", b"", b"a", b"b"])
    r.add("UniqueWithCounts", {"x": words}, bits=True)
    r.add("ListDiff", {"x": words, "y": np.array([b"a"])}, bits=True)


def record_extremes(r):
    lines = np.array([[NAN, 1, 2, -1], [1, NAN, 2, -1], [NAN, NAN, NAN, NAN], [-INF, NAN, 1, INF],
                      [NAN, -INF, -INF, NAN], [INF, NAN, INF, INF], [NAN, INF, 3, 3],
                      [0., -0., 0., NAN], [3, NAN, 3, NAN]])
    for dtype in FLOATS:
        for op in ("ArgMax", "ArgMin"):
            for axis in (0, 1):
                r.add(op, {"input": of(lines, dtype), "dimension": np.int32(axis)}, bits=True)
    r.add("TopKV2", {"input": np.zeros(32768, np.float32), "k": np.int32(1)},
          "must be <= 32767", index_type=tf.int16)
    r.add("TopKV2", {"input": np.arange(40, dtype=np.float32), "k": np.int16(2)}, bits=True,
          index_type=tf.int16)


def record_windows(r):
    for size, stride, window in ((2, 3, 3), (2, 3, 4), (1, 5, 4), (3, 4, 5)):
        x = np.ones([1, size, size, 2], np.float32)
        filter_ = np.ones([window, window, 2, 1], np.float32)
        attrs = dict(strides=[1, stride, stride, 1], padding="VALID", feed=True)
        ksize = [1, window, window, 1]
        r.add("MaxPool", {"input": x}, ksize=ksize, **attrs)
        r.add("AvgPool", {"value": x}, ksize=ksize, **attrs)
        r.add("MaxPoolWithArgmax", {"input": x}, ksize=ksize, **attrs)
        r.add("Conv2D", {"input": x, "filter": filter_}, **attrs)
        r.add("DepthwiseConv2dNative", {"input": x, "filter": filter_}, **attrs)
        none = np.zeros([1, 0, 0, 1], np.float32)
        # TensorFlow's Conv2DBackpropFilter ends the process here.
        r.add("Conv2DBackpropInput", {"input_sizes": np.int32(x.shape), "filter": filter_,
                                      "out_backprop": none}, **attrs)
    for dtype in FLOATS:
        for values in ([-INF, -INF, NAN, -INF], [-INF] * 4, [NAN, 1, NAN, -INF], [NAN] * 4):
            for window in (1, 2):
                r.add("MaxPool", {"input": of(values, dtype).reshape(1, 2, 2, 1)}, bits=True,
                      ksize=[1, window, window, 1], strides=[1, 1, 1, 1], padding="VALID")


def record_empty(r):
    f = np.float32
    r.add("FusedBatchNormV3", {"x": np.zeros([0, 2, 2, 3], f), "scale": np.ones(3, f),
                               "offset": np.ones(3, f), "mean": np.zeros(0, f),
                               "variance": np.zeros(0, f)}, fetched=3, is_training=True)
    r.add("FusedBatchNormV3", {"x": np.zeros([0, 2, 2, 3], f), "scale": np.ones(3, f),
                               "offset": np.ones(3, f), "mean": np.ones(3, f),
                               "variance": np.ones(3, f)}, fetched=3, is_training=True,
          exponential_avg_factor=.5)
    for dtype in ("float32", "float64", "int32", "complex64", "complex128"):
        for op in ("Mean", "Sum", "Prod"):
            r.add(op, {"input": of(np.zeros([0, 2]), dtype), "axis": np.int32([0])})
    r.add("GatherV2", {"params": np.zeros([3, 0], f), "indices": np.int32([5]),
                       "axis": np.int32(0)}, feed=True)
    r.add("GatherV2", {"params": np.zeros([3, 2, 0], f), "indices": np.int32([5, -1]),
                       "axis": np.int32(1)}, feed=True)


def record_full_indices(r):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for dtype in (np.int16, np.int32, np.int64):
        r.add("GatherNd", {"params": x, "indices": dtype([[0, 1], [2, 3]])}, bits=True)
        r.add("ScatterNd", {"indices": dtype([[1], [0], [1]]), "updates": x[:3],
                            "shape": dtype([4, 4])}, bits=True, feed=True)
    for dtype in (np.int16, np.int32):
        r.add("UnsortedSegmentSum", {"data": x, "segment_ids": dtype([1, 0, 1]),
                                     "num_segments": np.int32(2)})
    r.add("GatherNd", {"params": x, "indices": np.int32([[[0, 1], [2, 7]], [[-1, 0], [2, 2]]])},
          bits=True, feed=True, bad_indices_policy="IGNORE")
    r.add("GatherNd", {"params": x, "indices": np.int32([[5], [1]])}, bits=True, feed=True,
          bad_indices_policy="IGNORE")
    r.add("ScatterNd", {"indices": np.int32([[1], [9], [-1], [0]]), "updates": x[[0, 1, 2, 0]],
                        "shape": np.int32([2, 4])}, bits=True, feed=True,
          bad_indices_policy="IGNORE")
    for op in ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterMax"):
        r.add(op, {"tensor": x, "indices": np.int32([[1], [9], [0]]), "updates": -x}, bits=True,
              feed=True, bad_indices_policy="IGNORE")
        r.add(op, {"tensor": x, "indices": np.int32([[1], [2]]),
                   "updates": np.ones([4, 2], np.float32)},
              "Outer dimensions of indices and update must match")
        r.add(op, {"tensor": x, "indices": np.int32([[1], [9]]), "updates": x[:2]},
              "indices[1] = [9] does not index into shape [3,4]")
    r.add("GatherNd", {"params": np.float32([1, 2, 3]), "indices": np.int32([[[0], [7]]])},
          "indices[0,1] = [7] does not index into param shape [3]")
    r.add("GatherNd", {"params": np.zeros([0, 3], np.float32), "indices": np.int32([[5]])},
          "Requested more than 0 entries, but params is empty.  Params shape: [0,3]")


def record_pools_by_inputs(r):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 5, 4, 2)).astype(np.float32)
    for padding in ("SAME", "VALID"):
        window = {"ksize": np.int32([1, 2, 3, 1]), "strides": np.int32([1, 2, 1, 1])}
        lists = {k: v.tolist() for k, v in window.items()}
        with tf.Graph().as_default(), tf.compat.v1.Session() as s:
            out, where = s.run(tf.raw_ops.MaxPoolWithArgmax(input=x, padding=padding, **lists))
        g = rng.normal(size=out.shape).astype(np.float32)
        r.add("MaxPoolV2", {"input": x, **window}, padding=padding)
        r.add("MaxPoolGradV2", {"orig_input": x, "orig_output": out, "grad": g, **window},
              padding=padding)
        for batch in (False, True):
            places = where + (np.arange(2).reshape(2, 1, 1, 1) * 40 if batch else 0)
            r.add("MaxPoolGradWithArgmax", {"input": x, "grad": g, "argmax": places},
                  padding=padding, include_batch_in_index=batch, **lists)
    depth = np.arange(16, dtype=np.float32).reshape(1, 2, 2, 4)
    r.add("MaxPoolV2", {"input": depth, "ksize": np.int32([1, 1, 1, 2]),
                        "strides": np.int32([1, 1, 1, 2])}, padding="VALID")
    for ksize, strides, text in (([1, 2, 2], [1, 2, 2, 1], "must specify 4 dimensions"),
                                 ([1, 2, 2, 1], [1, 0, 2, 1], "Stride must be > 0, but got 0"),
                                 ([2, 2, 2, 1], [1, 2, 2, 1], "not yet supported on the batch"),
                                 ([1, 2, 1, 2], [1, 1, 1, 2], "exactly one of pooling across depth"),
                                 ([1, 1, 1, 3], [1, 1, 1, 3], "evenly divide the input depth"),
                                 ([1, 1, 1, 2], [1, 1, 1, 1], "window to equal the depth stride")):
        r.add("MaxPoolV2", {"input": depth, "ksize": np.int32(ksize),
                            "strides": np.int32(strides)}, text, padding="VALID")


def record_ranges(r):
    for dtype in ("int32", "int64", "float32", "float64", "bfloat16"):
        for starts, limits, deltas in (([0, 5, 8], [3, 5, 2], [1, 1, -2]), (0, [2, 3], 1),
                                       (0, 5, 2), ([], [], 1), ([3, 3], [1, 9], [1, 4])):
            r.add("RaggedRange", {"starts": of(starts, dtype), "limits": of(limits, dtype),
                                  "deltas": of(deltas, dtype)}, bits=True,
                  Tsplits=tf.int32 if dtype == "int32" else tf.int64)
    r.add("RaggedRange", {"starts": of([0, 1], "float32"), "limits": of([1, 0], "float32"),
                          "deltas": of([.3, -.25], "float32")})
    for starts, deltas, text in (([0], [0], "Requires delta != 0"),
                                 ([[0]], [1], "must be a scalar or vector"),
                                 ([0, 1], [1], "must have the same shape")):
        r.add("RaggedRange", {"starts": np.int32(starts), "limits": np.int32([2]),
                              "deltas": np.int32(deltas)}, text)


def record_slice_updates(r):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    rows = {"begin": np.int32([0, 0]), "end": np.int32([2, 4]), "strides": np.int32([1, 1])}
    for value in ([1., 2, 3, 4], [[1.], [2]], [[9.]], 9., [[[1., 2, 3, 4]]],
                  [[1., 2, 3, 4], [5, 6, 7, 8]]):
        r.add("TensorStridedSliceUpdate", {"input": x, **rows, "value": np.float32(value)},
              bits=True)
    r.add("TensorStridedSliceUpdate", {"input": x, **rows, "value": np.ones(3, np.float32)},
          "Cannot broadcast input shape [3] into final shape [2,4]")
    r.add("TensorStridedSliceUpdate",
          {"input": x, "begin": np.int32([1, 0, 0]), "end": np.int32([2, 0, 4]),
           "strides": np.int32([1, 1, 2]), "value": np.float32([[7, 8]])}, bits=True,
          shrink_axis_mask=1, new_axis_mask=2)
    r.add("TensorStridedSliceUpdate",
          {"input": x, "begin": np.int32([3, 2]), "end": np.int32([0, 0]),
           "strides": np.int32([-2, -1]), "value": np.float32([[7, 8]])}, bits=True)
    r.add("ParallelConcat", {"values": [np.int32([[1, 2]]), np.int32([[3, 4]])]}, bits=True,
          shape=[2, 2])
    r.add("ScatterNdNonAliasingAdd", {"input": x, "indices": np.int32([[0], [2], [0]]),
                                      "updates": -x})


def record_products(r):
    for x, y, product in (("int8", "int8", tf.int32), ("uint8", "int8", tf.int32),
                          ("bfloat16", "int8", tf.bfloat16), ("uint8", "bfloat16", tf.bfloat16),
                          ("float32", "float32", tf.float32), ("complex64",) * 2 + (tf.complex64,)):
        for adj in (False, True):
            a, b = of([[[1, 2, 3], [3, 4, 5]]], x), of([[1, 2], [3, 100], [7, 8]], y)
            r.add("BatchMatMulV3", {"x": a, "y": b.T if adj else b}, Tout=product, adj_y=adj)
    a = [0, 1, 2, 3, 1, 1, 1.5, -1, 1, 2, 4, 1, 0, 3, 2, 5]
    x = [1, 1, 2.5, .3, -1, -.5, 1, 1, 100, 1e-3, 12, 0, 2.2, 40, 9.99, .7]
    for dtype in ("float32", "float64"):
        r.add("Polygamma", {"a": of(a, dtype), "x": of(x, dtype)})


def record_volumes(r):
    rng = np.random.default_rng(21)
    raw = tf.raw_ops

    def made(dtype, *shape):
        return of(rng.normal(size=shape), dtype)

    for dtype in ("float32", "float64", "float16", "bfloat16"):
        # bfloat16 is added up as such there.
        loose = dict(rtol=2e-2, atol=.15) if "16" in dtype else dict(rtol=1e-4, atol=1e-5)
        x, k = made(dtype, 2, 3, 5, 4, 3), made(dtype, 2, 3, 2, 3, 4)
        for padding in ("SAME", "VALID"):
            window = dict(strides=[1, 1, 2, 1, 1], padding=padding)
            r.add("Conv3D", {"input": x, "filter": k}, **window, **loose)
            g = made(dtype, *raw.Conv3D(input=np.zeros(x.shape, np.float32),
                                        filter=np.zeros(k.shape, np.float32), **window).shape)
            r.add("Conv3DBackpropInputV2", {"input_sizes": np.int32(x.shape), "filter": k,
                                            "out_backprop": g}, **window, **loose)
            if dtype != "float16":  # TensorFlow has it for GPUs only
                r.add("Conv3DBackpropFilterV2", {"input": x, "filter_sizes": np.int32(k.shape),
                                                 "out_backprop": g}, **window, **loose)
    f = np.float32
    r.add("Conv3DBackpropInputV2", {"input_sizes": np.int64([1, 2, 2, 2, 1]),
                                    "filter": np.ones((1, 2, 1, 1, 2), f),
                                    "out_backprop": np.ones((1, 2, 2, 2, 2), f)},
          strides=[1] * 5, padding="SAME")
    ones = np.ones((1, 2, 2, 2, 2), f)
    for k, strides, error in (((1, 1, 1, 3, 4), [1] * 5, "must be evenly divisible"),
                              ((1, 1, 1, 1, 4), [1] * 5, "Number of channels in filter"),
                              ((1, 4, 1, 2, 4), [1] * 5, "output size would be negative"),
                              ((1, 4, 1, 2), [1] * 5, "filter must be 5-dimensional")):
        r.add("Conv3D", {"input": ones, "filter": np.ones(k, f)}, strides=strides, padding="VALID",
              error=error)
    for dtype in ("float32", "bfloat16"):
        loose = dict(rtol=2e-2, atol=5e-2) if "16" in dtype else {}
        x = made(dtype, 2, 4, 3, 5, 2)
        tied = of(rng.integers(0, 3, (2, 4, 3, 5, 2)), dtype)
        for padding in ("SAME", "VALID"):
            window = dict(ksize=[1, 2, 2, 3, 1], strides=[1, 1, 2, 1, 1], padding=padding)
            r.add("AvgPool3D", {"input": x}, **window, **loose)
            r.add("MaxPool3D", {"input": x}, **window, **loose)
            y = raw.MaxPool3D(input=tf.constant(tied), **window).numpy()
            g = made(dtype, *y.shape)
            r.add("MaxPool3DGrad", {"orig_input": tied, "orig_output": y, "grad": g}, **window,
                  **loose)
            r.add("MaxPool3DGradGrad", {"orig_input": tied, "orig_output": y, "grad": x}, **window,
                  **loose)
            r.add("AvgPool3DGrad", {"orig_input_shape": np.int32(x.shape), "grad": g}, **window,
                  **loose)
    for ksize, strides, error in (([1, 1, 1, 1, 2], [1] * 5, "not yet supported on the depth"),
                                  ([2, 1, 1, 1, 1], [1] * 5, "not yet supported on the batch"),
                                  ([1, 1, 4, 1, 1], [1] * 5, "output size would be negative")):
        r.add("MaxPool3D", {"input": ones}, ksize=ksize, strides=strides, padding="VALID",
              error=error)
    r.add("MaxPool3DGrad", {"orig_input": ones, "orig_output": ones, "grad": ones[:, :1]},
          ksize=[1] * 5, strides=[1] * 5, padding="VALID", error="Expected grad shape to be")


def record_pools_twice(r):
    rng = np.random.default_rng(22)
    for dtype in ("float32", "float64", "int32", "int64", "uint8", "float16"):
        x, ddx = (of(rng.integers(0, 5, (2, 5, 4, 3)), dtype) for _ in range(2))
        for padding in ("SAME", "VALID"):
            lists = dict(ksize=[1, 2, 3, 1], strides=[1, 2, 1, 1])
            y = tf.raw_ops.MaxPool(input=tf.constant(x), padding=padding, **lists).numpy()
            inputs = {"orig_input": x, "orig_output": y, "grad": ddx}
            r.add("MaxPoolGradGrad", inputs, padding=padding, **lists)
            r.add("MaxPoolGradGradV2", {**inputs, **{k: np.int32(v) for k, v in lists.items()}},
                  padding=padding)


def record_zeta(r):
    x = [1, 2, 2, 2, .5, 2, 2.5, 3, 2, 2, 2, 50, 3, 3, 2, 2, 1.5, 2, np.inf, 2, 12, 7.5]
    q = [1, 1, 0, -1, 1, -.5, -.5, -1.5, 1e10, 2.5, np.nan, .1, 4, .3, np.inf, -np.inf, -2, -3.25, 2,
         1e-15, 11, .2]
    a = [0, 1, 2, 3, 1, 1, 1.5, -1, 0, 5, 10, 20, 1, 2, 0, 3, 1]
    p = [0, 0, 0, 0, -1, -2.5, 1, 1, -1, 1.5, 2, 3, 1e15, -3.3, -1.5, -.2, np.inf]
    for dtype in ("float32", "float64"):
        r.add("Zeta", {"x": of(x, dtype), "q": of(q, dtype)}, rtol=1e-4)
        r.add("Zeta", {"x": of([[2], [3]], dtype), "q": of([.5, 1.5, 9], dtype)})
        r.add("Polygamma", {"a": of(a, dtype), "x": of(p, dtype)}, rtol=1e-4)


def record_extremal_updates(r):
    f = np.float32
    v = f([[1, 8, 3], [4, 5, 6]])
    by = {"indices": np.int32([[0, 1], [1, 0], [0, 1]]), "updates": f([7, 9, 2])}
    for op in ("ScatterNdMin", "ScatterNdMax"):
        r.add_reference_update(op, {"ref": v}, by)
        r.add_update("Resource" + op, {"ref": v}, by)
    accum, linear = f([[.5, .5]] * 3), f([[.1, -2]] * 3)
    r.add_reference_update("SparseApplyFtrlV2", {"var": f([[1, 2], [3, 4], [5, 6]]),
                                                 "accum": accum, "linear": linear},
                           {"grad": f([[.1, -.2], [.3, .4]]), "indices": np.int32([2, 0]),
                            "lr": f(.3), "l1": f(.01), "l2": f(.02), "l2_shrinkage": f(.1),
                            "lr_power": f(-.5)})


def record_program(r, op, build):
    """One step of a graph of several nodes: build() gives what is fetched."""
    with tf.Graph().as_default() as graph:
        fetches = build()
        n = r.names[op] = r.names.get(op, 0) + 1
        case = r.set.case.add(name=f"{op}_{r.tag}_{n}", op=op, family=5, compare="bits",
                              dtype=fetches[0].dtype.base_dtype.name,
                              graph_def=graph.as_graph_def().SerializeToString())
        for _ in range(2):  # nothing stays behind
            step = case.step.add()
            step.fetch.extend(t.name for t in fetches)
            with v1.Session(graph=graph) as session:
                step.expected.extend(
                    tf.make_tensor_proto(value, t.dtype.base_dtype).SerializeToString()
                    for t, value in zip(fetches, session.run(fetches)))
        print(case.name, op)


def record_step_references(r):
    raw = tf.raw_ops

    def two_stacks():
        first, second = (raw.Stack(elem_type=tf.float32, stack_name="same") for _ in range(2))
        with tf.control_dependencies([raw.StackPush(handle=first, elem=tf.constant([1., 2.]))]):
            pushed = raw.StackPush(handle=first, elem=tf.constant(5.))
        with tf.control_dependencies([pushed, raw.StackPush(handle=second, elem=tf.constant(7.))]):
            last = raw.StackPop(handle=first, elem_type=tf.float32)
        with tf.control_dependencies([last]):
            before = raw.StackPop(handle=first, elem_type=tf.float32)
        with tf.control_dependencies([before]):
            other = raw.StackPop(handle=second, elem_type=tf.float32)
        with tf.control_dependencies([other]):
            closed = raw.StackClose(handle=first)
        with tf.control_dependencies([closed]):
            return [last, before, tf.identity(other)]

    def temporary():
        ref = raw.TemporaryVariable(shape=[2], dtype=tf.float32, var_name="t")
        ref = v1.assign(ref, [4., 5.])
        ref = v1.assign_add(ref, [6., 7.])
        return [raw.DestroyTemporaryVariable(ref=ref, var_name="t")]

    record_program(r, "StackPop", two_stacks)
    record_program(r, "TemporaryVariable", temporary)


def record_updates(r):
    f = np.float32
    v, accum, linear = f([[1, 2], [3, 4], [5, 6]]), f([[.5, .5]] * 3), f([[.1, -2]] * 3)
    for power in (-.5, -.25):
        r.add_update("ResourceSparseApplyFtrlV2", {"var": v, "accum": accum, "linear": linear},
                     {"grad": f([[.1, -.2], [.3, .4], [0, 0]]), "indices": np.int32([2, 0, 2]),
                      "lr": f(.3), "l1": f(.01), "l2": f(.02), "l2_shrinkage": f(.1),
                      "lr_power": f(power)})
        r.add_update("ResourceApplyFtrlV2", {"var": v, "accum": accum, "linear": linear},
                     {"grad": v / 7 - f(.5), "lr": f(.3), "l1": f(.01), "l2": f(.02),
                      "l2_shrinkage": f(.1), "lr_power": f(power)})


def main():
    recorder = Recorder("values")
    for record in (record_gradient_functions, record_reshape, record_strided_slices, record_sets,
                   record_extremes, record_windows, record_empty, record_full_indices,
                   record_pools_by_inputs, record_ranges, record_slice_updates, record_products,
                   record_updates, record_volumes, record_pools_twice, record_zeta,
                   record_extremal_updates, record_step_references):
        record(recorder)
    recorder.write("cases_values.pb")


if __name__ == "__main__":
    main()
