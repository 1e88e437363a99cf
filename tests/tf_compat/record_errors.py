# SPDX-License-Identifier: Apache-2.0
"""Records what TensorFlow's kernels say of wrong inputs, where programs look at the words.

    python record_errors.py
writes ../goldens/kernels/cases_errors.pb; see record_kernels.py.
"""
from record_kernels import Recorder, np, tf


def feature(values):
    kind = {float: "float_list", int: "int64_list", bytes: "bytes_list"}[type(values[0])]
    message = tf.train.Feature()
    getattr(message, kind).value.extend(values)
    return message


def example(**features):
    message = tf.train.Example()
    for key, values in features.items():
        message.features.feature[key].CopyFrom(feature(values))
    return message.SerializeToString()


def sequence(context, lists):
    message = tf.train.SequenceExample()
    for key, values in context.items():
        message.context.feature[key].CopyFrom(feature(values))
    for key, steps in lists.items():
        message.feature_lists.feature_list[key].feature.extend(feature(step) for step in steps)
    return message.SerializeToString()


def strings(values):
    """Also of no elements, of which NumPy does not know the type."""
    return np.array(values, dtype=object).reshape(len(values)) if values else np.zeros(0, "S1")


class Sequences:
    """ParseSequenceExampleV2 of one feature: of the context, or a list that is dense, sparse or
    ragged."""

    def __init__(self, r):
        self.r = r

    def bad(self, error, batch, kind="dense", dtype=tf.int64, shape=(2,), names=("in1", "in2")):
        one = {k: strings(["a"] if kind == k else []) for k in
               ("dense", "sparse", "ragged", "context", "context_sparse")}
        names = strings(list(names)[:len(batch)] if names else [])
        self.r.add(
            "ParseSequenceExampleV2",
            dict(serialized=strings(batch), debug_name=names,
                 context_sparse_keys=one["context_sparse"], context_dense_keys=one["context"],
                 context_ragged_keys=strings([]), feature_list_sparse_keys=one["sparse"],
                 feature_list_dense_keys=one["dense"], feature_list_ragged_keys=one["ragged"],
                 feature_list_dense_missing_assumed_empty=np.zeros(len(one["dense"]), bool),
                 context_dense_defaults=[np.zeros(0, dtype.as_numpy_dtype)
                                         for _ in one["context"]]),
            error=error, Ncontext_sparse=len(one["context_sparse"]),
            context_sparse_types=[dtype] * len(one["context_sparse"]), context_ragged_value_types=[],
            context_ragged_split_types=[], context_dense_shapes=[shape] * len(one["context"]),
            Nfeature_list_sparse=len(one["sparse"]), Nfeature_list_dense=len(one["dense"]),
            feature_list_dense_types=[dtype] * len(one["dense"]),
            feature_list_sparse_types=[dtype] * len(one["sparse"]),
            feature_list_ragged_value_types=[dtype] * len(one["ragged"]),
            feature_list_ragged_split_types=[tf.int64] * len(one["ragged"]),
            feature_list_dense_shapes=[shape] * len(one["dense"]))


def record_sequences(r):
    s = Sequences(r)
    whole = sequence({}, {"a": [[1, 2], [3, 4], [5, 6]]})
    mixed = sequence({}, {"a": [[1, 2], [2.0, 3.0]]})
    for kind in ("dense", "sparse", "ragged"):
        s.bad("Name: in1, Feature list: a, Index: 1.  Data types don't match. Expected type: int64",
              [mixed], kind)
    s.bad("Name: <unknown>, Feature list: a, Index: 1.  Data types don't match.", [mixed], names=())
    s.bad("Name: in2, Feature list: a, Index: 1.  Data types don't match.", [whole, mixed])
    s.bad("Feature list 'a' has an unexpected number of values.  Total values size: 5 is not "
          "consistent with output shape: [?,2]", [sequence({}, {"a": [[1, 2], [3, 4, 5]]})])
    s.bad("Name: in1, Key: a, Index: 0.  Number of values != expected.  values size: 1 but output "
          "shape: [2]", [sequence({}, {"a": [[1], [3, 4, 5]]})])
    s.bad("Name: in2, Key: a, Index: 1.  Number of values != expected.  values size: 1 but output "
          "shape: [2]", [whole, sequence({}, {"a": [[1, 2], [3]]})])
    s.bad("Name: in2, Feature list 'a' is required but could not be found.  Did you mean to "
          "include it in", [whole, sequence({}, {"b": [[1]]})])
    for kind in ("context", "context_sparse"):
        s.bad("Name: in1, Context feature: a.  Data types don't match. Expected type: int64",
              [sequence({"a": [1.0, 2.0]}, {})], kind)
    two, one = sequence({"a": [1, 2]}, {}), sequence({"a": [1]}, {})
    s.bad("Inconsistent max number of elements for feature a: expected 2, but found 1", [one],
          "context")
    s.bad("Unexpected number of elements in example in2", [two, one], "context")
    s.bad("Feature: a (data type: int64) is required but could not be found.",
          [two, sequence({}, {})], "context")


