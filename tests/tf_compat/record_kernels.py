# SPDX-License-Identifier: Apache-2.0
"""Records what TensorFlow's kernels answer, as cases for tests/kernel_conformance.

    python record_kernels.py
writes ../goldens/kernels/cases_later.pb (the container is golden.proto there) and prints one line
per case. Every case is one node, `y`, with constants as inputs; an error case feeds its inputs.
"""
import os
import subprocess
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

v1 = tf.compat.v1
HERE = os.path.dirname(os.path.abspath(__file__))
GOLDENS = os.path.join(HERE, "..", "goldens", "kernels")


def golden_module():
    out = tempfile.mkdtemp()
    subprocess.run(["protoc", "-I", GOLDENS, "--python_out", out, "golden.proto"], check=True)
    sys.path.insert(0, out)
    import golden_pb2
    return golden_pb2


class Recorder:
    def __init__(self, tag="later"):
        self.tag = tag
        self.golden = golden_module()
        self.set = self.golden.CaseSet()
        self.names = {}

    def add(self, op, inputs, error="", rtol=1e-5, atol=1e-6, bits=False, feed=False, fetched=None,
            **attrs):
        """One case; inputs by the names of the op's definition, constants unless `feed`.
        Outputs are the first `fetched` ones, all unless given."""
        arrays = {k: v for k, v in inputs.items()}
        with tf.Graph().as_default() as graph:
            feeds = {}

            def tensor(value):
                value = np.asarray(value)
                if not error and not feed:
                    return tf.constant(value)
                fed = v1.placeholder(tf.as_dtype(value.dtype), None)
                feeds[fed] = value
                return fed

            made = {k: [tensor(x) for x in v] if isinstance(v, list) else tensor(v)
                    for k, v in arrays.items()}
            result = getattr(tf.raw_ops, op)(name="y", **made, **attrs)
            results = list(result) if isinstance(result, (tuple, list)) else [result]
            flat = []
            for r in results:
                flat += list(r) if isinstance(r, (tuple, list)) else [r]
            flat = flat[:fetched]
            n = self.names[op] = self.names.get(op, 0) + 1
            case = self.set.case.add(name=f"{op}_{self.tag}_{n}", op=op, family=5,
                                     graph_def=graph.as_graph_def().SerializeToString())
            case.compare = "bits" if bits else "close"
            case.rtol, case.atol = rtol, atol
            step = case.step.add()
            for fed, value in feeds.items():
                step.feed.add(name=fed.name,
                              tensor=tf.make_tensor_proto(value).SerializeToString())
            step.fetch.extend(t.name for t in flat)
            config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
            with v1.Session(graph=graph, config=config) as session:
                try:
                    values = session.run(flat, feeds)
                except tf.errors.OpError as e:
                    if "No OpKernel was registered" in e.message:
                        del self.set.case[-1]  # an element type that TensorFlow does not take
                        return
                    if not error or error not in e.message:
                        raise
                    step.error_code, step.error_contains = e.error_code, error
                else:
                    if error:
                        raise AssertionError(f"{case.name} gave no error")
                    for t, value in zip(flat, values):
                        step.expected.append(
                            tf.make_tensor_proto(value, t.dtype).SerializeToString())
                    for t in flat:
                        case.inferred_shape.append(t.shape.as_proto().SerializeToString())
            first = flat[0].dtype if flat else None
            case.dtype = first.name if first else ""
            print(case.name, op, case.dtype, error or case.compare)

    def add_update(self, op, variables, inputs, **attrs):
        """Two steps of an optimizer; inputs and variables by the names of the op's definition."""
        with tf.Graph().as_default() as graph:
            handles, made = {}, []
            for name, value in variables.items():
                handles[name] = tf.raw_ops.VarHandleOp(
                    dtype=value.dtype, shape=value.shape, shared_name=name, name=name)
                made.append(tf.raw_ops.AssignVariableOp(
                    resource=handles[name], value=tf.constant(value), name="init_" + name))
            update = getattr(tf.raw_ops, op)(
                name="u", **handles, **{k: tf.constant(v) for k, v in inputs.items()}, **attrs)
            reads = [tf.raw_ops.ReadVariableOp(resource=h, dtype=variables[name].dtype)
                     for name, h in handles.items()]
            n = self.names[op] = self.names.get(op, 0) + 1
            case = self.set.case.add(name=f"{op}_{self.tag}_{n}", op=op, family=2, compare="close",
                                     dtype=reads[0].dtype.name, rtol=2e-5, atol=2e-6,
                                     graph_def=graph.as_graph_def().SerializeToString())
            with v1.Session(graph=graph) as session:
                session.run(made)
                case.step.add().target.extend(m.name for m in made)
                for _ in range(2):
                    session.run(update)
                    case.step.add().target.append(update.name)
                    step = case.step.add()
                    step.fetch.extend(t.name for t in reads)
                    step.expected.extend(
                        tf.make_tensor_proto(v, t.dtype).SerializeToString()
                        for t, v in zip(reads, session.run(reads)))
            print(case.name, op, case.dtype)

    def add_reference_update(self, op, variables, inputs, **attrs):
        """As add_update, of variables that are references."""
        with tf.Graph().as_default() as graph:
            refs = {name: tf.raw_ops.VariableV2(shape=value.shape, dtype=value.dtype,
                                                shared_name=name, name=name)
                    for name, value in variables.items()}
            made = [tf.raw_ops.Assign(ref=refs[name], value=tf.constant(value), name="init_" + name)
                    for name, value in variables.items()]
            update = getattr(tf.raw_ops, op)(
                name="u", **refs, **{k: tf.constant(v) for k, v in inputs.items()}, **attrs)
            reads = [tf.raw_ops.Identity(input=ref, name="read_" + name)
                     for name, ref in refs.items()]
            n = self.names[op] = self.names.get(op, 0) + 1
            case = self.set.case.add(name=f"{op}_{self.tag}_{n}", op=op, family=2, compare="close",
                                     dtype=reads[0].dtype.name, rtol=2e-5, atol=2e-6,
                                     graph_def=graph.as_graph_def().SerializeToString())
            with v1.Session(graph=graph) as session:
                session.run([m.op for m in made])
                case.step.add().target.extend(m.op.name for m in made)
                for _ in range(2):
                    session.run(update.op)
                    case.step.add().target.append(update.op.name)
                    step = case.step.add()
                    step.fetch.extend(t.name for t in reads)
                    step.expected.extend(
                        tf.make_tensor_proto(v, t.dtype).SerializeToString()
                        for t, v in zip(reads, session.run(reads)))
            print(case.name, op, case.dtype)

    def write(self, name="cases_later.pb"):
        with open(os.path.join(GOLDENS, name), "wb") as f:
            f.write(self.set.SerializeToString(deterministic=True))


