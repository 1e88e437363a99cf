# SPDX-License-Identifier: Apache-2.0
"""Records what TensorFlow's kernels of particular fields answer: numbers that are quantized, Fourier
transforms, recurrent cells, sequences without alignment.

    python record_domains.py
writes ../goldens/kernels/cases_domains.pb; see record_kernels.py.
"""
from record_kernels import Recorder, np, tf

f, d, h = np.float32, np.float64, np.float16
EDGES = f([-3, -1, -.25, -0., 0, .1, .25, 1, 2, 5, np.inf, -np.inf, np.nan])


def record_fake_quantized(r):
    rng = np.random.default_rng(1)
    x = rng.normal(0, 4, (3, 5)).astype(f)
    ranges = ((-6, 6), (0, 6), (-1, 0), (.5, 1.5), (-3, -1), (-.1, .3), (-1e-3, 1e3))
    for low, high in ranges:
        for bits, narrow in ((8, False), (8, True), (2, False), (2, True), (16, False)):
            attrs = dict(min=low, max=high, num_bits=bits, narrow_range=narrow)
            r.add("FakeQuantWithMinMaxArgs", {"inputs": x}, feed=True, **attrs)
            r.add("FakeQuantWithMinMaxArgsGradient", {"gradients": x[::-1], "inputs": x}, feed=True,
                  **attrs)
    r.add("FakeQuantWithMinMaxArgs", {"inputs": EDGES}, feed=True)
    r.add("FakeQuantWithMinMaxArgsGradient", {"gradients": np.arange(1, 14).astype(f),
                                              "inputs": EDGES}, min=-1., max=2., feed=True)
    for low, high in ranges + ((0, 0), (1, 1)):
        for bits, narrow in ((8, False), (4, True)):
            attrs = dict(num_bits=bits, narrow_range=narrow)
            bounds = {"min": f(low), "max": f(high)}
            r.add("FakeQuantWithMinMaxVars", dict(bounds, inputs=x), feed=True, **attrs)
            r.add("FakeQuantWithMinMaxVarsGradient", dict(bounds, inputs=x, gradients=x[::-1]),
                  feed=True, **attrs)
    r.add("FakeQuantWithMinMaxVars", {"inputs": EDGES, "min": f(-1), "max": f(2)}, feed=True)
    lows, highs = f([-6, 0, -1, .5, 0]), f([6, 6, 0, 1.5, 0])
    for value in (x[0], x, rng.normal(0, 4, (2, 3, 2, 5)).astype(f), np.zeros((0, 5), f)):
        for bits, narrow in ((8, False), (3, True)):
            attrs = dict(num_bits=bits, narrow_range=narrow)
            bounds = {"min": lows, "max": highs}
            r.add("FakeQuantWithMinMaxVarsPerChannel", dict(bounds, inputs=value), feed=True, **attrs)
            r.add("FakeQuantWithMinMaxVarsPerChannelGradient",
                  dict(bounds, inputs=value, gradients=value + 1), feed=True, **attrs)
    r.add("FakeQuantWithMinMaxArgs", {"inputs": x}, min=2., max=1.,
          error="min has to be smaller than max, was: 2 >= 1")
    for bits in (1, 17):
        error = "num_bits must be between 2 and 16, inclusive"
        r.add("FakeQuantWithMinMaxArgs", {"inputs": x}, num_bits=bits, error=error)
        r.add("FakeQuantWithMinMaxVars", {"inputs": x, "min": f(0), "max": f(1)}, num_bits=bits,
              error=error)
    same = "gradient and input must be the same size"
    r.add("FakeQuantWithMinMaxArgsGradient", {"gradients": x, "inputs": x[:1]},
          error="of type FakeQuantWithMinMaxArgsGradient must have the same size and shape.  Input 0: "
          "[3,5] != input 1: [1,5]")
    r.add("FakeQuantWithMinMaxVarsGradient",
          {"gradients": x, "inputs": x[:1], "min": f(0), "max": f(1)}, error=same)
    r.add("FakeQuantWithMinMaxVars", {"inputs": x, "min": f([0]), "max": f(1)},
          error="`min` must be rank 0 but is rank 1")
    r.add("FakeQuantWithMinMaxVars", {"inputs": x, "min": f(0), "max": f([[1]])},
          error="`max` must be rank 0 but is rank 2")
    r.add("FakeQuantWithMinMaxVarsPerChannel", {"inputs": x, "min": f(0), "max": highs},
          error="`min` must be rank 1 but is rank 0")
    r.add("FakeQuantWithMinMaxVarsPerChannel", {"inputs": x, "min": lows[:2], "max": highs},
          error="min has incorrect size, expected 5 was 2")
    r.add("FakeQuantWithMinMaxVarsPerChannelGradient",
          {"gradients": x, "inputs": x, "min": lows, "max": highs[:4]},
          error="max has incorrect size, expected 5 was 4")


