# SPDX-License-Identifier: Apache-2.0
"""Records what TensorFlow says of ops that came late: distributions, rows of different lengths,
characters, summaries, parsers.

    python record_further.py
writes ../goldens/opdefs/ops_further.pb, ../goldens/kernels/cases_further.pb and
../goldens/gradients/cases_further.pb; see record_kernels.py and record_gradients.py. Of random ops the bits are recorded, of two calls where they have a state.
"""
import gzip
import os
import zlib

from record_gradients import GRADIENTS, record_graph
from record_kernels import HERE, golden_module, np, tf, v1
from record_relatives import Programs

from tensorflow.core.framework import op_def_pb2
from tensorflow.python.framework import op_def_registry

f = np.float32
FLOATS = (np.float16, f, np.float64)
COUNTS = FLOATS + (np.int32, np.int64)

OPS = """
AnonymousIterator AnonymousIteratorV2 AnonymousMemoryCache AnonymousMultiDeviceIterator
AnonymousRandomSeedGenerator AnonymousSeedGenerator AudioSummary AudioSummaryV2 ConsumeMutexLock
Copy CopyHost DecodeCompressed DeleteIterator DeleteMemoryCache DeleteMultiDeviceIterator
DeleteRandomSeedGenerator DeleteSeedGenerator IteratorGetDevice MutexLock MutexV2
NonDeterministicInts ParameterizedTruncatedNormal ParseSequenceExample ParseSingleSequenceExample
PlaceholderV2 RaggedBincount RaggedGather RaggedTensorFromVariant RaggedTensorToSparse
RaggedTensorToTensor RaggedTensorToVariant RaggedTensorToVariantGradient RandomCrop RandomDatasetV2
RandomGamma RandomGammaGrad RandomPoisson RandomPoissonV2 RebatchDataset SamplingDataset
ShuffleAndRepeatDatasetV2 ShuffleDatasetV2 SparseTensorSliceDataset StatefulRandomBinomial
StatefulStandardNormal StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform
StatefulUniformFullInt StatefulUniformInt StatelessParameterizedTruncatedNormal
StatelessRandomBinomial StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessRandomPoisson
StringNGrams UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeTranscode
""".split()


def record_definitions():
    ops = op_def_pb2.OpList(op=[op_def_registry.get(name) for name in OPS])
    with open(os.path.join(HERE, "..", "goldens", "opdefs", "ops_further.pb"), "wb") as file:
        file.write(ops.SerializeToString(deterministic=True))


def add_generator(r, op, inputs, state=(2**64 - 500, 7, 123456789), error="", **attrs):
    """Two calls of an op that draws from a generator in a variable, and what it left there."""
    with tf.Graph().as_default() as graph:
        older = v1.GraphDef()
        older.versions.producer = 28  # one of the ops is deprecated
        tf.import_graph_def(older)
        start = np.array(state, np.uint64).view(np.int64)
        handle = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=start.shape, shared_name="g",
                                        name="g")
        made = tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(start), name="made")
        y = getattr(tf.raw_ops, op)(name="y", resource=handle,
                                    **{k: tf.constant(v) for k, v in inputs.items()}, **attrs)
        read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64, name="read")
        n = r.names[op] = r.names.get(op, 0) + 1
        # Sines of float32 are vectorised there.
        close = y.dtype == tf.float32 and "Normal" in op
        case = r.set.case.add(name=f"{op}_{r.tag}_{n}", op=op, family=2, rtol=1e-5, atol=1e-6,
                              compare="close" if close else "bits", dtype=y.dtype.name,
                              graph_def=graph.as_graph_def().SerializeToString())
        config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        with v1.Session(graph=graph, config=config) as session:
            session.run(made)
            case.step.add().target.append(made.name)
            if error:
                step = case.step.add(fetch=[y.name], error_contains=error)
                try:
                    session.run(y)
                except tf.errors.OpError as e:
                    if error not in e.message:
                        raise
                    step.error_code = e.error_code
                else:
                    raise AssertionError(f"{case.name} gave no error")
                print(case.name, op, error)
                return
            # TensorFlow loses the first move of the state of this one, which lies in a buffer that
            # something else shares.
            once = op == "StatefulRandomBinomial"
            for _ in range(1 if once else 2):
                for t in (y,) if once else (y, read):
                    step = case.step.add(fetch=[t.name])
                    step.expected.append(
                        tf.make_tensor_proto(session.run(t), t.dtype).SerializeToString())
        print(case.name, op, case.dtype)


def record_generators(r):
    one, shape = np.int64(1), np.int64([3, 5])
    for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
        for op in ("StatefulUniform", "StatefulStandardNormalV2", "StatefulTruncatedNormal"):
            add_generator(r, op, dict(algorithm=one, shape=shape), dtype=dtype)
        add_generator(r, "StatefulStandardNormal", dict(shape=shape), state=(1, 2**64 - 3, 9, 4),
                      dtype=dtype)
    for dtype in (tf.int32, tf.int64, tf.uint32, tf.uint64):
        add_generator(r, "StatefulUniformFullInt", dict(algorithm=one, shape=shape), dtype=dtype)
    for dtype in (np.int32, np.int64):
        add_generator(r, "StatefulUniformInt",
                      dict(algorithm=np.int64(3), shape=np.int32([7]), minval=dtype(-3),
                           maxval=dtype(1000)))
    op, some = "StatefulUniform", dict(algorithm=one, shape=shape)
    add_generator(r, op, dict(some, shape=np.int64([2, 0])))
    add_generator(r, op, dict(some, algorithm=np.int64(2)),
                  error="Non-XLA devices don't support the ThreeFry algorithm.")
    add_generator(r, op, dict(some, algorithm=np.int64(7)), error="Unsupported algorithm id: 7")
    add_generator(r, op, some, state=(1, 2),
                  error="the size of state must be at least 3; got 2")
    add_generator(r, "StatefulStandardNormal", dict(shape=shape), state=(1, 2, 3),
                  error="the size of state must be at least 4; got 3")
    add_generator(r, "StatefulUniformInt", dict(some, minval=one, maxval=one),
                  error="Need minval < maxval, got 1 >= 1")


