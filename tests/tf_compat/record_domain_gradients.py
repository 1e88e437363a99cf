# SPDX-License-Identifier: Apache-2.0
"""Records TensorFlow's gradients of ops of particular fields; see record_gradients.py.

    python record_domain_gradients.py
writes ../goldens/gradients/cases_domains.pb.
"""
import os

from record_gradients import GRADIENTS, golden_module, np, parts, record_graph, tf

raw = tf.raw_ops
f = np.float32


def record_fourier(cases):
    rng = np.random.default_rng(21)
    for rank, name in ((1, ""), (2, "2D"), (3, "3D")):
        for n in (5, 6):
            shape = (2, 3, 4, n)
            x = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)
            for op in ("FFT", "IFFT"):
                record_graph(cases, f"{op}{name}_{n}", op + name, [x],
                             lambda x: parts(getattr(raw, op + name)(input=x)))
            if rank == 3:
                continue  # which TensorFlow has no gradients of
            length = np.int32(shape[-rank:])
            record_graph(cases, f"RFFT{name}_{n}", "RFFT" + name, [x.real],
                         lambda x: parts(getattr(raw, "RFFT" + name)(input=x, fft_length=length)))
            record_graph(cases, f"IRFFT{name}_{n}", "IRFFT" + name, [x[..., :n // 2 + 1]],
                         lambda x: getattr(raw, "IRFFT" + name)(input=x, fft_length=length))


def record_rounding(cases):
    rng = np.random.default_rng(22)
    x = rng.normal(0, 3, (4, 3)).astype(f)
    record_graph(cases, "FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxArgs", [x],
                 lambda x: raw.FakeQuantWithMinMaxArgs(inputs=x, min=-2., max=3., num_bits=4,
                                                       narrow_range=True))
    record_graph(cases, "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVars", [x, f(-2), f(3)],
                 lambda x, low, high: raw.FakeQuantWithMinMaxVars(inputs=x, min=low, max=high,
                                                                  num_bits=5))
    record_graph(cases, "FakeQuantWithMinMaxVarsPerChannel", "FakeQuantWithMinMaxVarsPerChannel",
                 [x, f([-1, 0, -3]), f([2, 1, 0])],
                 lambda x, low, high: raw.FakeQuantWithMinMaxVarsPerChannel(
                     inputs=x, min=low, max=high, narrow_range=True))


def record_sequences(cases):
    rng = np.random.default_rng(23)
    sizes = {"x": (5, 2, 3), "cs_prev": (2, 4), "h_prev": (2, 4), "w": (7, 16), "wci": (4,),
             "wcf": (4,), "wco": (4,), "b": (16,)}
    values = [rng.normal(0, .5, size).astype(f) for size in sizes.values()]
    # Of BlockLSTMV2 TensorFlow takes the gates in the order of BlockLSTM: that is no gradient.
    for part in (1, 6):
        record_graph(cases, f"BlockLSTM_{part}", "BlockLSTM", values, lambda *xs: raw.BlockLSTM(
            seq_len_max=np.int64(4), use_peephole=True, **dict(zip(sizes, xs)))[part])
    logits = rng.normal(size=(6, 2, 4)).astype(f)
    record_graph(cases, "CTCLoss", "CTCLoss", [logits], lambda x: raw.CTCLoss(
        inputs=x, labels_indices=np.int64([[0, 0], [0, 1], [1, 0]]),
        labels_values=np.int32([0, 1, 2]), sequence_length=np.int32([6, 4]))[0])


def record_products(cases):
    rng = np.random.default_rng(24)
    a, b = rng.normal(size=(3, 4)).astype(f), rng.normal(size=(4, 2)).astype(f)
    for flags in range(4):
        left, right = bool(flags & 1), bool(flags & 2)
        record_graph(cases, f"SparseMatMul_{flags}", "SparseMatMul",
                     [a.T.copy() if left else a, b.T.copy() if right else b],
                     lambda a, b: raw.SparseMatMul(a=a, b=b, transpose_a=left, transpose_b=right,
                                                   a_is_sparse=True))


def main():
    cases = golden_module().CaseSet()
    for record in (record_fourier, record_rounding, record_sequences, record_products):
        record(cases)
    with open(os.path.join(GRADIENTS, "cases_domains.pb"), "wb") as file:
        file.write(cases.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