def images(rng, *shape, dtype=np.float32):
    return rng.uniform(0, 1, shape).astype(dtype)


def record_images(r, rng):
    for dtype in (np.float32, np.float16):
        x = images(rng, 2, 3, 4, 3, dtype=dtype)
        loose = dict(rtol=1e-2, atol=2e-3) if dtype == np.float16 else {}
        r.add("RGBToHSV", {"images": x}, **loose)
        r.add("HSVToRGB", {"images": x}, **loose)
        r.add("AdjustContrastv2", {"images": x, "contrast_factor": np.float32(1.7)}, **loose)
        r.add("AdjustHue", {"images": x, "delta": np.float32(0.3)}, **loose)
        r.add("AdjustHue", {"images": x, "delta": np.float32(-0.7)}, **loose)
        r.add("AdjustSaturation", {"images": x, "scale": np.float32(0.4)}, **loose)
    gray = np.array([[0, 0, 0], [1, 1, 1], [.5, .5, .5], [1, 0, 0], [0, 1, 1], [.2, .9, .2]],
                    np.float64)
    r.add("RGBToHSV", {"images": gray})
    r.add("AdjustSaturation", {"images": gray.reshape(2, 3, 1, 3).astype(np.float32),
                               "scale": np.float32(3)})
    r.add("RGBToHSV", {"images": np.zeros((2, 4), np.float32)}, error="3 channels")
    for radius, bias, alpha, beta in ((5, 1., 1., .5), (2, 1., .0001, .75), (1, 2., .5, 1.)):
        x = rng.normal(size=(2, 2, 3, 7)).astype(np.float32)
        attrs = dict(depth_radius=radius, bias=bias, alpha=alpha, beta=beta)
        r.add("LRN", {"input": x}, **attrs)
        with tf.Graph().as_default(), v1.Session() as s:
            out = s.run(tf.raw_ops.LRN(input=x, **attrs))
        g = rng.normal(size=x.shape).astype(np.float32)
        r.add("LRNGrad", {"input_grads": g, "input_image": x, "output_image": out}, **attrs)
    x = rng.normal(size=(2, 7, 6, 2)).astype(np.float32)
    for padding in ("SAME", "VALID"):
        r.add("ExtractImagePatches", {"images": x}, ksizes=[1, 3, 2, 1], strides=[1, 2, 1, 1],
              rates=[1, 1, 1, 1], padding=padding, bits=True)
        r.add("ExtractImagePatches", {"images": x.astype(np.int32)}, ksizes=[1, 2, 3, 1],
              strides=[1, 3, 2, 1], rates=[1, 2, 2, 1], padding=padding, bits=True)
    boxes = np.array([[0, 0, 1, 1], [.1, .2, .7, .9], [.8, .9, .2, .1], [-.5, .3, 1.4, .6]],
                     np.float32)
    where = np.array([0, 1, 0, 1], np.int32)
    for size in ([3, 4], [1, 2], [6, 1]):
        for method in ("bilinear", "nearest"):
            r.add("CropAndResize", {"image": x, "boxes": boxes, "box_ind": where,
                                    "crop_size": np.int32(size)}, method=method,
                  extrapolation_value=-2.)
            g = rng.normal(size=(4, *size, 2)).astype(np.float32)
            r.add("CropAndResizeGradImage", {"grads": g, "boxes": boxes, "box_ind": where,
                                             "image_size": np.int32(x.shape)}, T=tf.float32,
                  method=method, atol=1e-5)
        r.add("CropAndResizeGradBoxes", {"grads": g, "image": x, "boxes": boxes,
                                         "box_ind": where}, rtol=1e-4, atol=1e-4)
    r.add("CropAndResize", {"image": x, "boxes": boxes, "box_ind": where + 1,
                            "crop_size": np.int32([2, 2])}, error="outside [0, batch_size)")
    corners = rng.uniform(0, 1, (20, 4)).astype(np.float32)
    scores = rng.uniform(0, 1, 20).astype(np.float32)
    scores[3] = scores[9]
    for iou, least, sigma in ((.5, .0, .0), (.1, .3, .0), (.6, .1, .5)):
        if not sigma:
            r.add("NonMaxSuppressionV3", {
                "boxes": corners, "scores": scores, "max_output_size": np.int32(7),
                "iou_threshold": np.float32(iou), "score_threshold": np.float32(least)}, bits=True)
        for pads in (False, True):
            r.add("NonMaxSuppressionV5", {
                "boxes": corners, "scores": scores, "max_output_size": np.int32(15),
                "iou_threshold": np.float32(iou), "score_threshold": np.float32(least),
                "soft_nms_sigma": np.float32(sigma)}, pad_to_max_output_size=pads)


