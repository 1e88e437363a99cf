# SPDX-License-Identifier: Apache-2.0
"""Writes sequences.json and the files beside it: what tf.data (TensorFlow 2.21) gives.

A case has, for each walk through its data set, the elements as texts: components separated by
" | ", each "dtype[shape] value value ...". tests/data/sequences_golden_test.cc builds the same data
sets by the names of the cases.

    python3 record.py
"""

import json
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf

Data = tf.data.Dataset
FOLDER = os.path.dirname(os.path.abspath(__file__))


def text_of(value):
    value = value.numpy()
    dtype = "string" if isinstance(value, bytes) or value.dtype == object else value.dtype.name
    dtype = {"float32": "float", "float64": "double"}.get(dtype, dtype)
    array = np.asarray(value, dtype=object if dtype == "string" else None)
    shape = ",".join(str(n) for n in array.shape)
    if dtype == "string":
        items = [x.decode() for x in array.reshape(-1)]
    elif dtype in ("float", "double"):
        items = ["%.9g" % x for x in array.reshape(-1)]
    else:
        items = [str(int(x)) for x in array.reshape(-1)]
    return "%s[%s] %s" % (dtype, shape, " ".join(items))


def element_text(element):
    return " | ".join(text_of(part) for part in tf.nest.flatten(element))


def shapes_of(dataset):
    return ["?" if spec.shape.rank is None else
            ",".join("?" if n is None else str(n) for n in spec.shape)
            for spec in tf.nest.flatten(dataset.element_spec)]


def path(name):
    return os.path.join(FOLDER, name)


def write_files():
    with open(path("a.txt"), "w") as f:
        f.write("one\ntwo\r\n\nfour")
    with open(path("b.txt"), "w") as f:
        f.write("five\nsix\n")
    with open(path("table.csv"), "w") as f:
        f.write('id,name,score\n1,"a, b",0.5\n2,,1.25\n3,c,\n')
    with open(path("blocks.bin"), "wb") as f:
        f.write(b"HHaaabbbcccF")
    with tf.io.TFRecordWriter(path("two.tfrecord")) as f:
        f.write(b"first")
        f.write(b"second")
    with tf.io.TFRecordWriter(path("packed.tfrecord.gz"), "GZIP") as f:
        for i in range(3):
            f.write(b"packed %d" % i)
    numbers = np.arange(12, dtype=np.float32).reshape(3, 4) / 2
    np.save(path("plain.npy"), numbers)
    np.savez(path("stored.npz"), x=numbers, y=np.array([1, -2, 3], ">i4"),
             names=np.array(["a", "bc", "gr\u00fc\u00df"]), flags=np.array([True, False, True]))
    np.savez_compressed(path("packed.npz"), fortran=np.asfortranarray(numbers.astype(np.float64)),
                        half=numbers.astype(np.float16), scalar=np.array(7, np.int64),
                        empty=np.zeros((0, 3), np.uint8), many=np.arange(5000, dtype=np.int16))


def ragged(x):
    return tf.fill([x], x)