def record_examples(r):
    def bad(error, message, dtype=tf.int64, shape=(1,), sparse=False):
        dense = strings([] if sparse else ["a"])
        kind = "S1" if dtype == tf.string else dtype.as_numpy_dtype
        r.add("ParseExampleV2",
              dict(serialized=strings([message]), names=strings(["in1"]),
                   sparse_keys=strings(["a"] if sparse else []), dense_keys=dense,
                   ragged_keys=strings([]),
                   dense_defaults=[np.zeros(int(shape[0] is None), kind) for _ in dense]),
              error=error, num_sparse=int(sparse), sparse_types=[dtype] * int(sparse),
              ragged_value_types=[], ragged_split_types=[], dense_shapes=[shape] * len(dense))

    bad("Name: in1, Key: a, Index: 0.  Data types don't match. Data type: float but expected type: "
        "int64", example(a=[1.0]))
    bad("Name: in1, Key: a, Index: 0.  Data types don't match. Expected type: int64, Actual type: "
        "float", example(a=[1.0]), sparse=True)
    for values, dtype, name in (([b"x"], tf.string, "bytes"), ([1], tf.int64, "int64"),
                                ([1.0], tf.float32, "float")):
        message = example(a=values)
        bad(f"Number of {name} values != expected.  Values size: 1 but output shape: [2,1]",
            message, dtype, (2, 1))
        bad(f"Number of {name} values is not a multiple of stride length. Saw 1 values but output "
            "shape is: [?,2,1]", message, dtype, (None, 2, 1))


def record_shapes(r):
    row, matrix = np.int32([1, 2, 3]), np.int32([[1, 2, 3]])
    for axis, shapes, error in (
            (1, [row, matrix], "input 2 should be a vector, but got shape [1,3]"),
            (1, [matrix, row], "input 1 should be a vector, but got shape [1,3]"),
            (4, [row, row], "Concat dim is out of range: 4 vs. 3"),
            (-4, [row, row], "Concat dim is out of range: -4 vs. 3"),
            ([0], [row, row], "Concat dim tensor should be a scalar integer, but got shape [1]"),
            (0, [row, row[:2]], "input 1 should contain 3 elements, but got 2"),
            (0, [row, row + [0, 1, 0]], "All dimensions except 0 must match. Input 1 has shape "
             "[1 3 3] and doesn't match input 0 with shape [1 2 3].")):
        r.add("ConcatOffset", {"concat_dim": np.int32(axis),
                               "shape": [np.int32(shape) for shape in shapes]}, error=error)
    for perm, error in (([0, 1, 1], "2 is missing from {0,1,1}."),
                        ([0, -2, 1], "2 is missing from {0,1,1}."),
                        ([0, 1, 5], "5 is out of range [0 .. 3)"),
                        ([0, 1], "transpose expects a vector of size 3. But input(1) is a vector "
                         "of size 2")):
        r.add("Transpose", {"x": np.zeros((1, 2, 3), np.float32), "perm": np.int32(perm)},
              error=error)
    for text, encoded in ((b"bogus", "Ym9ndXM="), (b"\xff\xff\xfe", "///+")):
        r.add("ParseTensor", {"serialized": np.array(text, object)}, out_type=tf.float32,
              error=f"Could not parse `serialized` as TensorProto, base64: {encoded}")


def record_segments(r):
    data, rows = np.zeros((10, 4), np.float32), [8, 3, 0, 9]
    increasing, unsorted = "segment ids are not increasing", \
        ", possibly because 'segment_ids' input is not sorted."
    for op in ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"):
        for indices, ids, error in (
                (rows, [0, 2, 1, 2], increasing),
                (rows, [0, 1, 0, 1], increasing),
                (rows, [0, 1, 2, 0], "Segment id 1 out of range [0, 1)" + unsorted),
                (rows, [-1, 0, 1, 1], "Segment id -1 out of range [0, 2)" + unsorted),
                (rows, [0, 0, 0, -1], "segment ids must be >= 0"),
                (rows, [0, 0, 0, -2], "segment ids must be >= 0"),
                ([8, 3, 0, 10], [0, 1, 2, 2], "Bad: indices[3] == 10 out of range [0, 10)"),
                ([8, -1, 0, 9], [0, 1, 2, 2], "Bad: indices[1] == -1 out of range [0, 10)"),
                ([2**62 - 1], [2**62 - 1], "Encountered overflow when multiplying "
                 "4611686018427387904 with 4, result: -1")):
            r.add(op, {"data": data, "indices": np.int64(indices), "segment_ids": np.int64(ids)},
                  error=error)
        for ids, error in (([0, 0, 0, -1], increasing),
                           ([-1, 0, 1, 1], "Segment id -1 out of range [0, 3)" + unsorted),
                           ([0, 1, 2, 3], "segment ids must be < num_segments")):
            r.add(op + "WithNumSegments", {"data": data, "indices": np.int32(rows),
                                           "segment_ids": np.int32(ids),
                                           "num_segments": np.int32(3)}, error=error)
        for indices, ids, error in (
                ([8, 3, 0, 10], [0, 1, 2, 2], "Index 10 out of range [0, 10)."),
                ([8, -3, 0, 9], [0, 2, 1, 2], "Index -3 out of range [0, 10)."),
                (rows, [0, 1, 2, -1], "Segment id -1 out of range [0, 3).")):
            r.add(op + "Grad", {"grad": data[:3], "indices": np.int32(indices),
                                "segment_ids": np.int32(ids), "output_dim0": np.int32(10)},
                  error=error)


def main():
    recorder = Recorder("error")
    for record in (record_sequences, record_examples, record_shapes, record_segments):
        record(recorder)
    recorder.write("cases_errors.pb")


if __name__ == "__main__":
    main()
