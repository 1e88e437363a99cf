# SPDX-License-Identifier: Apache-2.0
"""Records TensorFlow's gradients of older forms of ops; see record_gradients.py.

    python record_relative_gradients.py
writes ../goldens/gradients/cases_relatives.pb.
"""
import os

from record_gradients import GRADIENTS, golden_module, np, record_graph, tf

raw = tf.raw_ops


def record_diagonals(cases):
    rng = np.random.default_rng(11)
    m = rng.normal(size=(2, 3, 4)).astype(np.float32)
    d = rng.normal(size=(2, 3)).astype(np.float32)
    record_graph(cases, "MatrixDiag", "MatrixDiag", [d], lambda d: raw.MatrixDiag(diagonal=d))
    record_graph(cases, "MatrixDiagPart", "MatrixDiagPart", [m[:, :, :3].copy()],
                 lambda m: raw.MatrixDiagPart(input=m))
    record_graph(cases, "MatrixSetDiag", "MatrixSetDiag", [m, d],
                 lambda m, d: raw.MatrixSetDiag(input=m, diagonal=d))
    for name, k in (("main", [0, 0]), ("band", [-1, 1])):
        with tf.Graph().as_default(), tf.compat.v1.Session() as s:
            part = s.run(raw.MatrixDiagPartV2(input=m, k=k, padding_value=np.float32(0)))
        record_graph(cases, "MatrixDiagPartV2_" + name, "MatrixDiagPartV2", [m],
                     lambda m: raw.MatrixDiagPartV2(input=m, k=k, padding_value=np.float32(0)))
        record_graph(cases, "MatrixSetDiagV2_" + name, "MatrixSetDiagV2", [m, part],
                     lambda m, d: raw.MatrixSetDiagV2(input=m, diagonal=d, k=k))
        record_graph(cases, "MatrixDiagV2_" + name, "MatrixDiagV2", [part],
                     lambda d: raw.MatrixDiagV2(diagonal=d, k=k, num_rows=3, num_cols=4,
                                                padding_value=np.float32(0)))


def record_joins(cases):
    rng = np.random.default_rng(12)
    a, b = (rng.normal(size=(2, n)).astype(np.float32) for n in (3, 1))
    for axis in (1, -1):
        record_graph(cases, f"Concat_{axis}", "Concat", [a, b],
                     lambda a, b: raw.Concat(concat_dim=axis, values=[a, b]))
    record_graph(cases, "AccumulateNV2", "AccumulateNV2", [a, a * 2],
                 lambda a, b: raw.AccumulateNV2(inputs=[a, b], shape=[2, 3]))


def main():
    cases = golden_module().CaseSet()
    record_diagonals(cases)
    record_joins(cases)
    with open(os.path.join(GRADIENTS, "cases_relatives.pb"), "wb") as f:
        f.write(cases.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