def cases():
    square = lambda x: x * x + 1
    both = lambda x: (x, tf.cast(x, tf.float32) / 2)
    yield "range", Data.range(5)
    yield "range_down", Data.range(10, 3, -3)
    yield "range_empty", Data.range(3, 3)
    yield "tensors", Data.from_tensors(([1, 2], 3.5))
    yield "slices", Data.from_tensor_slices(([[1, 2], [3, 4], [5, 6]], ["a", "b", "c"]))
    yield "batch", Data.range(7).batch(3)
    yield "batch_drop", Data.range(7).batch(3, drop_remainder=True)
    yield "batch_of_batch", Data.range(10).batch(2).batch(2)
    yield "unbatch", Data.range(7).batch(3).unbatch()
    yield "repeat", Data.range(3).repeat(2)
    yield "repeat_zero", Data.range(3).repeat(0)
    yield "repeat_take", Data.range(3).repeat().take(7)
    yield "take_skip", Data.range(10).skip(2).take(5)
    yield "take_all", Data.range(4).take(-1)
    yield "skip_all", Data.range(4).skip(-1)
    yield "shard", Data.range(10).shard(3, 1)
    yield "zip", Data.zip((Data.range(4), Data.range(10, 13)))
    yield "concatenate", Data.range(3).concatenate(Data.range(7, 9))
    yield "concatenate_shapes", Data.range(4).batch(2, drop_remainder=True).concatenate(
        Data.range(3).batch(3, drop_remainder=True))
    yield "enumerate", Data.range(3).enumerate(start=5)
    yield "shuffle", Data.range(10).shuffle(4, seed=7)
    yield "shuffle_fixed", Data.range(10).shuffle(4, seed=7, reshuffle_each_iteration=False)
    yield "shuffle_large_buffer", Data.range(10).shuffle(100, seed=3)
    yield "shuffle_one", Data.range(5).shuffle(1, seed=3)
    yield "shuffle_repeat", Data.range(6).shuffle(4, seed=7).repeat(3)
    yield "repeat_shuffle", Data.range(6).repeat(3).shuffle(4, seed=7)
    yield "shuffle_batch_repeat", Data.range(10).shuffle(5, seed=11).batch(4).repeat(2)
    yield "shuffle_repeat_batch", Data.range(5).shuffle(5, seed=3).repeat(2).batch(4)
    yield "shuffle_prefetch_repeat", Data.range(5).shuffle(5, seed=3).prefetch(1).repeat(2)
    yield "shuffle_repeat_take", Data.range(5).shuffle(5, seed=3).batch(2).repeat().take(7)
    yield "shuffle_twice", Data.range(10).shuffle(3, seed=1).shuffle(3, seed=2)
    yield "zip_shuffles", Data.zip((Data.range(6).shuffle(6, seed=1),
                                    Data.range(6).shuffle(6, seed=2)))
    yield "cache_shuffle", Data.range(8).cache().shuffle(8, seed=5)
    yield "shuffle_cache", Data.range(8).shuffle(8, seed=5).cache()
    yield "map", Data.range(5).map(square)
    yield "map_two", Data.range(5).map(both)
    yield "map_parallel", Data.range(20).map(square, num_parallel_calls=4)
    yield "map_batch", Data.range(7).map(square).batch(4)
    yield "filter", Data.range(10).filter(lambda x: x % 3 == 0)
    yield "take_while", Data.range(10).take_while(lambda x: x < 4)
    yield "flat_map", Data.range(5).flat_map(lambda x: Data.range(x))
    yield "flat_map_rows", Data.range(6).batch(3).flat_map(Data.from_tensor_slices)
    repeated = lambda x: Data.from_tensors(x).repeat(x)
    yield "interleave", Data.range(1, 5).interleave(
        lambda x: Data.from_tensors(x).repeat(6), cycle_length=2, block_length=4)
    yield "interleave_uneven", Data.range(6).interleave(repeated, cycle_length=3, block_length=1)
    yield "interleave_blocks", Data.range(6).interleave(repeated, cycle_length=2, block_length=2)
    yield "interleave_parallel", Data.range(6).interleave(
        repeated, cycle_length=3, block_length=2, num_parallel_calls=2, deterministic=True)
    yield "padded_batch", Data.range(1, 6).map(ragged).padded_batch(2)
    yield "padded_batch_to", Data.range(1, 6).map(ragged).padded_batch(
        2, padded_shapes=[6], padding_values=np.int64(-1), drop_remainder=True)
    windows = lambda n, **k: Data.range(7).window(n, **k).flat_map(lambda w: w.batch(n))
    yield "window", windows(3)
    yield "window_shift", windows(3, shift=1)
    yield "window_stride", windows(2, shift=2, stride=3)
    yield "window_drop", windows(3, shift=2, drop_remainder=True)
    yield "prefetch", Data.range(6).prefetch(2)
    files = [path("a.txt"), path("b.txt")]
    yield "text_lines", tf.data.TextLineDataset(files)
    yield "records", tf.data.TFRecordDataset(path("two.tfrecord"))
    yield "records_packed", tf.data.TFRecordDataset(path("packed.tfrecord.gz"), "GZIP")
    yield "blocks", tf.data.FixedLengthRecordDataset(path("blocks.bin"), 3, header_bytes=2,
                                                     footer_bytes=1)
    yield "csv", tf.data.experimental.CsvDataset(path("table.csv"), [
        tf.constant([], tf.int32), tf.constant(["none"]), tf.constant([-1.0])], header=True)
    yield "csv_columns", tf.data.experimental.CsvDataset(path("table.csv"), [
        tf.constant([0.0]), ], header=True, select_cols=[2])
    yield "mnist_like", (Data.from_tensor_slices((np.arange(40).reshape(10, 4), np.arange(10)))
                         .shuffle(10, seed=1).repeat(2).batch(4).prefetch(1))


def main():
    write_files()
    out = {}
    for name, dataset in cases():
        out[name] = {
            "cardinality": int(dataset.cardinality()),
            "shapes": shapes_of(dataset),
            "walks": [[element_text(e) for e in dataset] for _ in range(3)],
        }
    tf.random.set_seed(42)
    dataset = Data.range(10).shuffle(4, seed=7)
    out["shuffle_graph_seed"] = {
        "cardinality": 10, "shapes": [""],
        "walks": [[element_text(e) for e in dataset] for _ in range(2)]}
    with open(path("sequences.json"), "w") as f:
        json.dump(out, f, indent=1, sort_keys=True)
        f.write("\n")


if __name__ == "__main__":
    main()
