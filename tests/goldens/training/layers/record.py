# SPDX-License-Identifier: Apache-2.0
"""Records what layers of Keras compute, as cases for tests/layers.

    KERAS_BACKEND=tensorflow python record.py
writes layers.json beside this file: {cases: [{name, layer, arguments, inputs, dims, mask, training,
weights, output, output_mask, input_gradients, weight_gradients, weights_after}]}. A tensor is
{dtype, shape, data}; `dims` are the inputs' shapes as the layer is to know them, null where it does
not; `weights` in the order of layer.weights, with their paths; the gradients are those of
sum(output * cos(0, 1, 2, ...)).
"""
import json
import os

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
import keras
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(3)
cases = []


def numbers(array):
    array = np.asarray(array)
    if array.dtype == np.float32:
        return [float(np.format_float_positional(v, unique=True)) for v in array.ravel()]
    return [v.item() for v in array.ravel()]


def tensor(array):
    array = np.asarray(array)
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": numbers(array)}


def normal(*shape):
    return rng.normal(size=shape).astype(np.float32)


def make(kind, arguments):
    arguments = dict(arguments)
    call = {}
    if "layer" in arguments:
        inner, inner_arguments = arguments["layer"]
        arguments["layer"] = make(inner, inner_arguments)[0]
    if "use_causal_mask" in arguments:
        call["use_causal_mask"] = arguments.pop("use_causal_mask")
    if kind in ("Bidirectional", "TimeDistributed"):
        return getattr(keras.layers, kind)(**arguments), call
    return getattr(keras.layers, kind)(**arguments), call


def record(name, kind, arguments, inputs, dims=None, mask=None, training=False):
    keras.utils.clear_session()
    layer, call = make(kind, dict(arguments, name="layer"))
    xs = [tf.constant(x) for x in inputs]
    given = xs[0] if len(xs) == 1 else list(xs)
    is_attention = kind == "MultiHeadAttention"
    is_recurrent = kind in ("SimpleRNN", "LSTM", "GRU")

    def run():
        if is_attention:
            query, value, key = (xs + xs[-1:] * 2)[:3] if len(xs) < 3 else xs
            if mask is not None:
                # As a layer before it does; a mask of the query that is an argument is not looked at.
                keras.src.backend.set_keras_mask(query, tf.constant(mask))
            return layer(query, value, key, **call)
        if is_recurrent and len(xs) > 1:
            more = {"mask": tf.constant(mask)} if mask is not None else {}
            return layer(xs[0], initial_state=xs[1:], training=training, **more)
        if kind in ("BatchNormalization", "Dropout") or is_recurrent or kind == "Bidirectional":
            more = {"mask": tf.constant(mask)} if mask is not None else {}
            return layer(given, training=training, **more)
        if mask is not None:
            return layer(given, mask=tf.constant(mask))
        return layer(given)

    run()  # makes the weights
    for w in layer.weights:
        value = normal(*w.shape) * np.float32(0.5)
        if "variance" in w.path:
            value = np.abs(value) + np.float32(0.5)
        w.assign(value)
    before = [{"path": w.path, "trainable": w.trainable, **tensor(w.numpy())}
              for w in layer.weights]
    floats = [x for x in xs if x.dtype.is_floating]
    with tf.GradientTape(persistent=True) as tape:
        for x in floats:
            tape.watch(x)
        y = run()
        scale = np.cos(np.arange(np.prod(y.shape))).reshape(y.shape).astype(np.float32)
        loss = tf.reduce_sum(tf.cast(y, tf.float32) * scale)
    trained = [w.value for w in layer.trainable_weights]
    dense = lambda g, like: np.zeros(like.shape, np.float32) if g is None else \
        tf.convert_to_tensor(g).numpy()
    made = getattr(y, "_keras_mask", None)
    cases.append({
        "name": name, "layer": kind, "arguments": arguments,
        "inputs": [tensor(x.numpy()) for x in xs],
        "dims": dims or [[None] + list(x.shape[1:]) for x in xs],
        "mask": None if mask is None else tensor(mask),
        "training": training,
        "weights": before,
        "output": tensor(y.numpy()),
        "output_mask": None if made is None else tensor(np.asarray(made)),
        "input_gradients": [tensor(dense(g, x)) for g, x in zip(tape.gradient(loss, floats), floats)],
        "weight_gradients": [tensor(dense(g, w)) for g, w in
                             zip(tape.gradient(loss, trained), trained)],
        "weights_after": [tensor(w.numpy()) for w in layer.weights],
    })