def record_math(r, rng):
    a = rng.normal(size=(3, 4)).astype(np.float32)
    b = np.abs(rng.normal(size=(4,))).astype(np.float32)
    zero = a.copy()
    zero[1] = 0
    for dtype in (np.float32, np.float64, np.float16):
        loose = dict(rtol=5e-3, atol=1e-3) if dtype == np.float16 else {}
        r.add("Xlog1py", {"x": zero.astype(dtype), "y": b.astype(dtype)}, **loose)
    whole = rng.integers(-20, 20, (3, 4))
    for dtype in (np.int32, np.int64, np.float32, np.float64):
        r.add("Mod", {"x": whole.astype(dtype), "y": (whole[0] * 2 + 1).astype(dtype)})
    r.add("Mod", {"x": np.int32([1, 2]), "y": np.int32([1, 0])}, error="division by zero")
    for dtype in (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64):
        r.add("PopulationCount", {"x": np.array([0, 1, 7, 100, 127], dtype)}, bits=True)
    r.add("PopulationCount", {"x": np.array([-1, -128], np.int8)}, bits=True)
    r.add("Angle", {"input": np.array([1, 1j, -1 - 1j, 0], np.complex64)})
    r.add("Angle", {"input": np.array([1, 1j, -1 - 1j, 0], np.complex128)}, Tout=tf.float64)
    for dtype in (np.float32, np.int32, np.float64):
        r.add("Cross", {"a": whole.reshape(4, 3).astype(dtype),
                        "b": (whole.reshape(4, 3)[::-1] + 1).astype(dtype)})
    r.add("Cross", {"a": np.zeros((2, 4), np.float32), "b": np.zeros((2, 4), np.float32)},
          error="3-element")
    for k in (1, 2, 9):
        for dtype in (np.int32, np.int64):
            r.add("InTopKV2", {"predictions": a, "targets": np.array([0, 3, 5], dtype),
                               "k": dtype(k)}, bits=True)
    for exclusive in (False, True):
        for reverse in (False, True):
            for dtype in (np.float32, np.float64):
                r.add("CumulativeLogsumexp", {"x": a.astype(dtype) * 30, "axis": np.int32(-1)},
                      exclusive=exclusive, reverse=reverse)
    numbers = rng.integers(0, 9, 12).astype(np.int32)
    weights = rng.normal(size=12)
    for dtype in (np.int32, np.int64, np.float32, np.float64):
        r.add("Bincount", {"arr": numbers, "size": np.int32(7),
                           "weights": (weights * 9).astype(dtype)})
        r.add("Bincount", {"arr": numbers, "size": np.int32(12), "weights": np.array([], dtype)})
        for shape in ((12,), (3, 4)):
            for binary in (False, True):
                r.add("DenseBincount", {
                    "input": numbers.reshape(shape), "size": np.int32(8),
                    "weights": np.array([], dtype)}, binary_output=binary)
        r.add("DenseBincount", {"input": numbers.reshape(3, 4).astype(np.int64),
                                "size": np.int64(8), "weights": (weights * 9).reshape(3, 4).astype(dtype)})
        values = (rng.normal(size=20) * 4).astype(dtype)
        for count in (tf.int32, tf.int64):
            r.add("HistogramFixedWidth", {"values": values, "value_range": np.array([-3, 5], dtype),
                                          "nbins": np.int32(6)}, dtype=count)
        r.add("Bucketize", {"input": values}, boundaries=[-2., 0., 1.5])
    r.add("Bincount", {"arr": numbers - 2, "size": np.int32(7), "weights": np.float32([])},
          error="non-negative")
    r.add("HistogramFixedWidth", {"values": np.float32([1]), "value_range": np.float32([1, 1]),
                                  "nbins": np.int32(6)}, error="value_range should satisfy")
    r.add("HistogramFixedWidth", {"values": np.float32([1]), "value_range": np.float32([0, 1]),
                                  "nbins": np.int32(0)}, error="nbins should be a positive number")
    lists = np.sort(rng.integers(0, 9, (2, 6)), axis=1)
    for op in ("LowerBound", "UpperBound"):
        for dtype in (np.int32, np.float32, np.int64):
            r.add(op, {"sorted_inputs": lists.astype(dtype),
                       "values": rng.integers(-1, 11, (2, 5)).astype(dtype)}, bits=True)
        r.add(op, {"sorted_inputs": lists, "values": lists[:, :3]}, out_type=tf.int64, bits=True)
    for dtype in (np.int32, np.int64):
        r.add("UnravelIndex", {"indices": np.array([0, 5, 23, 7], dtype),
                               "dims": np.array([2, 3, 4], dtype)}, bits=True)
        r.add("UnravelIndex", {"indices": dtype(17), "dims": np.array([2, 3, 4], dtype)}, bits=True)
    r.add("UnravelIndex", {"indices": np.int32([24]), "dims": np.int32([2, 3, 4])},
          error="out of bound")
    repeated = np.int32([[1, 0, 1, 1], [2, 3, 2, 2], [1, 0, 1, 1]])
    for axis in ([0], [1], [-1]):
        for dtype in (np.int32, np.float32):
            r.add("UniqueV2", {"x": repeated.astype(dtype), "axis": np.int64(axis)}, bits=True)
    r.add("UniqueV2", {"x": np.int32([3, 1, 3, 2]), "axis": np.int64([])}, out_idx=tf.int64,
          bits=True)
    r.add("UniqueV2", {"x": np.array(["b", "a", "b"]), "axis": np.int64([0])}, bits=True)
    r.add("CheckNumericsV2", {"tensor": a}, message="here")
    for bad, text in (([np.inf], "+Inf values"), ([-np.inf, np.nan], "-Inf and NaN values"),
                      ([-np.inf, np.inf], "-Inf and +Inf values"), ([np.nan], "NaN values"),
                      ([-np.inf, np.inf, np.nan], "-Inf, +Inf, and NaN values")):
        r.add("CheckNumericsV2", {"tensor": np.float32(bad)}, message="here", error=text)
    r.add("GuaranteeConst", {"input": a})
    r.add("ShardedFilespec", {"basename": np.array("/a/b"), "num_shards": np.int32(7)}, bits=True)