def record_quantized_numbers(r):
    rng = np.random.default_rng(2)
    x = rng.normal(0, 3, (3, 4, 2)).astype(f)
    finite = EDGES[:-3]
    types = (tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32)
    for t in types:
        for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):
            for low, high in ((-4, 4), (0, 5), (1, 3), (-3, -1), (0, 0), (-.2, .1)):
                if t == tf.qint32 and mode != "MIN_FIRST" and high > 0:
                    continue  # the highest number does not fit, and what becomes of it is chance
                r.add("QuantizeV2", {"input": x, "min_range": f(low), "max_range": f(high)},
                      T=t, mode=mode, feed=True)
        if t == tf.qint32:
            continue
        for narrow in (False, True):
            for rounding in ("HALF_AWAY_FROM_ZERO", "HALF_TO_EVEN"):
                r.add("QuantizeV2", {"input": finite, "min_range": f(-2), "max_range": f(1.5)}, T=t,
                      mode="SCALED", narrow_range=narrow, round_mode=rounding, feed=True)
        for axis in range(3):
            n = x.shape[axis]
            lows, highs = f(-np.arange(1, n + 1)), f(np.arange(1, n + 1) / 2)
            for mode in ("MIN_COMBINED", "SCALED"):
                r.add("QuantizeV2", {"input": x, "min_range": lows, "max_range": highs}, T=t,
                      mode=mode, axis=axis, feed=True)
        r.add("QuantizeV2", {"input": x, "min_range": f(-1), "max_range": f(1)}, T=t,
              ensure_minimum_range=4., feed=True)
    for t in types:
        info = np.iinfo(t.as_numpy_dtype[0])
        # An int32 that is no float becomes another one on its way.
        top = info.max - (200 if t == tf.qint32 else 0)
        plain = np.concatenate([[info.min, info.min + 1, 0, 1, top - 1, top],
                                rng.integers(info.min, info.max, 18)])
        numbers = plain.astype(info.dtype).view(t.as_numpy_dtype).reshape(4, 3, 2)
        for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):
            for low, high in ((-4, 4), (0, 5), (1, 3), (-3, -1), (2, 2)):
                for narrow in (False, True):
                    r.add("Dequantize", {"input": numbers, "min_range": f(low), "max_range": f(high)},
                          mode=mode, narrow_range=narrow, feed=True)
        r.add("Dequantize", {"input": numbers, "min_range": f(-4), "max_range": f(2)},
              dtype=tf.bfloat16, feed=True)
        for axis in range(3):
            n = numbers.shape[axis]
            lows, highs = f(-np.arange(1, n + 1)), f(np.arange(1, n + 1) / 2)
            for mode in ("MIN_COMBINED", "SCALED"):
                r.add("Dequantize", {"input": numbers, "min_range": lows, "max_range": highs},
                      mode=mode, axis=axis)
        r.add("Dequantize", {"input": numbers[:0], "min_range": f(-4), "max_range": f(2)}, feed=True)
    one, two = f(1), f([1, 2])
    x = x[0]
    for inputs, attrs, error in (
            ((x, one, f(0)), {}, "input_max_range must be larger than input_min_range."),
            ((x, two, one), {}, "If axis is not specified, min_range must contain a single float "
             "element, but it contains 2 elements"),
            ((x, two, f([2])), dict(axis=1), "max_range is a 1-D tensor of size 1 and input's axis "
             "dimension is of size 2"),
            ((x, one, two), dict(axis=1), "If axis is specified, min_range must be a 1-D tensor"),
            ((x, two, two), dict(axis=2), "but given axis value was 2 and input's dims was 2"),
            ((x, two - 2, two), dict(axis=1, mode="MIN_FIRST"),
             "MIN_FIRST mode is not implemented for Quantize with axis != -1."),
            ((x, one, two[1]), dict(round_mode="HALF_TO_EVEN"), "Round mode 'HALF_TO_EVEN' only "
             "supported for mode 'SCALED', but mode is 'MIN_COMBINED'.")):
        r.add("QuantizeV2", dict(zip(("input", "min_range", "max_range"), inputs)), T=tf.quint8,
              error=error, **attrs)
    x = np.arange(8, dtype=np.uint8).view(tf.quint8.as_numpy_dtype).reshape(4, 2)
    for inputs, attrs, error in (
            ((x, two, one), {}, "input_min_tensor must have as many elements as input on the "
             "dequantization axis (-1), got 2, expected 1"),
            ((x, one, one), dict(mode="SCALED", dtype=tf.bfloat16),
             "string must be 'MIN_COMBINED', is 'SCALED'")):
        r.add("Dequantize", dict(zip(("input", "min_range", "max_range"), inputs)), error=error,
              **attrs)