def record_core():
    x = normal(3, 4)
    record("dense", "Dense", {"units": 5}, [x])
    record("dense_of_sequences", "Dense", {"units": 2, "activation": "tanh"}, [normal(2, 3, 4)],
           dims=[[None, None, 4]])
    record("dense_of_images", "Dense", {"units": 2, "use_bias": False}, [normal(2, 3, 2, 4)])
    for name in ("celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_tanh "
                 "leaky_relu linear log_sigmoid log_softmax mish relu relu6 selu sigmoid silu "
                 "soft_shrink softmax softplus softsign sparse_plus sparse_sigmoid squareplus "
                 "tanh tanh_shrink swish hard_swish").split():
        record("activation_" + name, "Activation", {"activation": name}, [3 * normal(3, 6)])
    record("leaky_relu", "LeakyReLU", {}, [x])
    record("elu", "ELU", {"alpha": 0.7}, [x])
    record("relu", "ReLU", {}, [x])
    record("relu_all", "ReLU", {"max_value": 1.0, "negative_slope": 0.1, "threshold": 0.2}, [x])
    record("prelu", "PReLU", {}, [normal(2, 3, 4)])
    record("prelu_shared", "PReLU", {"shared_axes": [1]}, [normal(2, 3, 4)], dims=[[None, None, 4]])
    record("softmax_axis", "Softmax", {"axis": 1}, [normal(2, 3, 4)])
    record("embedding", "Embedding", {"input_dim": 5, "output_dim": 3},
           [np.array([[1, 0, 4], [1, 2, 0]], np.int32)])
    record("embedding_mask", "Embedding", {"input_dim": 5, "output_dim": 3, "mask_zero": True},
           [np.array([[1, 0, 4], [1, 2, 0]], np.int64)], dims=[[None, None]])
    y = normal(2, 4, 3)
    y[0, 1] = y[1, 3] = 0.5
    record("masking", "Masking", {"mask_value": 0.5}, [y])
    record("dropout_predicts", "Dropout", {"rate": 0.5}, [x])


def record_shapes():
    image, sequence = normal(2, 4, 5, 3), normal(2, 4, 3)
    record("flatten", "Flatten", {}, [image])
    record("reshape", "Reshape", {"target_shape": [5, -1]}, [image])
    record("permute", "Permute", {"dims": [3, 1, 2]}, [image])
    record("repeat_vector", "RepeatVector", {"n": 3}, [normal(2, 4)])
    record("zero_padding_1d", "ZeroPadding1D", {"padding": [1, 2]}, [sequence])
    record("zero_padding_2d", "ZeroPadding2D", {"padding": [[1, 0], [2, 3]]}, [image])
    record("zero_padding_2d_two", "ZeroPadding2D", {"padding": [1, 2]}, [image],
           dims=[[None, None, None, 3]])
    record("cropping_1d", "Cropping1D", {"cropping": [1, 1]}, [sequence])
    record("cropping_2d", "Cropping2D", {"cropping": [[1, 0], [1, 2]]}, [image])
    record("up_sampling_1d", "UpSampling1D", {"size": 3}, [sequence])
    record("up_sampling_2d", "UpSampling2D", {"size": [2, 3]}, [image])
    record("up_sampling_2d_unknown", "UpSampling2D", {}, [image], dims=[[None, None, None, 3]])


def record_merges():
    a, b, c = normal(2, 3, 4), normal(2, 3, 4), normal(2, 3, 4)
    for kind in ("Add", "Multiply", "Average", "Maximum", "Minimum"):
        record(kind.lower(), kind, {}, [a, b, c])
    record("subtract", "Subtract", {}, [a, b])
    record("add_broadcast", "Add", {}, [a, normal(2, 4)])
    record("concatenate", "Concatenate", {}, [a, normal(2, 3, 2)])
    record("concatenate_axis", "Concatenate", {"axis": 1}, [a, normal(2, 5, 4)])
    record("dot", "Dot", {"axes": [1, 1]}, [normal(3, 4), normal(3, 4)])
    record("dot_normalized", "Dot", {"axes": [1, 1], "normalize": True},
           [normal(3, 4), normal(3, 4)])
    record("dot_sequences", "Dot", {"axes": [2, 2]}, [a, normal(2, 5, 4)])
    record("dot_first", "Dot", {"axes": [1, 1]}, [a, normal(2, 3, 5)])
    record("dot_mixed", "Dot", {"axes": [2, 1]}, [a, normal(2, 4)])