def record_distributions(r):
    seeds = dict(seed=3, seed2=5)
    shape, seed = np.int32([40]), np.int64([7, -9])
    for dtype in FLOATS:
        alpha = dtype([[.1, .7, 1], [1.5, 20, 3000]])
        r.add("RandomGamma", dict(shape=shape, alpha=alpha), bits=True, **seeds)
        r.add("StatelessRandomGammaV2", dict(shape=np.int32([9, 2, 3]), seed=seed, alpha=alpha),
              bits=True)
        r.add("StatelessRandomGammaV3",
              dict(shape=np.int64([9, 2, 3]), key=np.uint64([3]), counter=np.uint64([4, 5]),
                   alg=np.int32(1), alpha=alpha), bits=True)
        r.program("RandomPoisson", lambda: tf.raw_ops.RandomPoisson(
            shape=shape, rate=dtype([.5, 12]), name="y", **seeds), producer=24)
    for rate in COUNTS:
        rates = [0, 1, 3, 9, 10, 25, 4000] if np.issubdtype(rate, np.integer) else \
            [0, .01, 3.5, 9.99, 10, 12.5, 1000]
        for out in COUNTS:
            r.add("RandomPoissonV2", dict(shape=shape, rate=rate(rates)), dtype=out, bits=True,
                  **seeds)
            r.add("StatelessRandomPoisson", dict(shape=np.int32([20, 7]), seed=seed,
                                                 lam=rate(rates)), dtype=out, bits=True)
    for dtype in FLOATS:
        for out in COUNTS:
            counts, probs = dtype([[10], [400], [2000]]), dtype([0, .001, .3, .5, .77, .999, 1])
            r.add("StatelessRandomBinomial", dict(shape=np.int64([5, 3, 7]), seed=seed,
                                                  counts=counts, probs=probs), dtype=out, bits=True)
    for counts, probs in (([20, 1000], [.2, .9]), ([3], [.5])):
        add_generator(r, "StatefulRandomBinomial",
                      dict(algorithm=np.int64(1), shape=np.int32([4, 5, len(counts)]),
                           counts=f(counts), probs=f(probs)), dtype=tf.int32)
    op, tail = "StatelessRandomGammaV2", "Shape passed in must end with broadcasted shape."
    some = dict(shape=np.int32([4, 3]), seed=seed, alpha=f([1, 2]))
    r.add(op, some, error=tail)
    some = dict(shape=np.int32([4, 3]), seed=seed, lam=f([1, 2]))
    r.add("StatelessRandomPoisson", some, error=tail, dtype=tf.int32)
    some = dict(shape=np.int32([4, 3]), seed=seed, counts=f([1, 2]), probs=f(.5))
    r.add("StatelessRandomBinomial", some, error=tail, dtype=tf.int32)
    r.add("StatelessRandomBinomial", dict(some, counts=f([1, 2, 3]), probs=f([.5, .5])),
          error="counts and probs must have compatible batch dimensions: [3] vs. [2]",
          dtype=tf.int32)


def record_gamma_gradients(r):
    small, large = np.array([.01, .3, 1, 2, 7.5])[:, None], np.array([40, 900])[:, None]
    for dtype in (f, np.float64):
        # Where TensorFlow's series neither underflow nor end too early.
        for alpha, ratio in ((small, [.001, .3, .9]), (small, [1, 1.1, 2, 5]), (large, [.99, 1.1])):
            sample = alpha * np.array(ratio)
            r.add("RandomGammaGrad", dict(alpha=dtype(alpha), sample=dtype(sample)),
                  rtol=2e-4 if dtype == f else 1e-8)
        r.add("RandomGammaGrad", dict(alpha=dtype([1, 0, -1, 2]), sample=dtype([0, 1, 1, -1])))


def record_truncated_normals(r):
    seeds = dict(seed=3, seed2=5)
    bounds = ((0, 1, -2, 3), (1, 2, 3, 3.5), (0, 1, 2, np.inf), (-1, .5, -np.inf, -2),
              (5, 1, 2, 2.5), (0, 1, -.3, .2))
    for dtype in FLOATS:
        for mean, deviation, low, high in bounds:
            one = dict(means=dtype(mean), stdevs=dtype(deviation), minvals=dtype(low),
                       maxvals=dtype(high))
            r.add("ParameterizedTruncatedNormal", dict(shape=np.int32([7, 23]), **one),
                  bits=dtype != f, **seeds)
        columns = [dtype(column) for column in zip(*bounds)]
        many = dict(zip(("means", "stdevs", "minvals", "maxvals"), columns))
        r.add("ParameterizedTruncatedNormal", dict(shape=np.int64([6, 11]), **many),
              bits=dtype != f, **seeds)
        many["stddevs"] = many.pop("stdevs")
        many["means"] = many["means"][:1]
        many["stddevs"] = many["stddevs"][0]
        r.add("StatelessParameterizedTruncatedNormal",
              dict(shape=np.int32([9, 6]), seed=np.int32([2, 3]), **many), bits=dtype != f)
    op = "ParameterizedTruncatedNormal"
    some = dict(shape=np.int32([4, 3]), means=f(0), stdevs=f(1), minvals=f(-1), maxvals=f(1))
    r.add(op, dict(some, stdevs=f(0)), error="Invalid parameters")
    r.add(op, dict(some, minvals=f(2)), error="Invalid parameters")
    r.add(op, dict(some, shape=np.zeros([0], np.int32)), error="Shape tensor must not be empty")
    r.add(op, dict(some, means=f([1, 2])),
          error="Input means should have length 1 or shape[0], got shape: [2]")
    r.add(op, dict(some, maxvals=f([[1]])),
          error="Input maxvals should be a scalar or vector, got shape: [1,1]")


