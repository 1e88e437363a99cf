# SPDX-License-Identifier: Apache-2.0
"""Records TensorFlow's gradients of ops, as cases for tests/gradient_conformance.

    python record_gradients.py
writes ../goldens/gradients/cases_later.pb (golden.proto beside the kernels' cases says how it is
read) and prints one line per case: loss = sum(w0 * y) for the first output y of one node, and
the gradients with respect to its inputs x0, x1, ...
"""
import os

from record_kernels import golden_module, np, tf, v1

GRADIENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "goldens", "gradients")


def record(cases, name, op, inputs, rest, rtol, atol, **attrs):
    """One case: `inputs` are those to take gradients of, `rest` the other inputs of the node."""
    rng = np.random.default_rng(7)
    with tf.Graph().as_default() as graph:
        xs = {key: tf.constant(value, name=f"x{i}")
              for i, (key, value) in enumerate(inputs.items())}
        made = getattr(tf.raw_ops, op)(
            **xs, **{key: tf.constant(value) for key, value in rest.items()}, **attrs)
        y = made[0]
        w = tf.constant(rng.normal(size=y.shape), y.dtype, name="w0")
        loss = tf.identity(tf.reduce_sum(y * w), name="loss")
        fetches = [loss] + tf.gradients(loss, list(xs.values()))
        case = cases.case.add(name=name, op=op, family=2, compare="close", rtol=rtol, atol=atol,
                              dtype=y.dtype.name,
                              graph_def=graph.as_graph_def().SerializeToString())
        step = case.step.add()
        step.fetch.extend(t.name for t in fetches)
        # The graph optimizers fold some constants into graphs that are wrong.
        config = v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with v1.Session(graph=graph, config=config) as session:
            for t, value in zip(fetches, session.run(fetches)):
                step.expected.append(tf.make_tensor_proto(value, t.dtype).SerializeToString())
                case.inferred_shape.append(t.shape.as_proto().SerializeToString())
        print(name, op, case.dtype)


def record_batch_norm(cases):
    rng = np.random.default_rng(5)
    f = np.float32
    inputs = {"x": rng.normal(1, 2, (2, 3, 4, 3)).astype(f), "scale": f([.5, 1, 2]),
              "offset": f([1, -1, .3])}
    given = {"mean": f([.4, .9, 1.3]), "variance": f([.7, 2, 3])}
    none = {key: np.zeros(0, f) for key in given}
    for op in ("FusedBatchNorm", "FusedBatchNormV2"):
        for training in (True, False):
            record(cases, f"{op}_{'train' if training else 'infer'}", op, inputs,
                   none if training else given, 1e-4, 1e-5, epsilon=.01, is_training=training)


def record_graph(cases, name, op, inputs, build):
    """One case of a small graph: build(*inputs) gives the real tensor whose weighted sum is the loss."""
    rng = np.random.default_rng(7)
    with tf.Graph().as_default() as graph:
        xs = [tf.constant(value, name=f"x{i}") for i, value in enumerate(inputs)]
        y = build(*xs)
        w = tf.constant(rng.normal(size=y.shape), y.dtype, name="w0")
        loss = tf.identity(tf.reduce_sum(y * w), name="loss")
        fetches = [loss] + tf.gradients(loss, xs)
        case = cases.case.add(name=name, op=op, family=2, compare="close", rtol=1e-4, atol=1e-5,
                              dtype=xs[0].dtype.name,
                              graph_def=graph.as_graph_def().SerializeToString())
        step = case.step.add()
        step.fetch.extend(t.name for t in fetches)
        config = v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with v1.Session(graph=graph, config=config) as session:
            for t, value in zip(fetches, session.run(fetches)):
                step.expected.append(tf.make_tensor_proto(value, t.dtype).SerializeToString())
                case.inferred_shape.append(t.shape.as_proto().SerializeToString())
        print(name, op, case.dtype)


