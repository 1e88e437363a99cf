# SPDX-License-Identifier: Apache-2.0
"""Records what TensorFlow's kernels answer where its own Python tests failed on our servers.

    python record_upstream.py
writes ../goldens/kernels/cases_upstream.pb; see record_kernels.py; and a checkpoint of the first
format, ../goldens/checkpoints/first_format-?????-of-00002.
"""
import os

from record_kernels import HERE, Recorder, np, tf

f = np.float32


def record_quantized(r):
    rng = np.random.default_rng(7)
    some = rng.normal(size=(2, 3, 4))
    for dtype in (f, np.float64):
        x = some.astype(dtype)
        for signed in (True, False):
            for bits in (1, 2, 8, 16):
                for mode in ("HALF_TO_EVEN", "HALF_UP"):
                    for narrow in (False, True):
                        attrs = dict(signed_input=signed, num_bits=bits, round_mode=mode,
                                     narrow_range=narrow)
                        for low, high, given in ((0, 0, False), (-.7, .9, True), (-1.5, -.25, True)):
                            r.add("QuantizeAndDequantizeV2",
                                  {"input": x[0], "input_min": dtype(low), "input_max": dtype(high)},
                                  range_given=given, **attrs)
        for axis in range(3):
            bounds = np.zeros(x.shape[axis], dtype)
            for op in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4"):
                r.add(op, {"input": x, "input_min": bounds, "input_max": bounds}, axis=axis,
                      feed=True)
            high = bounds + np.arange(1, len(bounds) + 1, dtype=dtype)
            r.add("QuantizeAndDequantizeV3",
                  {"input": x, "input_min": -high / 3, "input_max": high, "num_bits": np.int32(5)},
                  axis=axis, feed=True)
            r.add("QuantizeAndDequantizeV4Grad",
                  {"gradients": x[::-1], "input": x, "input_min": -high / 4, "input_max": high / 2},
                  axis=axis, feed=True)
        edges = dtype([-3, -1, -0., 0, 1, 2, 5, np.inf, -np.inf, np.nan])
        r.add("QuantizeAndDequantizeV4Grad",
              {"gradients": dtype(range(1, 11)), "input": edges, "input_min": dtype(-1),
               "input_max": dtype(2)}, feed=True)
        r.add("QuantizeAndDequantizeV4", {"input": edges, "input_min": dtype(-1),
                                          "input_max": dtype(2)}, range_given=True, feed=True)
        for values in ([0, 0], [-1, -2], [1, 2], [2.5, .5, -.5], []):
            r.add("QuantizeAndDequantizeV4", {"input": dtype(values), "input_min": dtype(0),
                                              "input_max": dtype(0)}, feed=True)
    one = {"input": f([1, 2]), "input_min": f(0), "input_max": f(1)}
    reverse = dict(one, input_min=f(2))
    for op in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4"):
        r.add(op, reverse, error="Invalid range: input_min 2 > input_max 1", range_given=True)
        for bits, signed in ((0, True), (62, True), (63, False), (-1, False)):
            r.add(op, one, error=f"num_bits is out of range: {bits} with signed_input", num_bits=bits,
                  signed_input=signed)
    op = "QuantizeAndDequantizeV3"
    r.add(op, dict(reverse, num_bits=np.int32(8)), error="Invalid range: input_min 2 > input_max 1")
    r.add(op, dict(one, num_bits=np.int32(0)), error="num_bits is out of range: 0 with ")
    r.add(op, dict(one, num_bits=np.int32([8])), error="The `num_bits` tensor should be a scalar. "
          "Got dimensions: 1")
    two = f([1, 2])
    for low, high, axis, error in (
            (f([0]), f([1, 1]), 0, "input_min_tensor has incorrect size, was 1 expected 2 to match "
             "dim 0 of the input"),
            (two, f([1]), 0, "input_max_tensor has incorrect size, was 1 expected 2"),
            (f(0), f(1), 0, "Shape must be rank 1 for input_min_tensor when the axis is specified")):
        r.add(op, {"input": two, "input_min": low, "input_max": high, "num_bits": np.int32(8)},
              axis=axis, error=error)
    op = "QuantizeAndDequantizeV4Grad"
    r.add(op, {"gradients": f([1]), "input": two, "input_min": f(0), "input_max": f(1)},
          error="gradient and input must be the same size")
    r.add(op, {"gradients": two, "input": two, "input_min": two, "input_max": f(1)},
          error="input_min must be a scalar if axis is unspecified")


def record_first_format():
    """Two files of a checkpoint, as Saver(write_version=V1, sharded=True) leaves them."""
    path = os.path.join(HERE, "..", "goldens", "checkpoints", "first_format-%05d-of-00002")
    whole = {
        "bool": np.array([True, False]), "complex64": np.complex64([1 + 2j, -1j]),
        "complex128": np.array([.5j]), "double": np.array([[.1], [-np.inf]]),
        "empty": np.zeros((2, 0), f), "float": f([1.5, -2, 3]), "half": np.float16([1, -.5]),
        "int16": np.int16([-3]), "int32": np.int32([[-7, 7]]), "int64": np.int64(-2**62),
        "int8": np.int8([-1, 2]), "string": np.array(["", "two", "\0"], object),
        "uint16": np.uint16([65535]), "uint8": np.uint8([255])}
    part = np.arange(12, dtype=np.int32).reshape(4, 3)
    files = (list(whole.items()) + [("part", part[:2])], [("part", part[2:])])
    for i, tensors in enumerate(files):
        slices = {"part": "4 3 %d,2:-" % (2 * i)}
        tf.raw_ops.SaveSlices(filename=path % i, tensor_names=[n for n, _ in tensors],
                              shapes_and_slices=[slices.get(n, "") for n, _ in tensors],
                              data=[tf.constant(t) for _, t in tensors])


def main():
    record_first_format()
    r = Recorder("upstream")
    for record in (record_quantized,):
        record(r)
    r.write("cases_upstream.pb")


if __name__ == "__main__":
    main()