def record_crops(r):
    def crop(image, size, error=""):
        r.program("RandomCrop", lambda: tf.raw_ops.RandomCrop(
            image=image, size=np.int64(size), seed=3, seed2=5, name="y"), error, producer=7)

    for dtype in (np.uint8, np.int8, np.int16, np.int32, np.int64, f, np.float64):
        image = np.arange(6 * 7 * 2).reshape(6, 7, 2).astype(dtype)
        for size in ([2, 3], [6, 2], [5, 7], [6, 7], [0, 3]):
            crop(image, size)
    crop(np.zeros([2, 3, 1], f), [3, 3], "height must be >= target_height: height = 2, "
         "target_height = 3")
    crop(np.zeros([2, 3, 1], f), [2, 4], "width must be >= target_width: width = 3, "
         "target_width = 4")


def texts(*values):
    return np.array(values, object)


def record_ragged(r):
    splits, inner, values = [0, 2, 2, 3], [0, 2, 5, 5], np.arange(5) * 10
    types = (np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64, np.uint32, np.uint64,
             np.float16, f, np.float64, np.complex64, np.complex128, np.bool_, object)
    for dtype in types:
        flat = texts(*map(str, values)) if dtype == object else values.astype(dtype)
        for split, index in ((np.int32, np.int64), (np.int64, np.int32)):
            levels = [np.array(splits, split), np.array(inner, split)]
            r.add("RaggedGather", dict(params_nested_splits=levels, params_dense_values=flat,
                                       indices=np.array([[2, 0], [1, 2]], index)),
                  OUTPUT_RAGGED_RANK=3, bits=True)
            r.add("RaggedTensorToSparse", dict(rt_nested_splits=levels, rt_dense_values=flat),
                  bits=True)
            r.add("RaggedTensorToTensor", dict(
                shape=np.int64(-1), values=flat, default_value=flat[3], row_partition_tensors=levels),
                row_partition_types=["ROW_SPLITS", "ROW_SPLITS"], bits=True)
    wide = np.arange(30, dtype=f).reshape(5, 2, 3)
    one = np.int64(inner)
    for indices in (np.int64(1), np.int64([]), np.int64([1, 1, 0, 2]), np.zeros([2, 0, 3], np.int64)):
        r.add("RaggedGather", dict(params_nested_splits=[one], params_dense_values=wide,
                                   indices=indices), OUTPUT_RAGGED_RANK=indices.ndim, bits=True)
    gather = dict(params_nested_splits=[np.int64(splits), one], params_dense_values=wide,
                  indices=np.int64([0, 2]))

    def bad_gather(error, **changed):
        r.add("RaggedGather", dict(gather, **changed), OUTPUT_RAGGED_RANK=2, error=error)

    bad_gather("indices[1] = 3 is not in [0, 3)", indices=np.int64([0, 3]))
    bad_gather("indices[0] = -1 is not in [0, 3)", indices=np.int64([-1, 0]))
    bad_gather("Ragged splits must not point past values",
               params_nested_splits=[np.int64(splits), np.int64([0, 2, 5, 6])])
    bad_gather("Ragged splits must be sorted",
               params_nested_splits=[np.int64(splits), np.int64([0, 3, 2, 5])])
    bad_gather("Ragged splits must be non-negative",
               params_nested_splits=[np.int64(splits), np.int64([-1, 3, 2, 5])])
    r.add("RaggedTensorToSparse", dict(rt_nested_splits=[one], rt_dense_values=wide), bits=True)
    r.add("RaggedTensorToSparse", dict(rt_nested_splits=[np.int64([0, 0, 0])],
                                       rt_dense_values=wide[:0]), bits=True)
    for levels, error in (
            ([np.int64([]), one], "ragged splits may not be empty."),
            ([np.int64([1, 2, 3]), one], "First value of ragged splits must be 0."),
            ([np.int64([0, 2, 1, 3]), one], "Ragged splits should be non decreasing, but we got 2 "
             "followed by 1"),
            ([np.int64([0, 2, 2]), one], "Final value of ragged splits must match the length"),
            ([np.int64([0, 1, 2, 4])], "Final value of ragged splits must match the length")):
        r.add("RaggedTensorToSparse", dict(rt_nested_splits=levels, rt_dense_values=wide),
              error=error)


def record_ragged_tensors(r):
    values = np.arange(1, 10, dtype=np.int32)
    wide = np.arange(18, dtype=f).reshape(9, 2)
    splits, ids = [0, 3, 3, 7, 9], [0, 0, 0, 2, 2, 2, 2, 3, 3]

    def add(shape, flat, standard, tensors, types, index=np.int64, **more):
        r.add("RaggedTensorToTensor", dict(
            shape=shape, values=flat, default_value=standard,
            row_partition_tensors=[np.array(t, index) for t in tensors]),
            row_partition_types=types, **more)

    for index in (np.int32, np.int64):
        for shape in (np.int64(-1), np.int32([-1, -1]), np.int64([4, 2]), np.int64([2, 5]),
                      np.int64([6, -1]), np.int64([0, 3])):
            add(shape, values, np.int32(-7), [splits], ["ROW_SPLITS"], index, bits=True)
            add(shape, values, np.int32(-7), [4, ids], ["FIRST_DIM_SIZE", "VALUE_ROWIDS"], index,
                bits=True)
    for standard in (f(5), f([8]), f([8, 9])):
        add(np.int64([-1, -1, 2]), wide, standard, [splits], ["ROW_SPLITS"], bits=True)
    for shape in ([-1, -1, -1], [2, 3, 2], [3, 1, 9]):
        add(np.int64(shape), values, np.int32(0), [[0, 2, 4], splits], ["ROW_SPLITS"] * 2, bits=True)
        add(np.int64(shape), values, np.int32(0), [2, [0, 0, 1, 1], ids],
            ["FIRST_DIM_SIZE", "VALUE_ROWIDS", "VALUE_ROWIDS"], bits=True)
        add(np.int64(shape), values, np.int32(0), [[0, 3, 4], ids], ["ROW_SPLITS", "VALUE_ROWIDS"],
            bits=True)
    add(np.int64(-1), values[:0], np.int32(0), [[0, 0]], ["ROW_SPLITS"], bits=True)
    add(np.int64(-1), values, np.int32(0), [[0, 2, 9], splits[:2]], ["ROW_SPLITS"] * 2, bits=True)
    add(np.int64(-1), values, np.int32(0), [5, ids], ["FIRST_DIM_SIZE", "VALUE_ROWIDS"], bits=True)
    for shape, flat, standard, tensors, types, error in (
            (np.int64(-1), values, np.int32(0), [3, ids], ["FIRST_DIM_SIZE", "VALUE_ROWIDS"],
             "Got next_value_rowid=3 which is not less than 3"),
            (np.int64([2, 2, 2]), values, np.int32(0), [splits], ["ROW_SPLITS"],
             "are incompatible: rt_input.rank = 2 but shape.rank = 3"),
            (np.int64([2, 2, 5]), wide, f(0), [splits], ["ROW_SPLITS"],
             "are incompatible: rt_input.shape[2] = 2 but shape[2] = 5"),
            (np.int64(-1), values, np.int32([0]), [splits], ["ROW_SPLITS"],
             "are incompatible: default_value.rank = 1  must be less than"),
            (np.int64(-1), wide, f([1, 2, 3]), [splits], ["ROW_SPLITS"],
             "are incompatible: default_value.shape[-1] = 3 but"),
            (np.int64(-1), values, np.int32(0), [[]], ["ROW_SPLITS"],
             "Invalid first partition input. Tensor requires at least one element."),
            (np.int64(-1), values, np.int32(0), [[0, 3, 2, 9]], ["ROW_SPLITS"],
             "Invalid row split size")):
        add(shape, flat, standard, tensors, types, error=error)