def parts(z):
    """Both parts of complex numbers, which losses cannot be."""
    return tf.stack([tf.math.real(z), tf.math.imag(z)])


def record_complex(cases):
    a = np.complex64([[1 + 2j, -.5 + 1j, .3 - .7j], [2 - 1j, 1j, -1.5]])
    b = np.complex64([.5 - 1j, 2 + .25j, -1 + 1j])
    binary = {"Mul": "multiply", "RealDiv": "divide", "Pow": "pow", "DivNoNan": "divide_no_nan",
              "Sub": "subtract", "AddV2": "add"}
    for op, name in binary.items():
        record_graph(cases, f"{op}_complex", op, [a, b],
                     lambda x, y, name=name: parts(getattr(tf.math, name)(x, y)))
    for op in ("Exp", "Log", "Log1p", "Expm1", "Square", "Sqrt", "Rsqrt", "Reciprocal", "Sigmoid",
               "Tanh", "Sin", "Cos", "Conj", "Neg"):
        record_graph(cases, f"{op}_complex", op, [a + np.complex64(.1 + .1j)],
                     lambda x, op=op: parts(getattr(tf.raw_ops, op)(
                         **{"input" if op == "Conj" else "x": x})))
    for ta in (False, True):
        for tb in (False, True):
            record_graph(cases, f"MatMul_complex_{int(ta)}{int(tb)}", "MatMul",
                         [a.T if ta else a, b.reshape(1, 3) if tb else b.reshape(3, 1)],
                         lambda x, y, ta=ta, tb=tb: parts(tf.raw_ops.MatMul(
                             a=x, b=y, transpose_a=ta, transpose_b=tb)))
    f = np.float32
    record_graph(cases, "Complex_parts", "Complex", [f([[1, 2, 3]]), f([[4], [5]])],
                 lambda x, y: parts(tf.raw_ops.Complex(real=x, imag=y) ** 2))


def record_choices(cases):
    f = np.float32
    wide = np.array([[True], [False], [True]])
    for x, y in ((f([1, 2]), f([3, 4])), (f(1), f([[3, 4]])), (f([[1], [2], [3]]), f(5))):
        record_graph(cases, f"SelectV2_wide_condition_{x.ndim}{y.ndim}", "SelectV2", [x, y],
                     lambda a, b: tf.raw_ops.SelectV2(condition=tf.constant(wide), t=a, e=b))
    record_graph(cases, "ClipByValue_bounds", "ClipByValue",
                 [f([[-3, -1, 0], [.5, 2, 9]]), f([[-1, -1, .25], [0, 0, 1]]), f(1)],
                 lambda x, low, high: tf.raw_ops.ClipByValue(
                     t=x, clip_value_min=low, clip_value_max=high))
    logits = f([[1, 2, .5], [-1, 0, 3]])
    labels = f([[.2, .3, .5], [0, 1, 0]])

    def twice(pair):
        return tf.concat([pair[0][:, None], pair[1] * tf.constant(f([[1, -2, 3]]))], 1)
    record_graph(cases, "SoftmaxCrossEntropy_both_outputs", "SoftmaxCrossEntropyWithLogits",
                 [logits], lambda x: twice(tf.raw_ops.SoftmaxCrossEntropyWithLogits(
                     features=x, labels=tf.constant(labels))))
    record_graph(cases, "SparseSoftmaxCrossEntropy_both_outputs",
                 "SparseSoftmaxCrossEntropyWithLogits", [logits],
                 lambda x: twice(tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
                     features=x, labels=tf.constant([2, 1]))))
    record_graph(cases, "SparseSoftmaxCrossEntropy_backprop",
                 "SparseSoftmaxCrossEntropyWithLogits", [logits],
                 lambda x: tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
                     features=x, labels=tf.constant([2, 1]))[1])
    image = np.random.default_rng(2).normal(size=(1, 4, 5, 2)).astype(f)
    record_graph(cases, "MaxPool_explicit_padding", "MaxPool", [image],
                 lambda x: tf.raw_ops.MaxPool(
                     input=x, ksize=[1, 2, 3, 1], strides=[1, 2, 1, 1], padding="EXPLICIT",
                     explicit_paddings=[0, 0, 1, 0, 0, 2, 0, 0]))
    record_graph(cases, "Sqrt_behind_a_mask", "Sqrt", [f([0, 4, 0, 9])],
                 lambda x: tf.where(x > 0, tf.sqrt(x) + tf.math.rsqrt(x) + 1 / x, 0.))