def record_segments(r, rng):
    data = rng.normal(size=(6, 3))
    indices, ids = np.int32([0, 2, 5, 2]), np.int32([0, 0, 2, 3])
    for kind in ("Sum", "Mean", "SqrtN"):
        for dtype in (np.float32, np.float64):
            r.add(f"SparseSegment{kind}WithNumSegments", {
                "data": data.astype(dtype), "indices": indices, "segment_ids": ids,
                "num_segments": np.int32(6)})
            grad = data[:4].astype(dtype)
            for end in ("Grad", "GradV2"):
                size = {"dense_output_dim0" if end == "GradV2" else "output_dim0": np.int32(7)}
                r.add(f"SparseSegment{kind}{end}", {"grad": grad, "indices": indices,
                                                    "segment_ids": ids, **size})


def record_matrices(r, rng):
    for dtype in (np.float32, np.float64, np.complex64, np.complex128):
        a = rng.normal(size=(2, 3, 3)) + (1j * rng.normal(size=(2, 3, 3)) if dtype in (
            np.complex64, np.complex128) else 0)
        a, b = a.astype(dtype), rng.normal(size=(2, 3, 2)).astype(dtype)
        loose = dict(rtol=1e-4, atol=1e-4)
        r.add("MatrixDeterminant", {"input": a}, **loose)
        r.add("LogMatrixDeterminant", {"input": a}, **loose)
        for adjoint in (False, True):
            r.add("MatrixSolve", {"matrix": a, "rhs": b}, adjoint=adjoint, **loose)
            for lower in (False, True):
                r.add("MatrixTriangularSolve", {"matrix": a, "rhs": b}, adjoint=adjoint,
                      lower=lower, rtol=1e-3, atol=1e-3)
        r.add("MatrixTriangularSolve", {"matrix": a[:1], "rhs": b}, rtol=1e-3, atol=1e-3)
        r.add("MatrixTriangularSolve", {"matrix": a, "rhs": b[0]}, rtol=1e-3, atol=1e-3)
    singular = np.float32([[1, 2], [2, 4]])
    r.add("MatrixDeterminant", {"input": singular})
    r.add("MatrixDeterminant", {"input": np.zeros((2, 0, 0), np.float32)})
    r.add("MatrixSolve", {"matrix": singular, "rhs": np.float32([[1], [1]])},
          error="not invertible")
    r.add("MatrixTriangularSolve", {"matrix": np.float32([[0, 1], [1, 1]]),
                                    "rhs": np.float32([[1], [1]])})