def record_ragged_variants(r):
    raw = tf.raw_ops
    values = np.arange(10, dtype=f).reshape(5, 2)
    for split in (np.int32, np.int64):
        levels = [np.array([0, 2, 2, 3], split), np.array([0, 2, 5, 5], split)]
        tsplits = tf.as_dtype(split)

        def back(levels=levels, batched=True, inner=1, outer=2, tsplits=tsplits):
            encoded = raw.RaggedTensorToVariant(rt_nested_splits=[tf.constant(level) for level in levels],
                                                rt_dense_values=values,
                                                batched_input=batched)
            out = raw.RaggedTensorFromVariant(
                encoded_ragged=encoded, input_ragged_rank=inner, output_ragged_rank=outer,
                Tvalues=tf.float32, Tsplits=tsplits, name="y")
            return list(out.output_nested_splits) + [out.output_dense_values]

        op = "RaggedTensorFromVariant"
        r.program(op, back)
        r.program(op, lambda: back(inner=-1))
        r.program(op, lambda: back(batched=False, inner=2))
        r.program(op, lambda: back(levels[1:], inner=0, outer=1))
        r.program(op, lambda: back(levels[1:], batched=False, inner=1, outer=1))
        r.program(op, lambda: back([], batched=False, inner=0, outer=0))
        r.program(op, lambda: back(inner=0, outer=1),
                  error="Encoded input RaggedTensorVariant has ragged_rank=1.  Expected "
                  "ragged_rank=0.")

        def rows(index, levels=levels, tsplits=tsplits):
            encoded = raw.RaggedTensorToVariant(rt_nested_splits=[tf.constant(level) for level in levels],
                                                rt_dense_values=values,
                                                batched_input=True)
            out = raw.RaggedTensorFromVariant(
                encoded_ragged=tf.gather(encoded, index), input_ragged_rank=1,
                output_ragged_rank=1 + np.ndim(index), Tvalues=tf.float32, Tsplits=tsplits, name="y")
            return list(out.output_nested_splits) + [out.output_dense_values]

        r.program(op, lambda: rows([2, 0, 2]))
        r.program(op, lambda: rows(0))
        r.program(op, lambda: rows([[2, 0], [1, 1]]))
        r.program(op, lambda: rows(np.zeros([0], np.int32)))

        def gradient(shape, used=(0, 1, 2), levels=levels):
            encoded = raw.RaggedTensorToVariant(
                rt_nested_splits=[tf.constant(levels[1])], rt_dense_values=values * 3,
                batched_input=True)
            return raw.RaggedTensorToVariantGradient(
                encoded_ragged_grad=tf.gather(encoded, used), row_splits=levels[1],
                dense_values_shape=np.int32(shape), Tvalues=tf.float32, name="y")

        r.program("RaggedTensorToVariantGradient", lambda: gradient([5, 2]))
        r.program("RaggedTensorToVariantGradient", lambda: gradient([2, 2], (0,)))

        def twice(levels=levels, tsplits=tsplits):
            encoded = raw.RaggedTensorToVariant(rt_nested_splits=[tf.constant(level) for level in levels],
                                                rt_dense_values=values,
                                                batched_input=False)
            encoded = raw.AddN(inputs=[encoded, encoded, raw.ZerosLike(x=encoded)])
            out = raw.RaggedTensorFromVariant(
                encoded_ragged=encoded, input_ragged_rank=2, output_ragged_rank=2,
                Tvalues=tf.float32, Tsplits=tsplits, name="y")
            return list(out.output_nested_splits) + [out.output_dense_values]

        r.program("RaggedTensorToVariant", twice)

    def bad(levels):
        return lambda: raw.RaggedTensorFromVariant(
            encoded_ragged=raw.RaggedTensorToVariant(
                rt_nested_splits=[np.int64(level) for level in levels], rt_dense_values=values,
                batched_input=True), input_ragged_rank=len(levels) - 1,
            output_ragged_rank=len(levels), Tvalues=tf.float32, name="y").output_dense_values

    for levels, error in (([[1, 5]], "first element of ragged splits  must be 0 but is 1"),
                          ([[0, 3, 2, 5]], "ragged splits must be monotonically increasing, but "
                           "ragged_splits[2]=2 is smaller than row_splits[1]=3"),
                          ([[0, 4]], "last element of ragged splits must be the number of ragged "
                           "values(5) but is 4")):
        r.program("RaggedTensorToVariant", bad(levels), error=error)