def record_convolutions():
    image, sequence = normal(2, 5, 6, 4), normal(2, 7, 4)
    for padding in ("valid", "same"):
        record("conv1d_" + padding, "Conv1D",
               {"filters": 3, "kernel_size": 3, "padding": padding, "strides": 2}, [sequence])
        record("conv2d_" + padding, "Conv2D",
               {"filters": 3, "kernel_size": [3, 2], "padding": padding, "strides": [2, 1],
                "activation": "relu"}, [image])
        record("depthwise_" + padding, "DepthwiseConv2D",
               {"kernel_size": [3, 2], "padding": padding, "depth_multiplier": 2}, [image])
        record("conv_transpose_" + padding, "Conv2DTranspose",
               {"filters": 3, "kernel_size": [3, 2], "strides": 2, "padding": padding}, [image])
        record("max_pooling_1d_" + padding, "MaxPooling1D", {"padding": padding}, [sequence])
        record("average_pooling_1d_" + padding, "AveragePooling1D",
               {"pool_size": 3, "strides": 2, "padding": padding}, [sequence])
        record("max_pooling_2d_" + padding, "MaxPooling2D",
               {"pool_size": [2, 3], "padding": padding}, [image])
        record("average_pooling_2d_" + padding, "AveragePooling2D",
               {"pool_size": 2, "strides": 1, "padding": padding}, [image])
    record("conv1d_causal", "Conv1D",
           {"filters": 3, "kernel_size": 3, "padding": "causal", "dilation_rate": 2}, [sequence])
    record("conv2d_dilated", "Conv2D", {"filters": 2, "kernel_size": 2, "dilation_rate": 2}, [image])
    record("conv2d_groups", "Conv2D", {"filters": 4, "kernel_size": 3, "groups": 2}, [image])
    record("conv2d_unknown", "Conv2D", {"filters": 2, "kernel_size": 3, "padding": "same"}, [image],
           dims=[[None, None, None, 4]])
    record("conv_transpose_unknown", "Conv2DTranspose",
           {"filters": 2, "kernel_size": 3, "strides": 2}, [image], dims=[[None, None, None, 4]])
    record("conv_transpose_gap", "Conv2DTranspose",
           {"filters": 2, "kernel_size": 1, "strides": 2}, [image])
    for kind, x in (("1D", sequence), ("2D", image)):
        record("global_max_pooling_" + kind, "GlobalMaxPooling" + kind, {}, [x])
        record("global_average_pooling_" + kind, "GlobalAveragePooling" + kind, {"keepdims": True},
               [x])
    record("global_average_masked", "GlobalAveragePooling1D", {}, [normal(2, 3, 4)],
           mask=np.array([[True, False, True], [True, True, True]]))


def record_volumes():
    volume = normal(2, 4, 5, 3, 2)
    unknown = [[None, None, None, None, 2]]
    for padding in ("valid", "same"):
        record("conv3d_" + padding, "Conv3D",
               {"filters": 3, "kernel_size": [2, 3, 2], "padding": padding, "strides": [1, 2, 1],
                "activation": "relu"}, [volume])
        record("conv3d_transpose_" + padding, "Conv3DTranspose",
               {"filters": 2, "kernel_size": [3, 2, 1], "strides": 2, "padding": padding}, [volume])
        record("max_pooling_3d_" + padding, "MaxPooling3D",
               {"pool_size": [2, 3, 2], "padding": padding}, [volume])
        record("average_pooling_3d_" + padding, "AveragePooling3D",
               {"pool_size": 2, "strides": 1, "padding": padding}, [volume])
    record("conv3d_groups", "Conv3D", {"filters": 4, "kernel_size": 2, "groups": 2}, [volume])
    record("conv3d_unknown", "Conv3D", {"filters": 2, "kernel_size": 3, "padding": "same"}, [volume],
           dims=unknown)
    record("conv3d_transpose_unknown", "Conv3DTranspose",
           {"filters": 2, "kernel_size": 2, "strides": 1}, [volume], dims=unknown)
    record("global_max_pooling_3D", "GlobalMaxPooling3D", {}, [volume])
    record("global_average_pooling_3D", "GlobalAveragePooling3D", {"keepdims": True}, [volume])


def record_normalizations():
    rows, sequence, image = normal(6, 3), normal(3, 4, 3), normal(2, 4, 5, 4)
    mask = np.array([[1, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1]], bool)
    for training in (False, True):
        end = "_trains" if training else ""
        for name, x in (("rows", rows), ("sequence", sequence), ("image", image)):
            record(f"batch_norm_{name}{end}", "BatchNormalization", {"momentum": 0.7}, [x],
                   training=training)
        record("batch_norm_axis" + end, "BatchNormalization", {"axis": 1}, [image],
               training=training)
        record("batch_norm_plain" + end, "BatchNormalization",
               {"center": False, "scale": False, "epsilon": 0.01}, [rows], training=training)
        record("batch_norm_masked" + end, "BatchNormalization", {"momentum": 0.5}, [sequence],
               mask=mask, training=training)
    record("layer_norm", "LayerNormalization", {}, [sequence], dims=[[None, None, 3]])
    record("layer_norm_axes", "LayerNormalization", {"axis": [1, 2], "epsilon": 1e-5}, [image[0]])
    record("layer_norm_plain", "LayerNormalization", {"center": False}, [rows])
    record("group_norm", "GroupNormalization", {"groups": 2}, [image])
    record("group_norm_each", "GroupNormalization", {"groups": -1}, [image],
           dims=[[None, None, None, 4]])
    record("unit_norm", "UnitNormalization", {}, [sequence])