def sparse(rng, shape, count, dtype):
    flat = np.sort(rng.choice(int(np.prod(shape)), count, replace=False))
    indices = np.stack(np.unravel_index(flat, shape), 1).astype(np.int64)
    return indices, (rng.normal(size=count) * 4).astype(dtype), np.int64(shape)


def record_sparse(r, rng):
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        a, b = sparse(rng, (3, 4), 5, dtype), sparse(rng, (3, 4), 6, dtype)
        two = dict(zip(("a_indices", "a_values", "a_shape"), a))
        two.update(zip(("b_indices", "b_values", "b_shape"), b))
        for least in (0, 2):
            r.add("SparseAdd", {**two, "thresh": dtype(least)})
        r.add("SparseSparseMaximum", two)
        r.add("SparseSparseMinimum", two)
        with tf.Graph().as_default(), v1.Session() as s:
            rows, sums, _ = s.run(tf.raw_ops.SparseAdd(**two, thresh=dtype(0)))
        r.add("SparseAddGrad", {"backprop_val_grad": sums, "a_indices": a[0], "b_indices": b[0],
                                "sum_indices": rows})
        for axis in (0, 1, -1):
            r.add("SparseConcat", {"indices": [a[0], b[0]], "values": [a[1], b[1]],
                                   "shapes": [a[2], b[2]]}, concat_dim=axis)
        one = dict(indices=a[0], values=a[1], shape=a[2])
        for start, size in (([1, 1], [2, 9]), ([0, 0], [3, 4]), ([2, 3], [1, 1]), ([1, 7], [1, 2])):
            r.add("SparseSlice", {**one, "start": np.int64(start), "size": np.int64(size)})
        for axis, parts in ((0, 2), (1, 3), (-1, 4)):
            r.add("SparseSplit", {**one, "split_dim": np.int64(axis)}, num_split=parts)
        of = dict(input_indices=a[0], input_values=a[1], input_shape=a[2])
        for axes in ([0], [1], [0, 1], [-1], []):
            for keep in (False, True):
                r.add("SparseReduceSum", {**of, "reduction_axes": np.int32(axes)}, keep_dims=keep)
                r.add("SparseReduceMax", {**of, "reduction_axes": np.int32(axes)}, keep_dims=keep)
        sp = dict(sp_indices=a[0], sp_values=a[1], sp_shape=a[2])
        for shape in ((3, 4), (4,), (1, 4), (3, 1)):
            dense = (np.abs(rng.normal(size=shape)) * 4 + 1).astype(dtype)
            for op in ("Add", "Mul", "Div"):
                r.add(f"SparseDenseCwise{op}", {**sp, "dense": dense})
        for index in (np.int32, np.int64):
            r.add("SparseTensorDenseAdd", {
                "a_indices": a[0].astype(index), "a_values": a[1], "a_shape": a[2].astype(index),
                "b": (rng.normal(size=(3, 4)) * 4).astype(dtype)})
    for dtype in (np.float32, np.float64):
        a = sparse(rng, (2, 3, 4), 9, dtype)
        r.add("SparseSoftmax", dict(zip(("sp_indices", "sp_values", "sp_shape"), a)))
    r.add("SparseAdd", {**two, "b_shape": np.int64([3, 5]), "thresh": np.int64(0)},
          error="shapes do not match")