def record_ragged_counts(r):
    for weight in (np.int32, np.int64, f, np.float64):
        for index in (np.int32, np.int64):
            for weights in (np.zeros([0], weight), np.array([1, 2, 3, 4, 5], weight)):
                for binary in (False, True):
                    r.add("RaggedBincount", dict(
                        splits=np.int64([0, 2, 2, 5]), values=np.array([1, 1, 0, 4, 9], index),
                        size=index(5), weights=weights), binary_output=binary, bits=True)
    some = dict(splits=np.int64([0, 2]), values=np.int32([1, 1]), size=np.int32(3),
                weights=np.zeros([0], f))
    for changed, error in (
            (dict(size=np.int32(-1)), "size (-1) must be non-negative"),
            (dict(size=np.int32([3])), "Shape must be rank 0 but is rank 1"),
            (dict(splits=np.int64([])), "Splits must be non-empty"),
            (dict(splits=np.int64([1, 2])), "Splits must start with 0, not with 1"),
            (dict(splits=np.int64([0, 3])), "Splits must end with the number of values, got 3 "
             "instead of 2"),
            (dict(values=np.int32([1, -1])), "Input must be non-negative")):
        r.add("RaggedBincount", dict(some, **changed), error=error)


def record_ngrams(r):
    words = texts("a", "bb", "", "c", "dd", "e")
    for split in (np.int32, np.int64):
        for widths in ([1], [2], [3, 2], [5], []):
            for pads in (-1, 0, 1, 4):
                for short in (False, True):
                    if pads < 0 and short and not widths:
                        continue
                    r.add("StringNGrams", dict(data=words, data_splits=np.array([0, 4, 4, 6], split)),
                          separator="|", ngram_widths=widths, left_pad="L", right_pad="R",
                          pad_width=pads, preserve_short_sequences=short, bits=True)
    attrs = dict(separator=" ", ngram_widths=[2], left_pad="", right_pad="", pad_width=0,
                 preserve_short_sequences=False)
    r.add("StringNGrams", dict(data=words[:0], data_splits=np.int64([0, 0])), bits=True, **attrs)
    for splits, error in (([1, 6], "First split value must be 0, got 1"),
                          ([0, 3, 2, 6], "Invalid split value 2, must be in [3, 6]"),
                          ([0, 5], "Last split value must be data size. Expected 6, got 5")):
        r.add("StringNGrams", dict(data=words, data_splits=np.int64(splits)), error=error, **attrs)
    for changed, error in ((dict(ngram_widths=[0]), "ngram_widths must contain positive values"),
                           (dict(ngram_widths=[2**31 - 1], pad_width=-1),
                            "Pad width could lead to integer overflow, got pad_width = 2147483646")):
        r.add("StringNGrams", dict(data=words, data_splits=np.int64([0, 6])), error=error,
              **dict(attrs, **changed))


def record_unicode(r):
    some = "aé€😀\x01\tz"
    bad8 = [b"", b"ok", b"\xff", b"a\xe2\x82", b"\xe2\x82z", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
            b"\xc0\x80", b"\xf0\x9f\x98", b"\xf0\x9f\x98a\x80", b"\x80\x80", b"\xef\xbb\xbfx",
            some.encode()]
    bad16 = [b"", "ab€😀".encode("utf-16-be"), b"\xd8\x00", b"\xd8\x00\x00a", b"\xdc\x00\x00a",
             b"\x00", b"\x00a\x00", b"\xd8\x3d\xde", b"\xfe\xff\x00a", b"\xff\xfea\x00", b"\xfe\xff"]
    bad32 = [b"", "ab€😀".encode("utf-32-be"), b"\0\0\xd8\0", b"\0\x11\0\0", b"\0\0\0",
             b"\0\0\xfe\xff\0\0\0a", b"\xff\xfe\0\0a\0\0\0", b"\0\0\0a\0"]
    inputs = (("UTF-8", bad8), ("utf8", [some.encode()]), ("UTF-16-BE", bad16),
              ("UTF-16", bad16), ("UTF-16LE", ["ab€😀".encode("utf-16-le"), b"a"]),
              ("UTF-32-BE", bad32), ("UTF-32", bad32), ("US-ASCII", [b"az\x7f\x80\xff"]),
              ("ISO-8859-1", [bytes(range(0, 256, 5))]), ("latin1", [b"\xe9"]))
    for encoding, rows in inputs:
        rows = texts(*rows)
        for errors in ("replace", "ignore"):
            for control in (False, True):
                attrs = dict(input_encoding=encoding, errors=errors,
                             replace_control_characters=control, replacement_char=ord("?"), bits=True)
                for out in ("UTF-8", "UTF-16-BE", "UTF-32-BE"):
                    r.add("UnicodeTranscode", dict(input=rows), output_encoding=out, **attrs)
                r.add("UnicodeDecode", dict(input=rows), Tsplits=tf.int32, **attrs)
                r.add("UnicodeDecodeWithOffsets", dict(input=rows.reshape(1, -1)), **attrs)
    good, wrong = texts(some.encode(), b""), texts(b"ok", b"\xff")
    for op in ("UnicodeDecode", "UnicodeDecodeWithOffsets"):
        r.add(op, dict(input=good), input_encoding="UTF-8", errors="strict", bits=True)
        r.add(op, dict(input=wrong), input_encoding="UTF-8", errors="strict",
              error="Invalid formatting on input string")
        r.add(op, dict(input=good), input_encoding="no such one", error="Could not create converter "
              "for input encoding: no such one")
        r.add(op, dict(input=good), input_encoding="UTF-8", replacement_char=0x110000,
              error="replacement_char out of unicode codepoint range")
    attrs = dict(input_encoding="UTF-8", output_encoding="UTF-16-BE", errors="strict")
    r.add("UnicodeTranscode", dict(input=good), bits=True, **attrs)
    r.add("UnicodeTranscode", dict(input=wrong), error="Invalid formatting on input string", **attrs)
    codes = np.int32([97, 0x20ac, 0x1f600, 0xd800, -1, 0x110000, 0x7ff, 0])
    for out in ("UTF-8", "UTF-16-BE", "UTF-32-BE"):
        for split in (np.int32, np.int64):
            for errors in ("replace", "ignore"):
                r.add("UnicodeEncode", dict(input_values=codes, input_splits=np.array([0, 3, 3, 8],
                                                                                      split)),
                      output_encoding=out, errors=errors, bits=True)
    for splits, error in (([1, 8], "First value in input_splits must be zero."),
                          ([0, 7], "Last value in input_splits must be equal to length of "
                           "input_tensor."),
                          ([0, 3, 2, 8], "Values in input_splits must be equal or in ascending order."),
                          ([0, 8], "Code point is out of range for Unicode, or is a surrogate.")):
        r.add("UnicodeEncode", dict(input_values=codes, input_splits=np.int64(splits)),
              output_encoding="UTF-8", errors="strict", error=error)