def record_second(cases):
    """Gradients of gradients' ops, by all that they take."""
    f = np.float32
    rng = np.random.default_rng(11)
    x, dy = f(rng.uniform(.2, 2, (3, 4))), f(rng.normal(size=(3, 4)))
    signed = f(rng.normal(size=(3, 4)))
    for op in ("SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad"):
        record_graph(cases, f"{op}_second", op, [x, dy],
                     lambda y, g, op=op: getattr(tf.raw_ops, op)(y=y, dy=g))
    z = np.complex64([[1 + 2j, -.5 + 1j], [.3 - .7j, 2 - 1j]])
    for op in ("SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad"):
        record_graph(cases, f"{op}_second_complex", op, [z, z[::-1] + np.complex64(.5)],
                     lambda y, g, op=op: parts(getattr(tf.raw_ops, op)(y=y, dy=g)))
    for op in ("ReluGrad", "Relu6Grad", "SoftplusGrad"):
        record_graph(cases, f"{op}_second", op, [dy, signed * 4],
                     lambda g, a, op=op: getattr(tf.raw_ops, op)(gradients=g, features=a))
    record_graph(cases, "LeakyReluGrad_second", "LeakyReluGrad", [dy, signed],
                 lambda g, a: tf.raw_ops.LeakyReluGrad(gradients=g, features=a, alpha=.3))
    for op in ("EluGrad", "SeluGrad"):
        record_graph(cases, f"{op}_second", op, [dy, signed],
                     lambda g, a, op=op: getattr(tf.raw_ops, op)(gradients=g, outputs=a))
    for op in ("Sigmoid", "Tanh", "Elu", "Selu", "Softplus", "Sqrt", "Rsqrt"):
        def twice(a, op=op):
            key = "x" if op in ("Sigmoid", "Tanh", "Sqrt", "Rsqrt") else "features"
            y = getattr(tf.raw_ops, op)(**{key: a})
            return tf.gradients(y, a)[0] ** 2
        record_graph(cases, f"{op}_penalty", op, [x], twice)


