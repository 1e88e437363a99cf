# SPDX-License-Identifier: Apache-2.0
"""SavedModels that stock TensorFlow writes, with what it computes of them.

    "$(tools/tensorflow_python)" tests/saved_models/make_models.py tests/saved_models/testdata

Beside each directory NAME lies a checkpoint NAME.expected: "SIGNATURE/inputs/X" and
"SIGNATURE/outputs/Y" for each tensor. --large adds what is too big for the repository.
"""
import argparse
import os
import shutil
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
SMALL, LARGE = {}, {}


def model(table):
    def add(function):
        table[function.__name__] = function
        return function
    return add


def numbers(*shape, seed=7):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# Gone before a model is asked: its copy among the assets is what counts.
WORDS = os.path.join(tempfile.gettempdir(), "words.txt")


def vocabulary():
    path = WORDS
    with open(path, "w") as file:
        file.write("red\ngreen\nblue\n")
    return path


@model(SMALL)
def v1_builder(path):
    """As TensorFlow 1 saves: reference variables, a saver, a table filled from an asset."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", initializer=numbers(3, 2), use_resource=False)
        b = v1.get_variable("b", initializer=numbers(2), use_resource=True)
        y = tf.identity(tf.matmul(x, w) + b, name="y")
        word = v1.placeholder(tf.string, [None], name="word")
        file = tf.constant(vocabulary(), name="file")
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, file)
        table = tf.lookup.StaticVocabularyTable(
            tf.lookup.TextFileInitializer(file, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE,
                                          tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER), 2)
        number = table.lookup(word)
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        builder = v1.saved_model.Builder(path)
        info = v1.saved_model.build_tensor_info
        builder.add_meta_graph_and_variables(
            session, ["serve"], main_op=v1.tables_initializer(), assets_collection=[file],
            signature_def_map={
                "serving_default": v1.saved_model.build_signature_def(
                    {"x": info(x)}, {"y": info(y)}, "tensorflow/serving/predict"),
                "lookup": v1.saved_model.build_signature_def(
                    {"word": info(word)}, {"number": info(number)}, "tensorflow/serving/predict"),
            })
        builder.save()
    return {"serving_default": {"x": numbers(4, 3)},
            "lookup": {"word": np.array([b"blue", b"red", b"pink"])}}


@model(SMALL)
def v2_module(path):
    """As TensorFlow 2 saves: functions that capture variables and a table, loops and branches."""

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(numbers(3, 3), name="w")
            self.steps = tf.Variable(np.int32(3))
            self.table = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
                vocabulary(), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER), -1)

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
        def power(self, x):
            for _ in tf.range(self.steps):
                x = tf.tanh(tf.matmul(x, self.w))
            if tf.reduce_sum(x) > 0:
                x = x * 2
            return {"y": x, "rows": tf.shape(x)[0]}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
        def lookup(self, word):
            return {"number": self.table.lookup(tf.strings.lower(word))}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="a"),
                                      tf.TensorSpec([], tf.float32, name="b")])
        def pair(self, a, b):
            return {"sum": a + b, "product": a * b, "a": a}

    module = Module()
    tf.saved_model.save(module, path, signatures={
        "serving_default": module.power, "lookup": module.lookup, "pair": module.pair})
    return {"serving_default": {"x": numbers(5, 3)},
            "lookup": {"word": np.array([b"BLUE", b"Red", b"pink"])},
            "pair": {"a": numbers(4), "b": np.float32(3)}}


def exported(net, path, *inputs):
    net.export(path, verbose=False)
    names = [t.name for t in net.inputs]
    return {"serving_default": dict(zip(names, inputs))}


@model(SMALL)
def keras_mlp(path):
    net = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(8, activation="relu"),
                            keras.layers.Dropout(0.5), keras.layers.Dense(3, activation="softmax")])
    return exported(net, path, numbers(6, 4))


@model(SMALL)
def keras_two_inputs(path):
    left, right = keras.Input((4,), name="left"), keras.Input((4,), name="right")
    both = keras.layers.Concatenate()([left, right])
    net = keras.Model([left, right], [keras.layers.Dense(2)(both), keras.layers.Dense(1)(left)])
    return exported(net, path, numbers(3, 4), numbers(3, 4, seed=8))


@model(SMALL)
def keras_lstm(path):
    net = keras.Sequential([keras.Input((5, 3), name="x"), keras.layers.LSTM(4),
                            keras.layers.Dense(2)])
    return exported(net, path, numbers(2, 5, 3))


@model(SMALL)
def keras_conv(path):
    layers = keras.layers
    net = keras.Sequential([
        keras.Input((8, 8, 2), name="x"), layers.Conv2D(4, 3, padding="same"),
        layers.BatchNormalization(), layers.ReLU(6.0), layers.DepthwiseConv2D(3, strides=2),
        layers.MaxPooling2D(), layers.GlobalAveragePooling2D(), layers.Dense(3)])
    return exported(net, path, numbers(2, 8, 8, 2))


def small(cell):
    def make(path):
        net = keras.Sequential([keras.Input((5, 3), name="x"), cell(), keras.layers.Dense(2)])
        return exported(net, path, numbers(2, 5, 3))
    return make


RECURRENT = {
    "keras_gru": lambda: keras.layers.GRU(4),
    "keras_bidirectional": lambda: keras.layers.Bidirectional(keras.layers.LSTM(4)),
    "keras_simple_rnn": lambda: keras.layers.SimpleRNN(4),
}
LARGE.update({name: small(cell) for name, cell in RECURRENT.items()})


@model(LARGE)
def keras_embedding_attention(path):
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    x = keras.layers.Embedding(20, 8)(tokens)
    x = keras.layers.MultiHeadAttention(2, 4)(x, x)
    x = keras.layers.LayerNormalization()(x)
    net = keras.Model(tokens, keras.layers.Dense(2)(keras.layers.GlobalMaxPooling1D()(x)))
    return exported(net, path, np.arange(12, dtype=np.int32).reshape(2, 6))


def application(make, size):
    def write(path):
        net = make(weights=None, input_shape=(size, size, 3), classes=10)
        net.export(path, verbose=False)
        return {"serving_default": {net.inputs[0].name: numbers(2, size, size, 3)}}
    return write


LARGE.update({
    "mobilenet": application(keras.applications.MobileNet, 32),
    "mobilenet_v2": application(keras.applications.MobileNetV2, 32),
    "mobilenet_v3": application(keras.applications.MobileNetV3Small, 32),
    "efficientnet_b0": application(keras.applications.EfficientNetB0, 32),
    "resnet50": application(keras.applications.ResNet50, 32),
    "densenet121": application(keras.applications.DenseNet121, 32),
})


def record(path, inputs):
    loaded = tf.saved_model.load(path)
    tensors = {}
    for signature, values in inputs.items():
        outputs = loaded.signatures[signature](**{k: tf.constant(v) for k, v in values.items()})
        for kind, named in [("inputs", values), ("outputs", outputs)]:
            for name, value in named.items():
                tensors[f"{signature}/{kind}/{name}"] = tf.constant(value)
    tf.raw_ops.SaveV2(prefix=path + ".expected", tensor_names=list(tensors),
                      shape_and_slices=[""] * len(tensors), tensors=list(tensors.values()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    models = LARGE if args.large else SMALL
    for name in args.only or models:
        keras.utils.set_random_seed(1)
        path = os.path.join(args.folder, name)
        shutil.rmtree(path, ignore_errors=True)
        inputs = models[name](path)
        if os.path.exists(WORDS):
            os.remove(WORDS)
        record(path, inputs)
        print(name)


if __name__ == "__main__":
    main()