def record_summaries(r):
    sound = np.array([[0, .5, -.5, 1], [-1, .25, 2, -3]], f)
    for tensor in (sound, sound.reshape(2, 2, 2), sound[:, :, None], sound[:, :0]):
        for most in (1, 2, 5):
            r.add("AudioSummaryV2", dict(tag=np.array("t", object), tensor=tensor,
                                         sample_rate=f(44100)), max_outputs=most, bits=True)
    some = dict(tag=np.array("t", object), tensor=sound, sample_rate=f(44100))
    for changed, error in (
            (dict(tensor=sound[0]), "Tensor must be 3-D or 2-D, got: [4]"),
            (dict(tag=texts("a", "b")), "Tag must be a scalar"),
            (dict(sample_rate=f(0)), "sample_rate must be > 0")):
        r.add("AudioSummaryV2", dict(some, **changed), error=error)
    for rate in (.25, 8000.5):
        r.program("AudioSummary", lambda: tf.raw_ops.AudioSummary(
            tag="t", tensor=sound, sample_rate=rate, max_outputs=1, name="y"), producer=14)


def record_packed(r):
    plain = [b"", b"one two two two two", bytes(range(256)) * 40]
    for kind, pack in (("", bytes), ("ZLIB", zlib.compress), ("GZIP", gzip.compress)):
        r.add("DecodeCompressed", dict(bytes=texts(*map(pack, plain))), compression_type=kind,
              bits=True)
    r.add("DecodeCompressed", dict(bytes=texts(b"no such thing")), compression_type="ZLIB",
          error="inflate() failed with error -3: incorrect header check")
    r.add("DecodeCompressed", dict(bytes=texts(b"a")), compression_type="BZIP",
          error="Only ZLIB, ZSTD, GZIP or NONE are supported compressions")


def record_copies(r):
    for dtype in (np.int8, np.int64, f, np.complex128, np.bool_, object):
        value = texts("a", "", "bcd") if dtype == object else np.array([0, 1, 2]).astype(dtype)
        for op in ("Copy", "CopyHost"):
            r.add(op, dict(input=value), bits=True)
    r.add("Copy", dict(input=np.zeros([0, 3], f)), bits=True)

    def locked():
        lock = tf.raw_ops.MutexLock(mutex=tf.raw_ops.MutexV2(shared_name="m"))
        with tf.control_dependencies([tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)]):
            return tf.constant(7.)

    r.program("MutexLock", locked)
    r.program("ConsumeMutexLock", lambda: within(tf.raw_ops.ConsumeMutexLock(
        mutex_lock=tf.raw_ops.OptionalNone())), error="Expected input to contain a "
        "SharedLockReleaser object, but saw")


def within(op):
    with tf.control_dependencies([op]):
        return tf.constant(1.)


