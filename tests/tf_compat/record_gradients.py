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


def main():
    cases = golden_module().CaseSet()
    record_batch_norm(cases)
    with open(os.path.join(GRADIENTS, "cases_later.pb"), "wb") as f:
        f.write(cases.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
