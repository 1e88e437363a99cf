# SPDX-License-Identifier: Apache-2.0
"""SavedModels of our C++ programs in TensorFlow's hands, and TensorFlow's in theirs.

    python saved_models.py --program "$PWD/bazel-bin/tests/saved_models/saved_model_program" [--large]
"""
import argparse
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
SAVED_MODELS = os.path.join(HERE, "..", "saved_models")
v1 = tf.compat.v1


def expected(directory):
    """{signature: {"inputs": {name: value}, "outputs": {name: value}}}"""
    reader = tf.train.load_checkpoint(directory + ".expected")
    calls = {}
    for key in reader.get_variable_to_shape_map():
        signature, kind, name = key.split("/")
        call = calls.setdefault(signature, {"inputs": {}, "outputs": {}})
        call[kind][name] = reader.get_tensor(key)
    assert calls, directory
    return calls


def compare(got, want, name):
    assert set(got) == set(want), (name, set(got), set(want))
    for key, value in want.items():
        have = np.asarray(got[key])
        assert have.dtype == value.dtype and have.shape == value.shape, (name, key)
        if value.dtype.kind == "f":
            np.testing.assert_allclose(have, value, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(have, value)


def with_signatures(directory):
    """tf.saved_model.load, as TensorFlow 2 has it."""
    loaded = tf.saved_model.load(directory)
    for name, call in expected(directory).items():
        outputs = loaded.signatures[name](
            **{k: tf.constant(v) for k, v in call["inputs"].items()})
        compare({k: v.numpy() for k, v in outputs.items()}, call["outputs"], directory)


def with_session(directory):
    """tf.compat.v1.saved_model.load, as TensorFlow 1 and its servers have it."""
    with tf.Graph().as_default(), v1.Session() as session:
        meta = v1.saved_model.load(session, ["serve"], directory)
        for name, call in expected(directory).items():
            signature = meta.signature_def[name]
            outputs = session.run(
                {k: info.name for k, info in signature.outputs.items()},
                {signature.inputs[k].name: v for k, v in call["inputs"].items()})
            compare(outputs, call["outputs"], directory)


def with_keras(directory):
    """keras.layers.TFSMLayer, what Keras 3 has for SavedModels."""
    layer = keras.layers.TFSMLayer(directory, call_endpoint="serving_default")
    call = expected(directory)["serving_default"]
    (value,) = call["inputs"].values()
    compare({k: v.numpy() for k, v in layer(tf.constant(value)).items()}, call["outputs"],
            directory)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--large", action="store_true", help="also Keras' applications")
    args = parser.parse_args()
    failures = 0
    total = 0

    def attempt(name, function, *arguments):
        nonlocal failures, total
        total += 1
        try:
            function(*arguments)
            print("ok    ", name, flush=True)
        except Exception as error:  # pylint: disable=broad-except
            failures += 1
            print("FAILED", name, str(error)[:2000], flush=True)

    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = os.path.join(folder, "theirs"), os.path.join(folder, "ours")
        for flags in [[], ["--large"]] if args.large else [[]]:
            subprocess.run([sys.executable, os.path.join(SAVED_MODELS, "make_models.py"), theirs]
                           + flags, check=True, stdout=subprocess.DEVNULL)
        directories = sorted(entry.path for entry in os.scandir(theirs) if entry.is_dir())
        for directory in directories:
            attempt("reads " + os.path.basename(directory), subprocess.run,
                    [args.program, "check", directory], 0, None, None, None, None, None, True)
        subprocess.run([args.program, "write", ours] + directories, check=True)
        for entry in sorted(os.scandir(ours), key=lambda e: e.name):
            if not entry.is_dir():
                continue
            attempt("signatures of " + entry.name, with_signatures, entry.path)
            attempt("session of " + entry.name, with_session, entry.path)
        attempt("Keras' layer of model", with_keras, os.path.join(ours, "model"))
    print(f"{total - failures} of {total} passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