def record_updates(r, rng):
    def some(*shape):
        return rng.uniform(0.1, 1, shape).astype(np.float32)

    f = np.float32
    rules = {
        "Adadelta": (("accum", "accum_update"), dict(lr=f(.3), rho=f(.9), epsilon=f(1e-2))),
        "AdagradV2": (("accum",), dict(lr=f(.3), epsilon=f(1e-2))),
        "KerasMomentum": (("accum",), dict(lr=f(.3), momentum=f(.8))),
        "ProximalAdagrad": (("accum",), dict(lr=f(.3), l1=f(.05), l2=f(.1))),
        "ProximalGradientDescent": ((), dict(alpha=f(.3), l1=f(.05), l2=f(.1))),
        "RMSProp": (("ms", "mom"), dict(lr=f(.3), rho=f(.9), momentum=f(.5), epsilon=f(1e-2))),
        "CenteredRMSProp": (("mg", "ms", "mom"),
                            dict(lr=f(.1), rho=f(.9), momentum=f(.5), epsilon=f(1))),
        "AdamWithAmsgrad": (("m", "v", "vhat"),
                            dict(beta1_power=f(.9), beta2_power=f(.99), lr=f(.3), beta1=f(.9),
                                 beta2=f(.99), epsilon=f(1e-2))),
    }
    for name, (slots, scalars) in rules.items():
        variables = {slot: some(4, 3) for slot in ("var",) + slots}
        if name in ("AdamWithAmsgrad", "KerasMomentum", "ProximalAdagrad",
                    "ProximalGradientDescent"):
            gradient = {"delta" if name == "ProximalGradientDescent" else "grad": some(4, 3) - f(.5)}
            r.add_update(f"ResourceApply{name}", variables, {**scalars, **gradient})
        if name == "AdamWithAmsgrad":
            continue
        for index in (np.int32, np.int64):  # one row twice
            r.add_update(f"ResourceSparseApply{name}", variables,
                         {**scalars, "grad": some(4, 3) - f(.5),
                          "indices": np.array([2, 0, 2, 3], index)})
    # Rows of variables. One row twice.
    for name in ("Add", "Sub", "Mul", "Min", "Max", "Update"):
        for index in (np.int32, np.int64):
            r.add_update(f"ResourceScatter{name}", {"resource": some(4, 3)},
                         {"indices": np.array([2, 0, 2], index), "updates": some(3, 3) - f(.5)})
    for name in ("Add", "Sub", "Update"):
        for index in (np.int32, np.int64):
            r.add_update(f"ResourceScatterNd{name}", {"ref": some(4, 3)},
                         {"indices": np.array([[2, 1], [0, 0], [3, 2]], index),
                          "updates": some(3) - f(.5)})
    for mode in ("REFLECT", "SYMMETRIC"):
        for dtype in (np.float32, np.float64, np.float16):
            r.add("MirrorPadGrad", {"input": some(7, 7).astype(dtype),
                                    "paddings": np.int32([[1, 2], [0, 3]])},
                  rtol=1e-2 if dtype == np.float16 else 1e-5, mode=mode)


