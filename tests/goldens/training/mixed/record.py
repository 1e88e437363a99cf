# SPDX-License-Identifier: Apache-2.0
"""Records how Keras trains small models in its dtype policies, for tests/fit/mixed_precision_test.

    KERAS_BACKEND=tensorflow python record.py
writes a file per model beside this one: {model, architecture, layer_output_shapes, loss, metrics,
data, initial_weights, runs}, the first as tests/goldens/training/fit has them, and for each policy a
run of {policy, optimizer, fit, history, batch_logs, scales, weights, evaluate, predict}. `scales` are
[dynamic_scale, step_counter, iterations] after each batch, of mixed_float16; `weights` those at the
end, in float32 whatever the policy; the predictions' dtype is as Keras returns it.
"""
import json
import os

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
import keras
import numpy as np

rng = np.random.default_rng(11)


def numbers(array):
    array = np.asarray(array)
    if array.dtype.name in ("float16", "bfloat16", "float32"):
        array = array.astype(np.float32)
        return [float(np.format_float_positional(v, unique=True)) for v in array.ravel()]
    return [v.item() for v in array.ravel()]


def tensor(array):
    array = np.asarray(array)
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": numbers(array)}


def normal(*shape):
    return rng.normal(size=shape).astype(np.float32)


def build(spec):
    x = inputs = keras.Input(spec["input_shape"], dtype=spec.get("dtype", "float32"))
    for i, (kind, arguments) in enumerate(spec["layers"]):
        layer = getattr(keras.layers, kind)(**arguments, name=f"{kind.lower()}_{i}")
        x = layer(x, x) if kind == "MultiHeadAttention" else layer(x)
    return keras.Model(inputs, x, name="model")