def record_fourier(r):
    rng = np.random.default_rng(3)

    def normal(*shape):
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)

    for ctype, rtype, close in ((np.complex64, f, dict(rtol=1e-4, atol=2e-5)),
                                (np.complex128, d, dict(rtol=1e-9, atol=1e-11))):
        real = dict(Tcomplex=ctype, **close)
        for n in (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 37, 60, 64, 74, 100):
            x = normal(2, n).astype(ctype)
            for op in ("FFT", "IFFT"):
                r.add(op, {"input": x}, **close)
            r.add("RFFT", {"input": x.real, "fft_length": np.int32([n])}, **real)
            r.add("IRFFT", {"input": x[:, :n // 2 + 1], "fft_length": np.int32([n])}, Treal=rtype,
                  **close)
        for shape in ((2, 3, 4), (4, 1, 5), (3, 8, 6), (2, 2, 3, 5)):
            x = normal(*shape).astype(ctype)
            for rank, name in ((2, "2D"), (3, "3D")):
                for op in ("FFT", "IFFT"):
                    r.add(op + name, {"input": x}, **close)
                length = np.int32(shape[-rank:])
                r.add("RFFT" + name, {"input": x.real, "fft_length": length}, **real)
                half = x[..., :shape[-1] // 2 + 1]
                r.add("IRFFT" + name, {"input": half, "fft_length": length}, Treal=rtype, **close)
                r.add("RFFT" + name, {"input": x.real, "fft_length": np.maximum(length - 1, 1)},
                      **real)
                r.add("IRFFT" + name, {"input": x, "fft_length": np.maximum(length - 1, 1)},
                      Treal=rtype, **close)
        r.add("FFT", {"input": normal(7).astype(ctype)}, **close)
        for empty in ((0,), (3, 0), (0, 4)):
            r.add("FFT", {"input": np.zeros(empty, ctype)}, feed=True)
        r.add("IRFFT", {"input": np.zeros((0, 4), ctype), "fft_length": np.int32([6])}, feed=True,
              Treal=rtype)
    x = normal(2, 4).astype(np.complex64)
    r.add("FFT", {"input": x[0, 0]}, error="Input must have rank of at least 1 but got: []")
    r.add("FFT2D", {"input": x[0]}, error="Input must have rank of at least 2 but got: [4]")
    r.add("RFFT", {"input": x.real, "fft_length": np.int32(4)},
          error="fft_length must have shape [1]")
    r.add("RFFT2D", {"input": x.real, "fft_length": np.int32([4])},
          error="fft_length must have shape [2]")
    r.add("RFFT", {"input": x.real, "fft_length": np.int32([-1])}, error="but got: -1")
    r.add("RFFT", {"input": x.real, "fft_length": np.int32([5])},
          error="Input dimension 1 must have length of at least 5 but got: 4")
    r.add("IRFFT", {"input": x, "fft_length": np.int32([8])},
          error="Input dimension 1 must have length of at least 5 but got: 4")


def labels_of(rows):
    """Indices and values of a sparse tensor with these rows."""
    indices = [(b, t) for b, row in enumerate(rows) for t in range(len(row))]
    return {"labels_indices": np.int64(indices).reshape(-1, 2),
            "labels_values": np.int32([v for row in rows for v in row])}


def record_ctc_loss(r):
    rng = np.random.default_rng(4)
    for dtype in (f, d):
        x = rng.normal(0, 2, (6, 3, 5)).astype(dtype)
        rows = [[0, 1, 2], [3, 3], [1]]
        for merge in (False, True):
            for collapse in (False, True):
                r.add("CTCLoss", dict(labels_of(rows), inputs=x, sequence_length=np.int32([6, 5, 1])),
                      rtol=1e-4, atol=1e-5, ctc_merge_repeated=merge, feed=True,
                      preprocess_collapse_repeated=collapse)
        long = dict(labels_of([[0, 1, 2], [3, 3, 3, 3], [2, 2]]), inputs=x)
        r.add("CTCLoss", dict(long, sequence_length=np.int32([6, 3, 2])), rtol=1e-4, atol=1e-5,
              ignore_longer_outputs_than_inputs=True, feed=True)
        r.add("CTCLoss", dict(labels_of([[0, 4, 7], [3], [2]]), inputs=x,
                              sequence_length=np.int32([6, 3, 2])), rtol=1e-4, atol=1e-5, feed=True)
        sharp = x.copy()
        sharp[:, 1, 3] = -np.inf
        r.add("CTCLoss", dict(labels_of(rows), inputs=sharp, sequence_length=np.int32([6, 6, 6])),
              rtol=1e-4, atol=1e-5, feed=True)
    x = x.astype(f)
    good = dict(labels_of(rows), inputs=x, sequence_length=np.int32([6, 5, 2]))
    for change, error in (
            ({"inputs": x[0]}, "inputs is not a 3-Tensor"),
            ({"sequence_length": np.int32(6)}, "sequence_length is not a vector"),
            ({"labels_indices": np.int64([1])}, "labels_indices is not a matrix"),
            ({"labels_values": np.int32([[1]])}, "labels_values is not a vector"),
            ({"sequence_length": np.int32([6, 5])}, "len(sequence_length) != batch_size.  "
             "len(sequence_length):  2 batch_size: 3"),
            ({"labels_values": np.int32([1])}, "labels_indices and labels_values must contain the "
             "same number of rows, but saw shapes: [6,2] vs. [1]"),
            ({"sequence_length": np.int32([7, 5, 2])}, "sequence_length(0) <= 6"),
            ({"sequence_length": np.int32([6, -1, 2])}, "seq_len(1) < 0"),
            ({"sequence_length": np.int32([6, 1, 2])}, "Not enough time for target transition "
             "sequence (required: 2, available: 1)1You can turn this error into a warning by using "
             "the flag ignore_longer_outputs_than_inputs"),
            (labels_of([[0], [], [1]]), "Labels length is zero in batch 1"),
            (labels_of([[0], [4, 1], [1]]), "Saw a non-null label (index >= num_classes - 1) "
             "following a null label, batch: 1 num_classes: 5 labels: 4,1 labels seen so far: "),
            (labels_of([[0], [-1, 1], [1]]), "All labels must be nonnegative integers, batch: 1 "
             "labels: -1,1"),
            ({"labels_indices": good["labels_indices"][::-1]}, "is out of order"),
            ({"labels_indices": good["labels_indices"] + [2, 0]}, "is out of bounds")):
        r.add("CTCLoss", dict(good, **change), error=error)


def record_ctc_decoders(r):
    rng = np.random.default_rng(5)
    for dtype in (f, d):
        x = rng.normal(0, 2, (8, 3, 4)).astype(dtype)
        x[3:5, 0] = x[2, 0]
        lengths = np.int32([8, 5, 0])
        for merge in (False, True):
            for blank in (-1, 0, 2):
                r.add("CTCGreedyDecoder", {"inputs": x, "sequence_length": lengths}, feed=True,
                      merge_repeated=merge, blank_index=blank)
            for width, paths in ((1, 1), (2, 1), (4, 3), (100, 2)):
                r.add("CTCBeamSearchDecoder", {"inputs": x[:, :2], "sequence_length": lengths[:2]},
                      feed=True, merge_repeated=merge, beam_width=width, top_paths=paths, rtol=1e-4)
        wide = rng.normal(0, 1, (20, 2, 30)).astype(dtype)
        r.add("CTCBeamSearchDecoder", {"inputs": wide, "sequence_length": np.int32([20, 17])},
              feed=True, merge_repeated=False, beam_width=20, top_paths=5, rtol=1e-4)
    x, lengths = x.astype(f), np.int32([8, 5, 2])
    search = dict(beam_width=3, top_paths=1)
    for op, attrs in (("CTCGreedyDecoder", {}), ("CTCBeamSearchDecoder", search)):
        for inputs, error in (
                ((x[0], lengths), "inputs is not a 3-Tensor"),
                ((x[:0], lengths), "inputs must not be empty"),
                ((x, np.int32(8)), "sequence_length is not a vector"),
                ((x, lengths[:2]), "len(sequence_length) != batch_size.  len(sequence_length):  2 "
                 "batch_size: 3"),
                ((x, lengths + 1), "sequence_length(0) <= 8")):
            r.add(op, {"inputs": inputs[0], "sequence_length": inputs[1]}, error=error, **attrs)
    r.add("CTCGreedyDecoder", {"inputs": x, "sequence_length": lengths}, blank_index=4,
          error="blank_index expected to be between -4 and 3 but was 4")
    r.add("CTCBeamSearchDecoder", {"inputs": x, "sequence_length": lengths}, beam_width=1,
          top_paths=2, error="requested more paths than the beam width.")
    r.add("CTCBeamSearchDecoder", {"inputs": x, "sequence_length": lengths * 0}, beam_width=3,
          top_paths=2, error="Less leaves in the beam search than requested.")


def sparse(name, rows, shape, dtype):
    """A sparse tensor of sequences at given places."""
    indices = [place + (t,) for place, row in rows for t in range(len(row))]
    values = [v for _, row in rows for v in row]
    return {name + "_indices": np.int64(indices).reshape(-1, len(shape)),
            name + "_values": np.array(values, dtype), name + "_shape": np.int64(shape)}


def record_edit_distance(r):
    types = (f, d, h, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
             np.complex64, np.complex128, tf.bfloat16.as_numpy_dtype)
    guesses = [((0, 0), [1, 2, 3]), ((0, 1), [1]), ((1, 0), [4, 5, 6, 7]), ((1, 2), [9, 8])]
    truths = [((0, 0), [2, 3, 3]), ((1, 0), [4, 6]), ((1, 1), [5]), ((1, 2), [9, 8])]
    for normalize in (False, True):
        for dtype in types:
            r.add("EditDistance", dict(sparse("hypothesis", guesses, (2, 3, 4), dtype),
                                       **sparse("truth", truths, (2, 3, 3), dtype)),
                  normalize=normalize)
        words = [(place, ["w%d" % v for v in row]) for place, row in guesses]
        others = [(place, ["w%d" % v for v in row]) for place, row in truths]
        r.add("EditDistance", dict(sparse("hypothesis", words, (2, 3, 4), object),
                                   **sparse("truth", others, (2, 3, 3), object)), normalize=normalize)
        r.add("EditDistance", dict(
            sparse("hypothesis", [((0,), [True, False])], (1, 2), bool),
            **sparse("truth", [((0,), [True])], (3, 2), bool)), normalize=normalize)
        r.add("EditDistance", dict(sparse("hypothesis", [], (1, 3), f),
                                   **sparse("truth", [], (2, 0), f)), normalize=normalize, feed=True)
        r.add("EditDistance", dict(
            sparse("hypothesis", [((0,), [np.nan, 0.])], (1, 2), f),
            **sparse("truth", [((0,), [np.nan, -0.])], (1, 2), f)), normalize=normalize)
    good = dict(sparse("hypothesis", [((0,), [1, 2])], (1, 2), f),
                **sparse("truth", [((0,), [1])], (1, 1), f))
    r.add("EditDistance", dict(sparse("hypothesis", [], (0, 3), f),
                               **sparse("truth", [], (0, 2), f)),
          error="Got output shape [0] which has 0 elements")
    one = np.int64([1])
    for change, error in (
            ({"hypothesis_indices": one}, "hypothesis_indices should be a matrix, but got shape: [1]"),
            ({"truth_indices": one}, "truth_indices should be a matrix, but got shape: [1]"),
            ({"hypothesis_values": f(1)}, "hypothesis_values should be a vector, but got shape: []"),
            ({"truth_values": f([[1]])}, "truth_values should be a vector, but got shape: [1,1]"),
            ({"hypothesis_shape": one[0]}, "hypothesis_shape should be a vector, but got shape: []"),
            ({"truth_shape": one[0]}, "truth_shape should be a vector, but got shape: []"),
            ({"hypothesis_values": f([1])}, "Expected hypothesis_values.NumElements == "
             "#rows(hypothesis_indices), their shapes are: [1] and [2,2]"),
            ({"hypothesis_shape": one}, "Expected hypothesis_shape.NumElements == "
             "#cols(hypothesis_indices), their shapes are: [1] and [2,2]"),
            ({"truth_values": f([1, 2])}, "Expected truth_values.NumElements == "
             "#rows(truth_indices), their shapes are: [2] and [1,2]"),
            (dict(sparse("truth", [((0, 0), [1])], (1, 1, 1), f)),
             "Expected truth and hypothesis to have matching ranks, but their shapes are: [3] and [2]")):
        r.add("EditDistance", dict(good, **change), error=error)


def lstm_inputs(rng, dtype, batch, inputs, cells, times=None):
    shape = (batch, inputs) if times is None else (times, batch, inputs)
    sizes = {"x": shape, "cs_prev": (batch, cells), "h_prev": (batch, cells),
             "w": (inputs + cells, 4 * cells), "wci": (cells,), "wcf": (cells,), "wco": (cells,),
             "b": (4 * cells,)}
    return {name: rng.normal(size=size).astype(dtype) for name, size in sizes.items()}


def record_lstm(r):
    rng = np.random.default_rng(6)
    for dtype, close in ((f, dict(rtol=1e-4, atol=1e-5)), (h, dict(rtol=.02, atol=.02))):
        state = lambda *sizes: rng.normal(0, .5, sizes).astype(dtype)
        cell = lstm_inputs(rng, dtype, 3, 4, 5)
        made = {name: state(3, 5) for name in ("i", "cs", "f", "o", "ci", "co", "cs_grad", "h_grad")}
        for peephole in (False, True):
            for clip in (3., .5, 0.):
                r.add("LSTMBlockCell", cell, use_peephole=peephole, cell_clip=clip, **close)
            r.add("LSTMBlockCell", cell, use_peephole=peephole, forget_bias=-.5, **close)
            r.add("LSTMBlockCellGrad", dict(cell, **made), use_peephole=peephole, **close)
        sequence = lstm_inputs(rng, dtype, 3, 4, 5, times=6)
        made = {name: state(6, 3, 5)
                for name in ("i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad")}
        loose = dict(close, rtol=.05, atol=.1) if dtype == h else close
        for peephole in (False, True):
            for most in (6, 4, 0):
                inputs = dict(sequence, seq_len_max=np.int64(most))
                # Beyond the last step most outputs are whatever was in memory.
                for clip in (3., .5) if most == 6 else ():
                    r.add("BlockLSTM", inputs, use_peephole=peephole, cell_clip=clip, **close)
                if most == 6:
                    r.add("BlockLSTMV2", inputs, use_peephole=peephole, **close)
                for op in ("BlockLSTMGrad", "BlockLSTMGradV2"):
                    r.add(op, dict(inputs, **made), use_peephole=peephole, **loose)
    cell = lstm_inputs(rng, f, 3, 4, 5)
    for change, error in (
            ({"cs_prev": cell["cs_prev"][:2]}, "cs_prev.dims(0) != batch_size: 2 vs. 3"),
            ({"h_prev": cell["h_prev"][:2]}, "h_prev.dims(0) != batch_size: 2 vs. 3"),
            ({"h_prev": cell["h_prev"][:, :2]}, "h_prev.dims(1) != cell_size: 2 vs. 5"),
            ({"w": cell["w"][:8]}, "w.dim_size(0) != input_size + cell_size: 8 vs. 9"),
            ({"w": cell["w"][:, :8]}, "w.dim_size(1) != cell_size * 4: 8 vs. 20"),
            ({"b": cell["b"][:8]}, "b.dim_size(0) != cell_size * 4: 8 vs. 20")):
        r.add("LSTMBlockCell", dict(cell, **change), error=error)
        sequence = {name: value[None] if name == "x" else value for name, value in cell.items()}
        r.add("BlockLSTM", dict(sequence, seq_len_max=np.int64(1), **change), error=error)


def record_gru(r):
    rng = np.random.default_rng(7)
    for batch, inputs, cells in ((3, 4, 5), (1, 1, 1), (2, 9, 3)):
        sizes = {"x": (batch, inputs), "h_prev": (batch, cells), "w_ru": (inputs + cells, 2 * cells),
                 "w_c": (inputs + cells, cells), "b_ru": (2 * cells,), "b_c": (cells,)}
        cell = {name: rng.normal(size=size).astype(f) for name, size in sizes.items()}
        r.add("GRUBlockCell", cell, rtol=1e-4, atol=1e-5)
        made = {name: rng.normal(0, .5, (batch, cells)).astype(f) for name in ("r", "u", "c", "d_h")}
        r.add("GRUBlockCellGrad", dict(cell, **made), rtol=1e-4, atol=1e-5)
    for change, error in (
            ({"h_prev": cell["h_prev"][:1]}, "h_prev.dims(0) != batch_size: 1 vs. 2"),
            ({"w_ru": cell["w_ru"][:8]}, "w_ru.dim_size(0) != input_size + cell_size: 8 vs. 12"),
            ({"w_ru": cell["w_ru"][:, :2]}, "w_ru.dim_size(1) != cell_size * 2: 2 vs. 6"),
            ({"w_c": cell["w_c"][:8]}, "w_c.dim_size(0) != input_size + cell_size: 8 vs. 12"),
            ({"w_c": cell["w_c"][:, :2]}, "w_c.dim_size(1) != cell_size: 2 vs. 3"),
            ({"b_ru": cell["b_ru"][:2]}, "b_ru.dim_size(0) != cell_size * 2: 2 vs. 6"),
            ({"b_c": cell["b_c"][:2]}, "b_c.dim_size(0) != cell_size: 2 vs. 3")):
        r.add("GRUBlockCell", dict(cell, **change), error=error)


def record_matrices(r):
    rng = np.random.default_rng(8)
    for dtype, close in ((f, dict(rtol=1e-3, atol=1e-4)), (d, dict(rtol=1e-8, atol=1e-10))):
        for shape in ((1, 1), (3, 3), (2, 4, 4), (40, 40), (0, 0), (0, 3, 3)):
            a = rng.normal(size=shape) / 4
            factor = (np.tril(a) + 2 * np.eye(shape[-1])).astype(dtype)
            r.add("CholeskyGrad", {"l": factor, "grad": rng.normal(size=shape).astype(dtype)},
                  feed=True, **close)
        r.add("CholeskyGrad", {"l": a[:, :2].astype(dtype), "grad": a.astype(dtype)},
              error="Inputs (L and grad) must have the same shape")
    r.add("CholeskyGrad", {"l": f([[1, 2]]), "grad": f([[1, 2]])},
          error="Inputs must be a square matrices")
    r.add("CholeskyGrad", {"l": f([1]), "grad": f([1])}, error="must have rank >= 2")
    b16 = tf.bfloat16.as_numpy_dtype
    a, b = rng.normal(size=(5, 7)), rng.normal(size=(7, 4))
    a[rng.uniform(size=a.shape) < .7] = 0
    b[rng.uniform(size=b.shape) < .7] = 0
    for ta in (f, b16):
        for tb in (f, b16):
            for flags in range(16):
                left, right = bool(flags & 1), bool(flags & 2)
                r.add("SparseMatMul", {"a": (a.T if left else a).astype(ta),
                                       "b": (b.T if right else b).astype(tb)},
                      transpose_a=left, transpose_b=right, a_is_sparse=bool(flags & 4),
                      b_is_sparse=bool(flags & 8), rtol=1e-2 if b16 in (ta, tb) else 1e-5,
                      atol=1e-3 if b16 in (ta, tb) else 1e-6)
    a, b = a.astype(f), b.astype(f)
    r.add("SparseMatMul", {"a": a[:, :0], "b": b[:0]}, feed=True)
    r.add("SparseMatMul", {"a": a[0], "b": b}, error="a is not a matrix")
    r.add("SparseMatMul", {"a": a, "b": b[0]}, error="b is not a matrix")
    r.add("SparseMatMul", {"a": a, "b": b[1:]},
          error="Matrix size incompatible: a: [5,7], b: [6,4]")


def record_padded_convolutions(r):
    rng = np.random.default_rng(9)
    none = np.zeros((4, 2), np.int32)
    some = np.int32([[0, 0], [1, 2], [2, 0], [0, 0]])
    for dtype in (f, d, h, tf.bfloat16.as_numpy_dtype):
        close = dict(rtol=1e-4, atol=1e-4) if dtype in (f, d) else dict(rtol=.03, atol=.1)
        x = rng.normal(size=(1, 5, 6, 3)).astype(dtype)  # of more images it mixes up the rows
        w = rng.normal(size=(3, 2, 3, 4)).astype(dtype)
        for mode in ("REFLECT", "SYMMETRIC"):
            for padding in ("SAME", "VALID"):
                attrs = dict(mode=mode, strides=[1, 2, 1, 1], padding=padding, **close)
                for paddings in (none, some):
                    r.add("FusedPadConv2D", {"input": x, "paddings": paddings, "filter": w}, **attrs)
                    for size in ((5, 6), (8, 4), (3, 12)) if dtype in (f, d, h) else ():
                        for corners in (False, True):
                            r.add("FusedResizeAndPadConv2D",
                                  {"input": x, "size": np.int32(size), "paddings": paddings,
                                   "filter": w}, resize_align_corners=corners, **attrs)


def main():
    r = Recorder("domains")
    for record in (record_fake_quantized, record_quantized_numbers, record_fourier, record_ctc_loss,
                   record_ctc_decoders, record_edit_distance, record_lstm, record_gru,
                   record_matrices, record_padded_convolutions):
        record(r)
    r.write("cases_domains.pb")


if __name__ == "__main__":
    main()