def record_datasets(r):
    raw, one = tf.raw_ops, dict(output_types=[tf.int64], output_shapes=[[]])

    def numbers(n):
        return raw.RangeDataset(start=np.int64(0), stop=np.int64(n), step=np.int64(1), **one)

    def elements(dataset, most=100):
        """What there is of a data set of numbers, as one tensor."""
        batch = raw.BatchDatasetV2(
            input_dataset=raw.TakeDataset(input_dataset=dataset, count=np.int64(most), **one),
            batch_size=np.int64(most), drop_remainder=False, output_types=[tf.int64],
            output_shapes=[[None]])
        return raw.DatasetToSingleElement(dataset=batch, output_types=[tf.int64],
                                          output_shapes=[[None]])[0]

    for rate in (0.2, .5, 1.):
        r.program("SamplingDataset", lambda: elements(raw.SamplingDataset(
            input_dataset=numbers(50), rate=rate, seed=np.int64(3), seed2=np.int64(4), **one)))
    seeds = dict(seed=np.int64(3), seed2=np.int64(4))
    dummy = raw.DummySeedGenerator
    for anew in (False, True):
        r.program("RandomDatasetV2", lambda: elements(raw.RandomDatasetV2(
            seed_generator=dummy(), rerandomize_each_iteration=anew, **seeds, **one), 7))

    # TensorFlow's kernel of AnonymousRandomSeedGenerator fails: it asks for a third input.
    def generator(reshuffle):
        return raw.AnonymousSeedGenerator(reshuffle=reshuffle, **seeds).handle

    for reshuffle in (False, True):
        for buffer in (3, 100):
            r.program("ShuffleDatasetV2", lambda: elements(raw.ShuffleDatasetV2(
                input_dataset=numbers(20), buffer_size=np.int64(buffer),
                seed_generator=generator(reshuffle), **one)))
    for reshuffle in (False, True):
        r.program("ShuffleAndRepeatDatasetV2", lambda: elements(raw.ShuffleAndRepeatDatasetV2(
            input_dataset=numbers(6), buffer_size=np.int64(4), count=np.int64(3),
            seed_generator=dummy(), reshuffle_each_iteration=reshuffle, **seeds, **one)))
        r.program("RepeatDataset", lambda: elements(raw.RepeatDataset(
            input_dataset=raw.ShuffleDatasetV2(
                input_dataset=numbers(6), buffer_size=np.int64(4),
                seed_generator=generator(reshuffle), **one), count=np.int64(3), **one)))

    def row(k, indices, values, shape):
        types, shapes = [tf.int64, tf.as_dtype(values.dtype), tf.int64], [None, [None], [None]]
        rows = raw.SparseTensorSliceDataset(indices=np.int64(indices), values=values,
                                            dense_shape=np.int64(shape))
        kind = dict(output_types=types, output_shapes=[[None, len(shape) - 1], [None],
                                                       [len(shape) - 1]])
        one_row = raw.TakeDataset(input_dataset=raw.SkipDataset(
            input_dataset=rows, count=np.int64(k), **kind), count=np.int64(1), **kind)
        return raw.DatasetToSingleElement(dataset=one_row, **kind)

    places = [[0, 1, 2], [0, 2, 0], [2, 0, 1]]
    for values in (f([1, 2, 3]), np.int32([1, 2, 3]), texts("a", "", "c")):
        for k in range(4):
            r.program("SparseTensorSliceDataset", lambda: row(k, places, values, [4, 3, 3]))
    op, good = "SparseTensorSliceDataset", f([1, 2, 3])
    for indices, values, shape, error in (
            (places[0], good, [4, 3, 3], "Input indices must be a matrix. Got: [3]"),
            (places, good[:2], [4, 3, 3], "Number of values must match first dimension of indices. "
             "Got 2 values, indices shape: [3,3]"),
            (places, good, [4, 3], "Number of dimensions must match second dimension of indices. "
             "Got 2 dimensions, indices shape: [3,3]"),
            (places[::-1], good, [4, 3, 3], "The SparseTensor must be ordered in the batch "
             "dimension; handling arbitrarily ordered input is not currently supported.")):
        r.program(op, lambda: row(0, indices, values, shape), error=error)

    def parts(k, rows, replicas):
        batches = raw.BatchDatasetV2(input_dataset=numbers(rows), batch_size=np.int64(5),
                                     drop_remainder=False, output_types=[tf.int64],
                                     output_shapes=[[None]])
        kind = dict(output_types=[tf.int64], output_shapes=[[None]])
        split = raw.RebatchDataset(input_dataset=batches, num_replicas=np.int64(replicas), **kind)
        one_part = raw.TakeDataset(input_dataset=raw.SkipDataset(
            input_dataset=split, count=np.int64(k), **kind), count=np.int64(1), **kind)
        return raw.DatasetToSingleElement(dataset=one_part, **kind)[0]

    for replicas in (1, 2, 3, 4, 7):
        for k in range(0, 2 * replicas, 2):
            r.program("RebatchDataset", lambda: parts(k, 9, replicas))
    r.program("RebatchDataset", lambda: parts(0, 9, 0),
              error="num_replicas must be greater than zero.")
    r.program("RebatchDataset", lambda: raw.DatasetToSingleElement(dataset=raw.RebatchDataset(
        input_dataset=numbers(1), num_replicas=np.int64(1), **one), **one)[0],
        error="Cannot rebatch dataset: All components must have at least one dimension. Perhaps "
        "your input dataset is not batched? Component 0 is scalar.")

    def anonymous(op):
        made = getattr(raw, op)(**one)
        handle = made if op == "AnonymousIterator" else made.handle
        with tf.control_dependencies([raw.MakeIterator(dataset=numbers(3), iterator=handle)]):
            first = raw.IteratorGetNext(iterator=handle, **one)[0]
        with tf.control_dependencies([first]):
            second = raw.IteratorGetNextSync(iterator=handle, **one)[0]
        if op == "AnonymousIterator":
            return first, second
        with tf.control_dependencies([second]):
            gone = raw.DeleteIterator(handle=handle, deleter=made.deleter)
        with tf.control_dependencies([gone]):
            return first, second, tf.constant(5)

    for op in ("AnonymousIterator", "AnonymousIteratorV2"):
        r.program(op, lambda: anonymous(op))

    def many():
        made = raw.AnonymousMultiDeviceIterator(devices=["/cpu:0"], **one)
        gone = raw.DeleteMultiDeviceIterator(multi_device_iterator=made.handle, iterators=[],
                                             deleter=made.deleter)
        with tf.control_dependencies([gone]):
            return tf.constant(3)

    r.program("DeleteMultiDeviceIterator", many)


def sequence(context, lists):
    """A message of features by key, and of lists of features by key."""
    example = tf.train.SequenceExample()

    def fill(feature, values):
        if any(isinstance(v, bytes) for v in values):
            feature.bytes_list.value.extend(values)
        elif any(isinstance(v, float) for v in values):
            feature.float_list.value.extend(values)
        elif values:
            feature.int64_list.value.extend(values)

    for key, values in context.items():
        fill(example.context.feature[key], values)
    for key, steps in lists.items():
        made = example.feature_lists.feature_list[key]
        for values in steps:
            fill(made.feature.add(), values)
    return example.SerializeToString()


