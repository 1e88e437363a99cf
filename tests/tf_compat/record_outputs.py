# SPDX-License-Identifier: Apache-2.0
"""Records how Keras trains a model with two inputs and two outputs.

    python record_outputs.py
writes ../goldens/training/outputs/two_outputs.json, which tests/fit/outputs_test.cc reads.
"""
import json
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import keras  # noqa: E402
import numpy as np  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "goldens", "training", "outputs", "two_outputs.json")


def tensor(value):
    value = np.asarray(value)
    return {"dtype": str(value.dtype), "shape": list(value.shape), "data": value.ravel().tolist()}


def model():
    a = keras.Input((3,), name="a")
    b = keras.Input((2,), name="b")
    hidden = keras.layers.Dense(4, activation="tanh", name="hidden")(a)
    both = keras.layers.Concatenate(name="both")([hidden, b])
    value = keras.layers.Dense(1, name="value")(both)
    kind = keras.layers.Dense(3, activation="softmax", name="kind")(both)
    return keras.Model([a, b], [value, kind])


def main():
    random = np.random.RandomState(7)
    a = random.normal(size=(22, 3)).astype(np.float32)
    b = random.normal(size=(22, 2)).astype(np.float32)
    value = (a[:, :1] * b[:, :1]).astype(np.float32)
    kind = (np.argmax(a, axis=1)).astype(np.int64)
    weight = random.uniform(0.5, 2, size=22).astype(np.float32)
    keras.utils.set_random_seed(3)
    net = model()
    begin = [np.array(w) for w in net.get_weights()]
    runs = []
    for weighs, weighted in ((False, False), (True, False), (True, True)):
        net.set_weights(begin)
        net.compile(
            optimizer=keras.optimizers.SGD(0.1),
            loss=["mse", "sparse_categorical_crossentropy"],
            loss_weights=[0.3, 2.0] if weighs else None,
            metrics=[["mae"], ["accuracy"]])
        arguments = {"sample_weight": [weight, weight]} if weighted else {}
        history = net.fit([a, b], [value, kind], batch_size=8, epochs=3, shuffle=False, verbose=0,
                          **arguments)
        evaluated = net.evaluate([a, b], [value, kind], batch_size=5, verbose=0, return_dict=True)
        predicted = net.predict([a, b], batch_size=4, verbose=0)
        runs.append({
            "weighs_losses": weighs, "weighs_samples": weighted,
            "history": {k: [float(x) for x in v] for k, v in history.history.items()},
            "evaluate": {k: float(v) for k, v in evaluated.items()},
            "predict": [tensor(p) for p in predicted],
            "weights": [tensor(w) for w in net.get_weights()],
        })
    golden = {
        "keras": keras.__version__, "a": tensor(a), "b": tensor(b), "value": tensor(value),
        "kind": tensor(kind), "sample_weight": tensor(weight),
        "initial_weights": [tensor(w) for w in begin], "runs": runs,
    }
    os.makedirs(os.path.dirname(OUT), exist_ok=True)
    with open(OUT, "w") as f:
        json.dump(golden, f, indent=1)
        f.write("\n")
    print([sorted(r["history"]) for r in runs])


main()