def record_recurrent():
    short, long = normal(3, 4, 2), normal(2, 20, 2)
    mask = np.array([[1, 1, 0, 1], [0, 1, 1, 0], [1, 1, 1, 1]], bool)
    loop = [[None, None, 2]]
    for kind, states in (("SimpleRNN", 1), ("LSTM", 2), ("GRU", 1)):
        name = kind.lower()
        record(name, kind, {"units": 3}, [short])
        record(name + "_loop", kind, {"units": 3}, [short], dims=loop)
        record(name + "_long", kind, {"units": 3, "return_sequences": True}, [long])
        record(name + "_unroll", kind, {"units": 3, "return_sequences": True, "unroll": True}, [long])
        for dims in (None, loop):
            end = "" if dims is None else "_loop"
            record(name + "_backwards" + end, kind,
                   {"units": 3, "return_sequences": True, "go_backwards": True}, [short], dims=dims)
            record(name + "_masked" + end, kind, {"units": 3}, [short], dims=dims, mask=mask)
            record(name + "_masked_sequences" + end, kind, {"units": 3, "return_sequences": True},
                   [short], dims=dims, mask=mask)
            record(name + "_masked_backwards" + end, kind,
                   {"units": 3, "return_sequences": True, "go_backwards": True}, [short], dims=dims,
                   mask=mask)
            record(name + "_masked_zero" + end, kind,
                   {"units": 3, "return_sequences": True, "zero_output_for_mask": True}, [short],
                   dims=dims, mask=mask)
            state_dims = None if dims is None else dims + [[None, 3]] * states
            record(name + "_initial_masked" + end, kind, {"units": 3, "return_sequences": True},
                   [short] + [normal(3, 3) for _ in range(states)], dims=state_dims, mask=mask)
        record(name + "_no_bias", kind,
               {"units": 3, "use_bias": False, "activation": "relu"}, [short])
        record("bidirectional_" + name, "Bidirectional", {"layer": [kind, {"units": 3}]}, [short])
        record(f"bidirectional_{name}_masked", "Bidirectional",
               {"layer": [kind, {"units": 3, "return_sequences": True}]}, [short], mask=mask)
    record("gru_reset_before", "GRU", {"units": 3, "reset_after": False}, [short])
    record("gru_reset_before_loop", "GRU", {"units": 3, "reset_after": False}, [short], dims=loop)
    record("lstm_hard", "LSTM", {"units": 3, "recurrent_activation": "hard_sigmoid"}, [short])
    for mode in ("sum", "mul", "ave"):
        record("bidirectional_" + mode, "Bidirectional",
               {"layer": ["LSTM", {"units": 3, "return_sequences": True}], "merge_mode": mode},
               [short], dims=loop)
    record("time_distributed", "TimeDistributed", {"layer": ["Dense", {"units": 3}]}, [short],
           dims=loop)
    record("time_distributed_conv", "TimeDistributed",
           {"layer": ["Conv2D", {"filters": 2, "kernel_size": 3}]}, [normal(2, 3, 5, 5, 1)])


def record_attention():
    query, value, key = normal(2, 3, 4), normal(2, 5, 6), normal(2, 5, 2)
    small = {"num_heads": 2, "key_dim": 3}
    mask = np.array([[1, 1, 0], [1, 0, 0]], bool)
    record("attention", "MultiHeadAttention", small, [query, value, key])
    record("attention_two", "MultiHeadAttention", dict(small, value_dim=2, output_shape=5),
           [query, value], dims=[[None, None, 4], [None, None, 6]])
    record("attention_self", "MultiHeadAttention", dict(small, use_bias=False), [query])
    record("attention_masked", "MultiHeadAttention", small, [query], mask=mask)
    record("attention_causal", "MultiHeadAttention", dict(small, use_causal_mask=True), [query])


record_core()
record_shapes()
record_merges()
record_convolutions()
record_normalizations()
record_recurrent()
record_attention()
record_volumes()
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "layers.json")
with open(path, "w") as file:
    file.write('{"cases": [\n' + ",\n".join(json.dumps(case) for case in cases) + "\n]}\n")
print(len(cases), "cases")