def record_windows(cases):
    f = np.float32
    rng = np.random.default_rng(12)
    image, small = f(rng.normal(size=(2, 6, 5, 3))), f(rng.normal(size=(2, 3, 3, 4)))
    kernel = f(rng.normal(size=(3, 2, 3, 4)))
    conv = dict(strides=[1, 2, 2, 1], padding="SAME")
    record_graph(cases, "Conv2DBackpropInput_second", "Conv2DBackpropInput", [kernel, small],
                 lambda k, g: tf.raw_ops.Conv2DBackpropInput(
                     input_sizes=[2, 6, 5, 3], filter=k, out_backprop=g, **conv))
    record_graph(cases, "Conv2DBackpropFilter_second", "Conv2DBackpropFilter", [image, small],
                 lambda x, g: tf.raw_ops.Conv2DBackpropFilter(
                     input=x, filter_sizes=[3, 2, 3, 4], out_backprop=g, **conv))
    deep = f(rng.normal(size=(2, 3, 3, 6)))
    kernel = f(rng.normal(size=(3, 2, 3, 2)))
    record_graph(cases, "DepthwiseInput_second", "DepthwiseConv2dNativeBackpropInput",
                 [kernel, deep], lambda k, g: tf.raw_ops.DepthwiseConv2dNativeBackpropInput(
                     input_sizes=[2, 6, 5, 3], filter=k, out_backprop=g, **conv))
    record_graph(cases, "DepthwiseFilter_second", "DepthwiseConv2dNativeBackpropFilter",
                 [image, deep], lambda x, g: tf.raw_ops.DepthwiseConv2dNativeBackpropFilter(
                     input=x, filter_sizes=[3, 2, 3, 2], out_backprop=g, **conv))
    pool = dict(ksize=[1, 2, 2, 1], **conv)
    pooled = f(rng.normal(size=(2, 3, 3, 3)))
    record_graph(cases, "AvgPoolGrad_second", "AvgPoolGrad", [pooled],
                 lambda g: tf.raw_ops.AvgPoolGrad(orig_input_shape=[2, 6, 5, 3], grad=g, **pool))
    record_graph(cases, "MaxPool_penalty", "MaxPoolGrad", [image], lambda x: tf.gradients(
        tf.raw_ops.MaxPool(input=x ** 2, **pool), x)[0] ** 2)
    record_graph(cases, "BiasAddGrad_second", "BiasAddGrad", [image],
                 lambda g: tf.raw_ops.BiasAddGrad(out_backprop=g))
    record_graph(cases, "BiasAddGrad_NCHW_second", "BiasAddGrad", [image],
                 lambda g: tf.raw_ops.BiasAddGrad(out_backprop=g, data_format="NCHW"))
    record_graph(cases, "BiasAddV1", "BiasAddV1", [image, f([1, 2, 3])],
                 lambda x, b: tf.raw_ops.BiasAddV1(value=x, bias=b))
    for corners, half in ((True, False), (False, True)):
        kinds = dict(size=[9, 4], align_corners=corners, half_pixel_centers=half)
        record_graph(cases, f"ResizeBilinear_{int(corners)}{int(half)}", "ResizeBilinear", [image],
                     lambda x: tf.raw_ops.ResizeBilinear(images=x, **kinds))
        record_graph(cases, f"ResizeNearest_{int(corners)}{int(half)}", "ResizeNearestNeighbor",
                     [image], lambda x: tf.raw_ops.ResizeNearestNeighbor(images=x, **kinds))
    windows = dict(ksize=[1, 2, 3, 1], strides=[1, 2, 1, 1])
    record_graph(cases, "MaxPoolV2", "MaxPoolV2", [image], lambda x: tf.raw_ops.MaxPoolV2(
        input=x, padding="SAME", **windows))
    for batch in (False, True):
        record_graph(cases, f"MaxPoolWithArgmax_{int(batch)}", "MaxPoolWithArgmax", [image],
                     lambda x: tf.raw_ops.MaxPoolWithArgmax(
                         input=x, padding="VALID", include_batch_in_index=batch, **windows)[0])
    volume = f(rng.normal(size=(2, 4, 5, 3, 2)))
    kernel = f(rng.normal(size=(2, 3, 2, 2, 3)))
    for padding in ("SAME", "VALID"):
        window = dict(strides=[1, 2, 1, 1, 1], padding=padding)
        record_graph(cases, f"Conv3D_{padding}", "Conv3D", [volume, kernel], lambda x, k:
                     tf.raw_ops.Conv3D(input=x, filter=k, **window))
        made = [2, 2, 5 if padding == "SAME" else 3, 3 if padding == "SAME" else 2, 3]
        g = f(rng.normal(size=made))
        record_graph(cases, f"Conv3DBackpropInputV2_{padding}", "Conv3DBackpropInputV2", [kernel, g],
                     lambda k, g: tf.raw_ops.Conv3DBackpropInputV2(
                         input_sizes=[2, 4, 5, 3, 2], filter=k, out_backprop=g, **window))
        record_graph(cases, f"Conv3DBackpropFilterV2_{padding}", "Conv3DBackpropFilterV2",
                     [volume, g], lambda x, g: tf.raw_ops.Conv3DBackpropFilterV2(
                         input=x, filter_sizes=[2, 3, 2, 2, 3], out_backprop=g, **window))
        pool = dict(ksize=[1, 2, 3, 2, 1], **window)
        record_graph(cases, f"MaxPool3D_{padding}", "MaxPool3D", [volume], lambda x:
                     tf.raw_ops.MaxPool3D(input=x, **pool))
        record_graph(cases, f"AvgPool3D_{padding}", "AvgPool3D", [volume], lambda x:
                     tf.raw_ops.AvgPool3D(input=x, **pool))
        record_graph(cases, f"AvgPool3DGrad_{padding}", "AvgPool3DGrad", [g[..., :2]], lambda g:
                     tf.raw_ops.AvgPool3DGrad(orig_input_shape=[2, 4, 5, 3, 2], grad=g, **pool))
    boxes = f([[.1, .2, .8, .9], [.3, 0, 1, .6]])
    record_graph(cases, "CropAndResize", "CropAndResize", [image, boxes],
                 lambda x, b: tf.raw_ops.CropAndResize(
                     image=x, boxes=b, box_ind=[1, 0], crop_size=[3, 4]))