def record_references(r, rng):
    def some(*shape):
        return rng.uniform(0.1, 1, shape).astype(np.float32)

    f = np.float32
    squares = ("gradient_accumulator", "gradient_squared_accumulator")
    rules = {
        "Adadelta": (("accum", "accum_update"), dict(lr=f(.3), rho=f(.9), epsilon=f(1e-2))),
        "AdagradDA": (squares, dict(lr=f(.3), l1=f(.05), l2=f(.1), global_step=np.int64(3))),
        "ProximalAdagrad": (("accum",), dict(lr=f(.3), l1=f(.05), l2=f(.1))),
        "ProximalGradientDescent": ((), dict(alpha=f(.3), l1=f(.05), l2=f(.1))),
        "RMSProp": (("ms", "mom"), dict(lr=f(.3), rho=f(.9), momentum=f(.5), epsilon=f(1e-2))),
        "CenteredRMSProp": (("mg", "ms", "mom"),
                            dict(lr=f(.1), rho=f(.9), momentum=f(.5), epsilon=f(1))),
    }
    for name, (slots, scalars) in rules.items():
        variables = {slot: some(4, 3) for slot in ("var",) + slots}
        if name in ("AdagradDA", "ProximalAdagrad", "ProximalGradientDescent"):
            gradient = {"delta" if name == "ProximalGradientDescent" else "grad": some(4, 3) - f(.5)}
            r.add_reference_update(f"Apply{name}", variables, {**scalars, **gradient})
            if name == "AdagradDA":
                r.add_update(f"ResourceApply{name}", variables, {**scalars, **gradient})
        for index in (np.int32, np.int64):  # one row twice
            rows = {**scalars, "grad": some(4, 3) - f(.5), "indices": np.array([2, 0, 2, 3], index)}
            r.add_reference_update(f"SparseApply{name}", variables, rows)
            if name == "AdagradDA":
                r.add_update(f"ResourceSparseApply{name}", variables, rows)


def record_batch_norm(r, rng):
    def some(*shape):
        return rng.uniform(0.2, 1, shape).astype(np.float32)

    def images(dtype):
        return rng.normal(1, 2, (3, 4, 2, 5)).astype(dtype.as_numpy_dtype)

    names = ("mean", "variance")
    given = {name: some(5) for name in names}
    none = {name: np.zeros(0, np.float32) for name in names}
    scales = {"scale": some(5), "offset": some(5)}
    saved = {"reserve_space_1": some(5), "reserve_space_2": some(5)}
    for version in ("", "V2"):
        for dtype in (tf.float32, tf.float16, tf.bfloat16) if version else (tf.float32,):
            loose = {} if dtype == tf.float32 else dict(rtol=1e-2, atol=1e-2)
            x = {"x": images(dtype)}
            r.add("FusedBatchNorm" + version, {**x, **scales, **none}, epsilon=.01, **loose)
            for attrs in (dict(exponential_avg_factor=.3), dict(is_training=False)):
                r.add("FusedBatchNorm" + version, {**x, **scales, **given}, epsilon=.01, **attrs,
                      **loose, feed=True,  # TensorFlow folds constants into a wrong graph
                      fetched=None if attrs.get("is_training", True) else 3)  # it sets no others
            for training in (True, False):
                r.add("FusedBatchNormGrad" + version,
                      {"y_backprop": images(dtype), **x, "scale": scales["scale"], **saved},
                      epsilon=.01, is_training=training, **loose)
    x = {"x": images(tf.float32)}
    r.add("FusedBatchNormV2", {"x": x["x"][0], **scales, **none}, error="be 4")
    r.add("FusedBatchNormV2", {**x, **scales, **none, "offset": some(4)},
          error="offset must have the same number of elements")