def record_sequences(r):
    raw, b = tf.raw_ops, lambda *values: list(values)
    one = sequence({"n": b(7), "w": b(b"x", b"y"), "s": b(1.5)},
                   {"f": [b(1., 2.), b(3., 4.)], "t": [b(b"a"), b(), b(b"b", b"c")], "i": [b(1)]})
    two = sequence({"n": b(8), "s": b(.5, .25)}, {"f": [b(5., 6.)], "t": [], "i": [b(2), b(3)]})
    three = sequence({"n": b(9), "w": b(b"z")}, {"f": [], "t": [b(b"d")]})
    types = dict(
        context_sparse_types=[tf.string, tf.float32], context_dense_shapes=[[]],
        feature_list_sparse_types=[tf.string], feature_list_dense_types=[tf.float32, tf.int64],
        feature_list_dense_shapes=[[2], []])

    def batch(serialized, names=(), may_miss=("i",), standard=np.int64([]), dense=("f", "i"),
              sparse="t"):
        serialized = np.array(serialized, object)
        made = raw.ParseSequenceExample(
            serialized=serialized, debug_name=np.array(names, object),
            context_dense_defaults=[standard],
            feature_list_dense_missing_assumed_empty=list(may_miss),
            context_sparse_keys=["w", "s"], context_dense_keys=["n"],
            feature_list_sparse_keys=[sparse], feature_list_dense_keys=list(dense),
            Ncontext_sparse=2, Ncontext_dense=1, Nfeature_list_sparse=1, Nfeature_list_dense=2,
            **types)
        return [t for part in made for t in part]

    def single(serialized, name=b"", may_miss=("i",), standard=np.int64([]), dense=("f", "i"),
               sparse="t"):
        made = raw.ParseSingleSequenceExample(
            serialized=serialized, feature_list_dense_missing_assumed_empty=np.array(
                may_miss, object), context_sparse_keys=["w", "s"], context_dense_keys=["n"],
            feature_list_sparse_keys=[sparse], feature_list_dense_keys=list(dense),
            context_dense_defaults=[standard], debug_name=name, **types)
        return [t for part in made for t in part]

    op = "ParseSequenceExample"
    for serialized in ([one, two, three], [two]):
        r.program(op, lambda: batch(serialized))
    r.program(op, lambda: batch([one], names=["first"], may_miss=[]))
    r.program(op, lambda: batch([sequence({}, {"f": [], "i": []})], standard=np.int64(5)))
    for serialized, changed, error in (
            ([one, three], dict(may_miss=[]), "Feature list 'i' is required but could not be found"),
            ([one], dict(dense=("i", "f")), "Data types don't match")):
        r.program(op, lambda: batch(serialized, **changed), error=error)
    op = "ParseSingleSequenceExample"
    for serialized in (one, two, three):
        r.program(op, lambda: single(serialized))
    r.program(op, lambda: single(sequence({}, {"f": [], "i": []}), standard=np.int64(5)))
    for serialized, changed, error in (
            (three, dict(may_miss=[]), "Feature list 'i' is required but could not be found."),
            (b"no", {}, "Could not parse example input"),
            (sequence({}, {"f": [], "i": []}), {}, "is required but could not be found."),
            (one, dict(dense=("i", "f")), "Data types don't match")):
        r.program(op, lambda: single(serialized, **changed), error=error)


def record_gradients():
    cases = golden_module().CaseSet()
    rng = np.random.default_rng(3)
    raw = tf.raw_ops
    alpha = np.array([[.3, 1.5], [4, 20]])
    record_graph(cases, "RandomGamma_further", "RandomGamma", [alpha], lambda a: raw.RandomGamma(
        shape=[3, 5], alpha=a, seed=3, seed2=4))
    record_graph(cases, "StatelessRandomGammaV2_further", "StatelessRandomGammaV2", [alpha],
                 lambda a: raw.StatelessRandomGammaV2(shape=[3, 2, 2], seed=[3, 4], alpha=a))
    record_graph(cases, "StatelessRandomGammaV3_further", "StatelessRandomGammaV3", [alpha],
                 lambda a: raw.StatelessRandomGammaV3(shape=[3, 2, 2], key=np.uint64([3]),
                                                      counter=np.uint64([4, 5]), alg=1, alpha=a))
    values = rng.normal(size=(5, 2)).astype(f)
    outer, inner = np.int64([0, 2, 2, 3]), np.int64([0, 2, 5, 5])
    record_graph(cases, "RaggedGather_further", "RaggedGather", [values], lambda v: tf.ensure_shape(
        raw.RaggedGather(params_nested_splits=[outer, inner], params_dense_values=v * 1,
                         indices=np.int64([[2, 0], [0, 1]]), OUTPUT_RAGGED_RANK=3)
        .output_dense_values, [10, 2]))
    record_graph(cases, "RaggedTensorToSparse_further", "RaggedTensorToSparse", [values],
                 lambda v: raw.RaggedTensorToSparse(rt_nested_splits=[inner], rt_dense_values=v)
                 .sparse_values)
    for name, shape, standard, size, types, partitions in (
            ("pad", -1, f(.5), [3, 3, 2], ["ROW_SPLITS"], [inner]),
            ("cut", [2, 2, 2], f([.5, .25]), [2, 2, 2], ["ROW_SPLITS"], [inner]),
            ("ids", [-1, 2, -1], f([.5]), [4, 2, 2], ["FIRST_DIM_SIZE", "VALUE_ROWIDS"],
             [np.int64(4), np.int64([0, 0, 0, 2, 3])]),
            ("two", -1, f(.5), [3, 2, 3, 2], ["ROW_SPLITS"] * 2, [outer, inner])):
        record_graph(cases, f"RaggedTensorToTensor_{name}_further", "RaggedTensorToTensor",
                     [values, standard], lambda v, d: tf.ensure_shape(raw.RaggedTensorToTensor(
                         shape=np.int64(shape), values=v * 1, default_value=d,
                         row_partition_tensors=partitions, row_partition_types=types), size))

    def through(v, batched):
        splits = [outer, inner]
        encoded = raw.RaggedTensorToVariant(rt_nested_splits=splits, rt_dense_values=v * v,
                                            batched_input=batched)
        out = raw.RaggedTensorFromVariant(
            encoded_ragged=encoded, input_ragged_rank=1 if batched else 2, output_ragged_rank=2,
            Tvalues=tf.float32)
        return tf.ensure_shape(out.output_dense_values, [5, 2])

    for batched in (False, True):
        record_graph(cases, f"RaggedTensorToVariant_{batched}_further", "RaggedTensorToVariant",
                     [values], lambda v: through(v, batched))
    with open(os.path.join(GRADIENTS, "cases_further.pb"), "wb") as file:
        file.write(cases.SerializeToString(deterministic=True))


def main():
    record_definitions()
    r = Programs("further")
    for record in (record_generators, record_distributions, record_gamma_gradients,
                   record_truncated_normals, record_crops, record_ragged, record_ragged_tensors,
                   record_ragged_variants, record_ragged_counts, record_ngrams, record_unicode,
                   record_summaries, record_packed, record_copies,
                   record_datasets, record_sequences):
        record(r)
    r.write("cases_further.pb")
    record_gradients()


if __name__ == "__main__":
    main()