def record_einsum(cases):
    rng = np.random.default_rng(13)
    sizes = dict(a=2, b=3, c=4, d=2, i=3, j=2)
    for n, (equation, shapes) in enumerate((
            ("ab,bc->ac", None), ("ab,cb->ca", None), ("abc,cd->abd", None), ("abc,abd->acd", None),
            ("ab->a", None), ("ab->", None), ("abc->ca", None), ("aa->a", [(3, 3)]),
            ("aab->b", [(2, 2, 3)]), ("ab,cd->ad", None), ("a,b->ab", None), ("ab,ab->", None),
            ("...ab,...bc->...ac", [(5, 1, 2, 3), (4, 3, 4)]), ("a...,a->...", [(2, 3, 4), (2,)]),
            ("i...j->j...", [(3, 2, 4, 2)]), ("...,...->...", [(3, 1), (2, 1, 4)]),
            ("ia...,b->a...b", [(3, 2, 5), (3,)]), (",a->a", [(), (2,)]))):
        terms = equation.split("->")[0].split(",")
        shapes = shapes or [[sizes[c] for c in term] for term in terms]
        inputs = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
        record_graph(cases, f"Einsum_{n}", "Einsum", inputs, lambda *xs, equation=equation:
                     tf.raw_ops.Einsum(inputs=list(xs), equation=equation))
    a, b = (np.complex64(rng.normal(size=(2, 3)) + 1j * rng.normal(size=(2, 3))) for _ in range(2))
    record_graph(cases, "Einsum_complex", "Einsum", [a, b], lambda x, y: parts(
        tf.raw_ops.Einsum(inputs=[x, y], equation="ab,cb->ac")))


