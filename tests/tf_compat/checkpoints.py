# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of our C++ programs in TensorFlow's hands, and TensorFlow's in theirs.

    python checkpoints.py --program "$PWD/bazel-bin/tests/saving/saving_program" \\
        --weights_program "$PWD/bazel-bin/tests/fit/weights_program"

The second is for the Keras that reads checkpoints of objects, tf_keras, and needs it.
"""
import argparse
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2
from tensorflow.python.distribute.sharded_variable import ShardedVariable
from tensorflow.python.trackable.autotrackable import AutoTrackable

v1 = tf.compat.v1
KERNEL = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
BIAS = np.array([7, 8, 9], np.float32)
TEXT = np.array([b"red", b"green"])
VALUES = {"kernel": KERNEL, "bias": BIAS, "text": TEXT, "global_step": np.int64(5)}
CASES = []


def case(function):
    CASES.append(function)
    return function


def same(got, want):
    np.testing.assert_array_equal(np.asarray(got), want)


class Layer(tf.Module):
    """What the C++ program calls its layer."""

    def __init__(self, kernel, bias, text):
        super().__init__()
        self.kernel = tf.Variable(kernel, name="kernel")
        self.bias = tf.Variable(bias, name="bias")
        self._c = tf.Variable(text, name="text")
        self._track_trackable(self._c, "a/b.c")


def objects(scale):
    layer = Layer(KERNEL * scale, BIAS * scale, TEXT if scale else [b"", b""])
    # The attribute above would be a child as well.
    layer._unconditional_checkpoint_dependencies[:] = [
        d for d in layer._unconditional_checkpoint_dependencies if d.name != "_c"]
    layer._unconditional_dependency_names.pop("_c", None)
    return tf.train.Checkpoint(layer=layer, step=tf.Variable(np.int64(5 * scale), name="global_step"))


@case
def load_checkpoint_reads_every_tensor(program, folder):
    for kind in ["by_name", "sharded"]:
        path = tf.train.latest_checkpoint(os.path.join(folder, kind))
        assert path.endswith("model.ckpt-5"), path
        reader = tf.train.load_checkpoint(path)
        assert set(reader.get_variable_to_shape_map()) == set(VALUES)
        for name, value in VALUES.items():
            same(reader.get_tensor(name), value)


@case
def the_state_file_is_understood(program, folder):
    for kind in ["by_name", "sharded"]:
        state = tf.train.get_checkpoint_state(os.path.join(folder, kind))
        names = [os.path.basename(p) for p in state.all_model_checkpoint_paths]
        assert names == ["model.ckpt-4", "model.ckpt-5"], names


@case
def the_meta_graph_is_imported_and_its_saver_restores_and_saves(program, folder):
    for kind in ["by_name", "sharded"]:
        path = tf.train.latest_checkpoint(os.path.join(folder, kind))
        with tf.Graph().as_default(), v1.Session() as session:
            saver = v1.train.import_meta_graph(path + ".meta")
            saver.restore(session, path)
            variables = {v.op.name: v for v in v1.global_variables()}
            assert set(variables) == set(VALUES), variables
            for name, value in VALUES.items():
                same(session.run(variables[name]), value)
            saver.save(session, path + "_again")
        again = tf.train.load_checkpoint(path + "_again")
        same(again.get_tensor("kernel"), KERNEL)


@case
def checkpoint_restores_every_object(program, folder):
    path = tf.train.latest_checkpoint(os.path.join(folder, "by_object"))
    assert path.endswith("ckpt-1"), path
    checkpoint = objects(0)
    checkpoint.restore(path).assert_consumed()
    same(checkpoint.layer.kernel, KERNEL)
    same(checkpoint.layer.bias, BIAS)
    same(checkpoint.layer._c, TEXT)
    same(checkpoint.step, 5)
    assert int(checkpoint.save_counter) == 1


@case
def checkpoint_restores_what_was_cut_into_small_files(program, folder):
    path = os.path.join(folder, "limited", "ckpt-1")
    files = [f for f in os.listdir(os.path.dirname(path)) if ".data-" in f]
    assert len(files) > 5, files
    checkpoint = objects(0)
    checkpoint.restore(path).assert_existing_objects_matched()
    same(checkpoint.layer.kernel, KERNEL)
    same(checkpoint.layer.bias, BIAS)
    same(checkpoint.layer._c, TEXT)
    same(checkpoint.step, 5)


@case
def checkpoint_manager_goes_on_in_the_folder_of_ours(program, folder):
    target = os.path.join(folder, "by_object")
    checkpoint = objects(0)
    manager = tf.train.CheckpointManager(checkpoint, target, max_to_keep=3)
    assert manager.restore_or_initialize() == os.path.join(target, "ckpt-1")
    same(checkpoint.layer.kernel, KERNEL)
    assert manager.save().endswith("ckpt-2")
    expect_printed(program, "objects", target)


def keras_model():
    import tf_keras

    model = tf_keras.Sequential([
        tf_keras.layers.Dense(4, activation="relu", name="first"),
        tf_keras.layers.BatchNormalization(name="batch_normalization"),
        tf_keras.layers.Dense(3, name="second"),
    ])
    model.build([None, 5])
    return model


def weights_of(model):
    return {"sequential/%s/%s" % (layer.name, v.name.split("/")[-1].split(":")[0]): v.numpy()
            for layer in model.layers for v in layer.weights}


def keras_loads_the_weights_of_ours(program, folder):
    subprocess.run([program, "write", folder], check=True, timeout=60)
    names = tf.train.load_checkpoint(os.path.join(folder, "names"))
    want = {name: names.get_tensor(name) for name in names.get_variable_to_shape_map()}
    assert len(want) == 8 and sum(v.size for v in want.values()) == 55, want
    model = keras_model()
    model.load_weights(os.path.join(folder, "objects")).assert_existing_objects_matched()
    got = weights_of(model)
    assert set(got) == set(want), (sorted(got), sorted(want))
    for name, value in want.items():
        same(got[name], value)


def the_weights_of_keras_are_loaded_by_ours(program, folder):
    model = keras_model()
    model.set_weights([np.arange(v.size, dtype=np.float32).reshape(v.shape) + 100 * (i + 1)
                       for i, v in enumerate(model.get_weights())])
    path = os.path.join(folder, "of_keras")
    model.save_weights(path, save_format="tf")
    done = subprocess.run([program, "read", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    got = sorted(float(number) for number in done.stdout.split())
    want = sorted(float(x) for v in weights_of(model).values() for x in v.ravel())
    assert got == want, (got, want)


def expect_printed(program, what, folder):
    done = subprocess.run([program, what, folder], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert "1 2 3 4 5 6" in lines["kernel"], lines
    assert "7 8 9" in lines["bias"], lines
    assert "red" in lines["text"] and "green" in lines["text"], lines
    assert lines["global_step"].endswith("5>"), lines


def part_of_kernel(shape, dtype=None, partition_info=None):
    row = partition_info.var_offset[0] if partition_info else 0
    return tf.constant(KERNEL[row:row + shape[0]])


@case
def tensorflows_saver_is_read(program, folder):
    target = os.path.join(folder, "tf_by_name")
    os.mkdir(target)
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("", partitioner=v1.fixed_size_partitioner(2)):
            v1.get_variable("kernel", KERNEL.shape, initializer=part_of_kernel)
        v1.Variable(BIAS, name="bias", use_resource=True)
        v1.Variable(TEXT, name="text", use_resource=False)
        v1.Variable(np.int64(5), name="global_step")
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, os.path.join(target, "model.ckpt"), global_step=5)
    expect_printed(program, "names", target)


@case
def tensorflows_checkpoint_is_read_by_objects_and_by_names(program, folder):
    target = os.path.join(folder, "tf_by_object")
    tf.train.CheckpointManager(objects(1), target, max_to_keep=2).save()
    expect_printed(program, "objects", target)
    expect_printed(program, "names", target)


class Momentum(AutoTrackable):
    """An optimizer that has a slot of one variable."""

    def __init__(self, variable, slot):
        super().__init__()
        self._pair = lambda: (variable, slot)  # no children

    def get_slot_names(self):
        return ["momentum"]

    def get_slot(self, variable, name):
        mine, slot = self._pair()
        return slot if variable is mine else None

    def _create_or_restore_slot_variable(self, slot_variable_position, slot_name, variable):
        slot_variable_position.restore(self._pair()[1])


def kernel_with_slot(scale, make):
    kernel, slot = make(KERNEL * scale, "kernel"), make(KERNEL * scale, "kernel/Momentum")
    return kernel, slot, tf.train.Checkpoint(kernel=kernel, optimizer=Momentum(kernel, slot))


def by_rows(value, name):
    return ShardedVariable([tf.Variable(row[np.newaxis], name="%s/part_%d" % (name, i))
                            for i, row in enumerate(value)], name=name)


def whole(value, name):
    return tf.Variable(value, name=name)


@case
def checkpoint_restores_a_variable_in_parts(program, folder):
    path = tf.train.latest_checkpoint(os.path.join(folder, "in_parts"))
    reader = tf.train.load_checkpoint(path)
    key = "kernel/.ATTRIBUTES/VARIABLE_VALUE"
    of_slot = "kernel/.OPTIMIZER_SLOT/optimizer/momentum/.ATTRIBUTES/VARIABLE_VALUE"
    same(reader.get_tensor(key), KERNEL)
    same(reader.get_tensor(of_slot), KERNEL)
    for make in [by_rows, whole]:
        kernel, slot, checkpoint = kernel_with_slot(0, make)
        checkpoint.restore(path).assert_consumed()
        same(tf.convert_to_tensor(kernel), KERNEL)
        same(tf.convert_to_tensor(slot), KERNEL)


@case
def a_variable_in_parts_is_written_with_the_same_bytes(program, folder):
    target = os.path.join(folder, "tf_objects", "ckpt")
    kernel_with_slot(1, by_rows)[2].save(target)
    found = []
    for path in [target + "-1", os.path.join(folder, "in_parts", "ckpt-1")]:
        reader = tf.train.load_checkpoint(path)
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        graph.ParseFromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
        found.append((graph, [open(path + end, "rb").read()
                              for end in [".index", ".data-00000-of-00001"]]))
    assert found[0] == found[1], found


@case
def variables_in_parts_of_tensorflow_are_read_by_ours(program, folder):
    for i, make in enumerate([by_rows, whole]):
        target = os.path.join(folder, "tf_in_parts_%d" % i)
        kernel_with_slot(1, make)[2].save(os.path.join(target, "ckpt"))
        done = subprocess.run([program, "parts", target], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
        for name in ["kernel/part_%d", "kernel/part_%d/Momentum"]:
            assert "1 2 3" in lines[name % 0] and "4 5 6" in lines[name % 1], lines


def weights_cases():
    try:
        import tf_keras  # noqa: F401
    except ImportError:
        print("not run: keras' weights, tf_keras is not there")
        return []
    return [keras_loads_the_weights_of_ours, the_weights_of_keras_are_loaded_by_ours]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--weights_program", default="")
    flags = parser.parse_args()
    cases = [(function, flags.program) for function in CASES]
    if flags.weights_program:
        cases += [(function, flags.weights_program) for function in weights_cases()]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([flags.program, "write", folder], check=True, timeout=60)
        for function, program in cases:
            try:
                function(program, folder)
                print("ok     ", function.__name__)
            except Exception as error:  # every case is run
                failed += 1
                print("FAILED ", function.__name__, type(error).__name__, error)
    print("%d of %d pass" % (len(cases) - failed, len(cases)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