class Recorder(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches, self.scales = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append([batch] + [float(logs[k]) for k in sorted(logs)])
        optimizer = self.model.optimizer
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            self.scales.append(
                [
                    float(optimizer.dynamic_scale.numpy()),
                    int(optimizer.step_counter.numpy()),
                    int(optimizer.inner_optimizer.iterations.numpy()),
                ]
            )


def run(spec, policy, data, initial, optimizer, fit):
    keras.utils.clear_session()
    keras.config.set_dtype_policy(policy)
    model = build(spec["architecture"])
    if initial is None:
        initial = [normal(*w.shape) * spec.get("spread", 0.4) for w in model.weights]
        for i, w in enumerate(model.weights):
            if "variance" in w.path or "gamma" in w.path:
                initial[i] = np.abs(initial[i]) + np.float32(1)
    model.set_weights(initial)
    arguments = {k: v for k, v in optimizer.items() if k != "class"}
    loss = dict(spec["loss"])
    model.compile(
        optimizer=getattr(keras.optimizers, optimizer["class"])(**arguments),
        loss=getattr(keras.losses, loss.pop("class"))(**loss),
        metrics=spec["metrics"],
    )
    recorder = Recorder()
    history = model.fit(
        data["x"], data["y"], shuffle=False, verbose=0, callbacks=[recorder], **fit
    )
    evaluated = model.evaluate(data["xv"], data["yv"], verbose=0, return_dict=True)
    result = {
        "policy": policy,
        "optimizer": optimizer,
        "fit": fit,
        "history": {k: [float(v) for v in vs] for k, vs in history.history.items()},
        "batch_logs": recorder.batches,
        "weights": [numbers(w) for w in model.get_weights()],
        "evaluate": {k: float(v) for k, v in evaluated.items()},
        "predict": tensor(model.predict(data["xv"], verbose=0)),
    }
    assert all(w.dtype == np.float32 for w in model.get_weights())
    if recorder.scales:
        result["scales"] = recorder.scales
    shapes = [[l.name, list(l.output.shape)] for l in model.layers[1:]]
    weights = [
        {"path": w.path, "shape": list(w.shape), "trainable": w.trainable, "data": numbers(v)}
        for w, v in zip(model.weights, initial)
    ]
    return result, shapes, weights, initial


SGD = {"class": "SGD", "learning_rate": 0.05, "momentum": 0.9}
CROSSENTROPY = {"class": "SparseCategoricalCrossentropy"}
MODELS = [
    {
        "model": "mlp",
        "architecture": {
            "input_shape": [6],
            "layers": [
                ["Dense", {"units": 8, "activation": "relu"}],
                ["Dense", {"units": 6, "activation": "gelu"}],
                ["Dense", {"units": 3, "activation": "softmax"}],
            ],
        },
        "loss": CROSSENTROPY,
        "metrics": ["sparse_categorical_accuracy"],
        "classes": 3,
    },
    {
        "model": "cnn",
        "architecture": {
            "input_shape": [8, 8, 2],
            "layers": [
                ["Conv2D", {"filters": 4, "kernel_size": 3, "padding": "same"}],
                ["BatchNormalization", {"momentum": 0.8}],
                ["Activation", {"activation": "relu"}],
                ["MaxPooling2D", {"pool_size": 2}],
                ["Conv2D", {"filters": 4, "kernel_size": 2, "activation": "relu"}],
                ["AveragePooling2D", {"pool_size": 2, "padding": "same"}],
                ["GlobalAveragePooling2D", {}],
                ["Dense", {"units": 3}],
            ],
        },
        "loss": dict(CROSSENTROPY, from_logits=True),
        "metrics": ["sparse_categorical_accuracy"],
        "classes": 3,
    },
    {
        "model": "lstm",
        "architecture": {
            "input_shape": [5, 3],
            "layers": [
                ["LSTM", {"units": 4, "return_sequences": True}],
                ["LSTM", {"units": 4}],
                ["Dense", {"units": 2}],
            ],
        },
        "loss": dict(CROSSENTROPY, from_logits=True),
        "metrics": ["sparse_categorical_accuracy"],
        "classes": 2,
    },
    {
        "model": "attention",
        "architecture": {
            "input_shape": [5],
            "dtype": "int32",
            "layers": [
                ["Embedding", {"input_dim": 12, "output_dim": 8}],
                ["MultiHeadAttention", {"num_heads": 2, "key_dim": 4}],
                ["LayerNormalization", {}],
                ["Dense", {"units": 6, "activation": "gelu"}],
                ["GlobalAveragePooling1D", {}],
                ["Dense", {"units": 3}],
            ],
        },
        "loss": dict(CROSSENTROPY, from_logits=True),
        "metrics": ["sparse_categorical_accuracy"],
        "classes": 3,
    },
    # Gradients of the first steps do not fit into a half times the scale. Steps are so long that
    # bfloat16 ends elsewhere than float32 does, in Keras as well: it is left out.
    {
        "model": "overflow",
        "architecture": {
            "input_shape": [4],
            "layers": [["Dense", {"units": 5, "activation": "tanh"}], ["Dense", {"units": 1}]],
        },
        "loss": {"class": "MeanSquaredError"},
        "metrics": ["mean_absolute_error"],
        "classes": 0,
        "optimizer": {"class": "SGD", "learning_rate": 0.01},
        "policies": ("float32", "mixed_float16"),
    },
]


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    for spec in MODELS:
        shape = spec["architecture"]["input_shape"]
        whole = spec["architecture"].get("dtype") == "int32"

        def sample(n):
            x = rng.integers(0, 12, size=(n, *shape)) if whole else normal(n, *shape)
            return x.astype(np.int32 if whole else np.float32)

        def label(x):
            if spec["classes"] == 0:
                return 40 * np.sum(x, axis=1, keepdims=True) + 60
            weighed = np.sum(x.reshape(len(x), -1).astype(np.float32), axis=1)
            return np.floor(np.abs(weighed) * 1.7).astype(np.int64) % spec["classes"]

        data = {"x": sample(32), "xv": sample(10)}
        data["y"], data["yv"] = label(data["x"]), label(data["xv"])
        initial, runs = None, []
        for policy in spec.get("policies", ("float32", "mixed_bfloat16", "mixed_float16")):
            result, shapes, weights, initial = run(
                spec, policy, data, initial, spec.get("optimizer", SGD),
                {"batch_size": 8, "epochs": 3},
            )
            runs.append(result)
        golden = {
            "model": spec["model"],
            "architecture": spec["architecture"],
            "layer_output_shapes": shapes,
            "loss": spec["loss"],
            "metrics": spec["metrics"],
            "initial_weights": weights,
            "data": {k: tensor(v) for k, v in data.items()},
            "runs": runs,
        }
        with open(os.path.join(folder, spec["model"] + ".json"), "w") as out:
            out.write("{\n")
            out.write(",\n".join(f' "{k}": {json.dumps(v)}' for k, v in golden.items()))
            out.write("\n}\n")


main()