def record_moves(cases):
    f = np.float32
    rng = np.random.default_rng(14)
    x = f(rng.normal(size=(2, 3, 4)))
    raw = tf.raw_ops
    record_graph(cases, "PadV2", "PadV2", [x], lambda x: raw.PadV2(
        input=x, paddings=[[1, 0], [0, 2], [3, 1]], constant_values=2.))
    for mode in ("REFLECT", "SYMMETRIC"):
        record_graph(cases, f"MirrorPad_{mode}", "MirrorPad", [x], lambda x: raw.MirrorPad(
            input=x, paddings=[[1, 0], [0, 2], [2, 1]], mode=mode))
        record_graph(cases, f"MirrorPadGrad_{mode}", "MirrorPadGrad", [x], lambda x:
                     raw.MirrorPadGrad(input=x, paddings=[[0, 0], [0, 1], [1, 1]], mode=mode))
    record_graph(cases, "StridedSliceGrad_second", "StridedSliceGrad", [x[:, 0, 1:3]], lambda g:
                 raw.StridedSliceGrad(shape=[2, 3, 4], begin=[0, 0, 1], end=[2, 0, 3],
                                      strides=[1, 1, 1], dy=g, shrink_axis_mask=2))
    record_graph(cases, "Roll_two_axes", "Roll", [x], lambda x: raw.Roll(
        input=x, shift=[1, -2], axis=[0, 2]))
    record_graph(cases, "BatchToSpaceND", "BatchToSpaceND", [f(rng.normal(size=(8, 2, 3, 1)))],
                 lambda x: raw.BatchToSpaceND(input=x, block_shape=[2, 2], crops=[[0, 1], [1, 0]]))
    record_graph(cases, "IdentityN", "IdentityN", [x, x[0]], lambda a, b: tf.reduce_sum(
        tf.multiply(*raw.IdentityN(input=[a, b])), 0))
    square = f(rng.normal(size=(2, 3, 3))) + 3 * np.eye(3, dtype=f)
    record_graph(cases, "MatrixDiagV3", "MatrixDiagV3", [x[0, :2, :3]], lambda d: raw.MatrixDiagV3(
        diagonal=d, k=[0, 1], num_rows=3, num_cols=4, padding_value=7.))
    record_graph(cases, "MatrixDiagPartV3_band", "MatrixDiagPartV3", [x], lambda m:
                 raw.MatrixDiagPartV3(input=m, k=[-1, 1], padding_value=0., align="LEFT_RIGHT"))
    record_graph(cases, "MatrixSetDiagV3", "MatrixSetDiagV3", [x, x[:, 0, :3]], lambda m, d:
                 raw.MatrixSetDiagV3(input=m, diagonal=d, k=0))
    record_graph(cases, "Diag", "Diag", [x[0]], lambda x: raw.Diag(diagonal=x))
    record_graph(cases, "Cross", "Cross", [x[..., :3], x[..., 1:]], lambda a, b: raw.Cross(
        a=a, b=b))
    record_graph(cases, "LogMatrixDeterminant", "LogMatrixDeterminant", [square],
                 lambda x: raw.LogMatrixDeterminant(input=x)[1])
    for adjoint in (False, True):
        record_graph(cases, f"MatrixInverse_{int(adjoint)}", "MatrixInverse", [square],
                     lambda x: raw.MatrixInverse(input=x, adjoint=adjoint))
        record_graph(cases, f"MatrixSolve_{int(adjoint)}", "MatrixSolve", [square, x[:, :3]],
                     lambda a, b: raw.MatrixSolve(matrix=a, rhs=b, adjoint=adjoint))
        for lower in (False, True):
            record_graph(cases, f"TriangularSolve_{int(adjoint)}{int(lower)}",
                         "MatrixTriangularSolve", [square, x[:1]], lambda a, b:
                         raw.MatrixTriangularSolve(matrix=a, rhs=b, adjoint=adjoint, lower=lower))
    for adj in (False, True):
        record_graph(cases, f"BatchMatMulV3_{int(adj)}", "BatchMatMulV3",
                     [square, x[:1] if adj else x[:1].transpose(0, 2, 1)[:, :3]], lambda a, b:
                     raw.BatchMatMulV3(x=a, y=b, Tout=tf.float32, adj_x=adj))
    record_graph(cases, "BatchMatMul_v1", "BatchMatMul", [square, x], lambda a, b: raw.BatchMatMul(
        x=a, y=b, adj_x=True))
    for adjoint_a in (False, True):
        for adjoint_b in (False, True):
            record_graph(cases, f"SparseTensorDenseMatMul_{int(adjoint_a)}{int(adjoint_b)}",
                         "SparseTensorDenseMatMul", [f([2, -1, .5]), f(rng.normal(size=(3, 3)))],
                         lambda v, b: raw.SparseTensorDenseMatMul(
                             a_indices=np.int64([[0, 1], [2, 0], [2, 2]]), a_values=v,
                             a_shape=np.int64([3, 3]), b=b, adjoint_a=adjoint_a,
                             adjoint_b=adjoint_b))


