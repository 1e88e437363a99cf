# SPDX-License-Identifier: Apache-2.0
"""The cases of ops_bench by TensorFlow, on two threads, in turns with ours.

    $(tools/tensorflow_python) bench/kernels/ops_peer.py bazel-bin/bench/kernels/ops_bench [case ...]
prints for each case the milliseconds of both and their ratio (smaller is faster): the fastest of
three turns each.
"""
import os
import subprocess
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(2)
tf.config.threading.set_inter_op_parallelism_threads(1)
ops = tf.raw_ops
rng = np.random.default_rng(0)
SIZE = 4 << 20
x = tf.constant(rng.normal(size=SIZE).astype(np.float32))
y = tf.constant(rng.normal(size=SIZE).astype(np.float32))
h, h2 = tf.cast(x, tf.float16), tf.cast(y, tf.float16)
c = tf.constant(rng.random(SIZE) < 0.5)
mask = tf.constant(rng.random((64, 1, 1, 512)) < 0.5)
positive = tf.abs(x)
image = tf.constant(rng.normal(size=(32, 128, 128, 3)).astype(np.float32))
pads = tf.constant([[0, 0], [4, 4], [4, 4], [0, 0]])
labels = tf.constant(rng.integers(0, 1024, SIZE // 1024).astype(np.int32))
ids = tf.constant(rng.integers(0, 50000, 65536))
slots = [tf.Variable(positive + 0) for _ in range(3)]


def rows(t, n):
    return tf.reshape(t, [-1, n])


x4, x64, x1024, h1024 = rows(x, 4), rows(x, 64), rows(x, 1024), rows(h, 1024)
middle, heads = tf.reshape(x, [64, -1, 8]), tf.reshape(x, [64, 8, 16, 512])


def example(i):
    features = {}
    for k in range(15):
        features[f"f{k}"] = tf.train.Feature(float_list=tf.train.FloatList(value=[0.1 * i]))
        features[f"i{k}"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[i]))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


serialized = tf.constant([example(i) for i in range(4096)])
dense = [f"f{k}" for k in range(15)] + [f"i{k}" for k in range(15)]
zeros = [tf.constant([0.0])] * 15 + [tf.constant([0], tf.int64)] * 15
no_lists = dict(ragged_keys=[], ragged_value_types=[], ragged_split_types=[])
CASES = {
    "log1p": lambda: ops.Log1p(x=positive),
    "clip": lambda: ops.ClipByValue(t=x, clip_value_min=-1.0, clip_value_max=1.0),
    "erf": lambda: ops.Erf(x=x),
    "expm1": lambda: ops.Expm1(x=x),
    "elu": lambda: ops.Elu(features=x),
    "selu": lambda: ops.Selu(features=x),
    "softplus": lambda: ops.Softplus(features=x),
    "softsign": lambda: ops.Softsign(features=x),
    "leaky": lambda: ops.LeakyRelu(features=x),
    "l2loss": lambda: ops.L2Loss(t=x),
    "elu_grad": lambda: ops.EluGrad(gradients=y, outputs=x),
    "selu_grad": lambda: ops.SeluGrad(gradients=y, outputs=x),
    "leaky_grad": lambda: ops.LeakyReluGrad(gradients=y, features=x),
    "softplus_grad": lambda: ops.SoftplusGrad(gradients=y, features=x),
    "select": lambda: ops.Select(condition=c, x=x, y=y),
    "selectv2": lambda: ops.SelectV2(condition=c, t=x, e=y),
    "selectv2_scalar_else": lambda: ops.SelectV2(condition=c, t=x, e=0.0),
    "selectv2_mask": lambda: ops.SelectV2(condition=mask, t=heads, e=-1e9),
    "where": lambda: ops.Where(condition=c),
    "half_add": lambda: ops.AddV2(x=h, y=h2),
    "half_mul": lambda: ops.Mul(x=h, y=h2),
    "half_relu": lambda: ops.Relu(features=h),
    "half_exp": lambda: ops.Exp(x=h),
    "half_sum": lambda: ops.Sum(input=h, axis=[0]),
    "half_softmax": lambda: ops.Softmax(logits=h1024),
    "half_bias": lambda: ops.BiasAdd(value=h1024, bias=h[:1024]),
    "half_to_float": lambda: ops.Cast(x=h, DstT=tf.float32),
    "float_to_half": lambda: ops.Cast(x=x, DstT=tf.float16),
    "max_axis0_64": lambda: ops.Max(input=x64, axis=[0]),
    "sum_axis0_4": lambda: ops.Sum(input=x4, axis=[0]),
    "sum_axis0_64": lambda: ops.Sum(input=x64, axis=[0]),
    "sum_axis0_1024": lambda: ops.Sum(input=x1024, axis=[0]),
    "sum_axis1_4": lambda: ops.Sum(input=x4, axis=[1]),
    "sum_mid_8": lambda: ops.Sum(input=middle, axis=[1]),
    "norm": lambda: ops.EuclideanNorm(input=x, axis=[0]),
    "mirror_pad": lambda: ops.MirrorPad(input=image, paddings=pads, mode="REFLECT"),
    "mirror_pad_grad": lambda: ops.MirrorPadGrad(input=image, paddings=pads, mode="REFLECT"),
    "in_top_k": lambda: ops.InTopKV2(predictions=x1024, targets=labels, k=5),
    "unique": lambda: ops.Unique(x=ids),
    "ftrl": lambda: ops.ResourceApplyFtrl(
        var=slots[0].handle, accum=slots[1].handle, linear=slots[2].handle, grad=x, lr=0.01,
        l1=0.1, l2=0.1, lr_power=-0.5),
    "parse": lambda: ops.ParseExampleV2(
        serialized=serialized, names=[], sparse_keys=[], dense_keys=dense, dense_defaults=zeros,
        num_sparse=0, sparse_types=[], dense_shapes=[[1]] * 30, **no_lists),
    "parse_varlen": lambda: ops.ParseExampleV2(
        serialized=serialized, names=[], sparse_keys=dense[:5] + dense[15:20], dense_keys=[],
        dense_defaults=[], num_sparse=10, sparse_types=[tf.float32] * 5 + [tf.int64] * 5,
        dense_shapes=[], **no_lists),
}


def theirs(run):
    best = float("inf")
    for _ in range(8):
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    return 1e3 * best


def main():
    bench, wanted = sys.argv[1], sys.argv[2:] or list(CASES)
    ours = {name: float("inf") for name in wanted}
    peer = dict(ours)
    for _ in range(3):
        for name in wanted:
            peer[name] = min(peer[name], theirs(CASES[name]))
        out = subprocess.run([bench] + wanted, check=True, capture_output=True, text=True).stdout
        for line in out.splitlines():
            name, took = line.split()[:2]
            ours[name] = min(ours[name], float(took))
    for name in wanted:
        print(f"{name:22} {ours[name]:9.3f} ms  TensorFlow {peer[name]:9.3f} ms  "
              f"{ours[name] / peer[name]:6.2f} x")


if __name__ == "__main__":
    main()
