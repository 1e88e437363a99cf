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


def main():
    cases = golden_module().CaseSet()
    record_batch_norm(cases)
    record_complex(cases)
    record_choices(cases)
    with open(os.path.join(GRADIENTS, "cases_later.pb"), "wb") as f:
        f.write(cases.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