def record_small_floats(r, rng):
    """What networks of half and bfloat16 compute. TensorFlow adds some of these up in 16 bits."""
    for dtype in (tf.float16, tf.bfloat16):
        small = dtype.as_numpy_dtype
        loose = dict(rtol=1e-2, atol=1e-2) if dtype == tf.float16 else dict(rtol=4e-2, atol=6e-2)

        def some(*shape):
            return rng.normal(size=shape).astype(small)

        record_small_pools(r, some, loose)
        record_small_products(r, some, loose)
        vectors = {k: rng.uniform(.2, 1, 5).astype(np.float32) for k in ("mean", "variance")}
        none = {k: np.zeros(0, np.float32) for k in vectors}
        scales = {k: rng.uniform(.2, 1, 5).astype(np.float32) for k in ("scale", "offset")}
        x = {"x": some(3, 4, 2, 5)}
        # Of what goes to the gradient every engine has its own.
        r.add("FusedBatchNormV3", {**x, **scales, **none}, epsilon=.01, fetched=3, **loose)
        r.add("FusedBatchNormV3", {**x, **scales, **vectors}, epsilon=.01, is_training=False,
              feed=True, fetched=1, **loose)
        saved = {"reserve_space_1": vectors["mean"], "reserve_space_2": vectors["variance"],
                 "reserve_space_3": np.zeros(0, np.float32)}
        for training in (True, False):
            r.add("FusedBatchNormGradV3", {"y_backprop": some(3, 4, 2, 5), **x,
                                           "scale": scales["scale"], **saved},
                  epsilon=.01, is_training=training, fetched=3, **loose)
        labels = rng.dirichlet(np.ones(7), 6).astype(small)
        r.add("SoftmaxCrossEntropyWithLogits", {"features": some(6, 7), "labels": labels}, **loose)
        for index in (np.int32, np.int64):
            r.add("SparseSoftmaxCrossEntropyWithLogits",
                  {"features": some(6, 7), "labels": np.array([0, 6, 3, 3, 1, 5], index)}, **loose)


def record_small_pools(r, some, loose):
    x = some(2, 6, 5, 3)
    for padding, size, stride in (("SAME", 3, 2), ("VALID", 2, 1)):
        attrs = dict(ksize=[1, size, size, 1], strides=[1, stride, stride, 1], padding=padding)
        r.add("AvgPool", {"value": x}, **attrs, **loose)
        r.add("MaxPool", {"input": x}, **attrs, **loose)
        with tf.Graph().as_default(), v1.Session() as s:
            out = s.run(tf.raw_ops.MaxPool(input=x, **attrs))
        g = some(*out.shape)
        r.add("MaxPoolGrad", {"orig_input": x, "orig_output": out, "grad": g}, **attrs, **loose)
        r.add("AvgPoolGrad", {"orig_input_shape": np.int32(x.shape), "grad": g}, **attrs, **loose)


def record_small_products(r, some, loose):
    for adj_x in (False, True):
        for adj_y in (False, True):
            x = some(2, 3, 6, 4) if adj_x else some(2, 3, 4, 6)
            y = some(2, 3, 5, 6) if adj_y else some(2, 3, 6, 5)
            r.add("BatchMatMul", {"x": x, "y": y}, adj_x=adj_x, adj_y=adj_y, **loose)
            r.add("BatchMatMulV2", {"x": x, "y": y[:1, :1]}, adj_x=adj_x, adj_y=adj_y, **loose)
    x = some(2, 5, 6, 2)
    for padding, stride in (("SAME", 2), ("VALID", 1)):
        attrs = dict(strides=[1, stride, stride, 1], padding=padding)
        for op, filter_ in (("Conv2D", some(3, 2, 2, 4)), ("DepthwiseConv2dNative", some(3, 2, 2, 2))):
            with tf.Graph().as_default(), v1.Session() as s:
                shape = s.run(getattr(tf.raw_ops, op)(input=x, filter=filter_, **attrs)).shape
            g = some(*shape)
            r.add(op, {"input": x, "filter": filter_}, **attrs, **loose)
            r.add(op + "BackpropInput", {"input_sizes": np.int32(x.shape), "filter": filter_,
                                         "out_backprop": g}, **attrs, **loose)
            r.add(op + "BackpropFilter", {"input": x, "filter_sizes": np.int32(filter_.shape),
                                          "out_backprop": g}, **attrs, **loose)


def main():
    recorder, rng = Recorder(), np.random.default_rng(5)
    for record in (record_images, record_math, record_segments, record_matrices, record_sparse,
                   record_updates, record_batch_norm, record_small_floats,
                   record_references):
        record(recorder, rng)
    recorder.write()


if __name__ == "__main__":
    main()