def record_gathers(cases):
    f = np.float32
    rng = np.random.default_rng(15)
    x, raw = f(rng.normal(size=(2, 3, 4, 2))), tf.raw_ops
    two = np.int32([[2, 0, 2], [1, 1, 0]])
    for name, indices, axis, dims in (("1", two, 1, 1), ("2", two, 2, 1), ("3", two[:, :, None], 3, 1),
                                      ("4", two % 2, -1, 2), ("5", two[:, :1], 1, -1)):
        record_graph(cases, f"GatherV2_batch_{name}", "GatherV2", [x], lambda x: raw.GatherV2(
            params=x, indices=np.minimum(indices, x.shape[axis] - 1), axis=axis, batch_dims=dims))
    updates = f(rng.normal(size=(2, 4, 2)))
    for op in ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub"):
        record_graph(cases, f"{op}_rows", op, [x, updates], lambda x, u, op=op: getattr(raw, op)(
            tensor=x, indices=[[0, 1], [1, 2]], updates=u))
    flat = f([[1, 2], [0, 3], [2, 0], [4, 5], [0, .5]])
    record_graph(cases, "UnsortedSegmentProd_zeros", "UnsortedSegmentProd", [flat], lambda x:
                 raw.UnsortedSegmentProd(data=x, segment_ids=[0, 1, 0, -1, 1], num_segments=3))
    for kind in ("Sum", "Mean", "SqrtN"):
        record_graph(cases, f"SparseSegment{kind}_again", f"SparseSegment{kind}", [flat], lambda x:
                     tf.ensure_shape(getattr(raw, f"SparseSegment{kind}")(
                         data=x, indices=[3, 0, 3, 4], segment_ids=[0, 0, 2, 2]), [3, 2]))
        op = f"SparseSegment{kind}WithNumSegments"
        record_graph(cases, op, op, [flat], lambda x: getattr(raw, op)(
            data=x, indices=[3, 0, 3, 4], segment_ids=[0, 0, 2, 2], num_segments=5))


def record_functions(cases):
    f = np.float32
    raw = tf.raw_ops
    z = np.complex64([[1 + 2j, -.5 + 1j], [.3 - .7j, 2 - 1j]])
    record_graph(cases, "ComplexAbs", "ComplexAbs", [z], lambda z: raw.ComplexAbs(x=z))
    record_graph(cases, "Angle", "Angle", [z], lambda z: raw.Angle(input=z))
    x = f([[.3, -.5, .8], [.1, .6, -.2]])
    record_graph(cases, "Erfinv", "Erfinv", [x], lambda x: raw.Erfinv(x=x))
    record_graph(cases, "Polygamma", "Polygamma", [f([[.5], [1.5], [4]])], lambda x: raw.Polygamma(
        a=tf.constant(f([[0, 1, 3]])), x=x))
    record_graph(cases, "Zeta", "Zeta", [f([[.5], [1.5], [4]])], lambda q: raw.Zeta(
        x=tf.constant(f([[2, 1.5, 3]])), q=q))
    record_graph(cases, "Inv", "Inv", [x], lambda x: raw.Inv(x=x))
    record_graph(cases, "Xlog1py", "Xlog1py", [x, f([[.5], [1]])], lambda x, y: raw.Xlog1py(
        x=x, y=y))
    record_graph(cases, "EuclideanNorm_axis", "EuclideanNorm", [x], lambda x: raw.EuclideanNorm(
        input=x, axis=[-1]))


def main():
    cases = golden_module().CaseSet()
    record_batch_norm(cases)
    record_complex(cases)
    record_choices(cases)
    record_second(cases)
    record_windows(cases)
    record_einsum(cases)
    record_moves(cases)
    record_gathers(cases)
    record_functions(cases)
    with open(os.path.join(GRADIENTS, "cases_later.pb"), "wb") as f:
        f.write(cases.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
