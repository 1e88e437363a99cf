# SPDX-License-Identifier: Apache-2.0
"""Saving and restoring beside TensorFlow, in turns, and beside a copy of the same bytes.

    python compare.py --program "$PWD/bazel-bin/bench/saving/saving_bench" [--folder /dev/shm/x]
                      [--disk_folder DIR] [--steps N]

In a folder in memory (/dev/shm) fsync costs nothing: those are the times without it. TensorFlow
never calls it; on a disk its times end when the system has the bytes. --disk_folder adds turns of
our program alone in a folder on a disk, beside a copy of the same bytes and fsync. --steps adds
training on one core: so many steps without a save and as many beside one, what a save costs that is
made every so many steps. What ends with _cpu is the work of all threads and of the system for them:
the number to look at on a machine that is not alone. In brackets: the lowest and the highest ratio
of a turn.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

TENSORFLOW = "--tensorflow"


def timed(times, name, function):
    start, cpu = time.perf_counter(), time.process_time()
    function()
    times[name] = time.perf_counter() - start
    times[name + "_cpu"] = time.process_time() - cpu


def tensorflow_round(folder, mebibytes, tensors):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import tensorflow as tf

    v1 = tf.compat.v1
    elements = mebibytes * 2**20 // 4 // tensors
    with tf.Graph().as_default(), v1.Session() as session:
        for i in range(tensors):
            v1.Variable(tf.fill([elements], 0.5), name="v%d" % i, use_resource=False)
        saver = v1.train.Saver(max_to_keep=1)
        session.run(v1.global_variables_initializer())
        os.makedirs(folder, exist_ok=True)
        times = {}
        timed(times, "save", lambda: saver.save(session, folder + "/s", global_step=1))
        timed(times, "restore", lambda: saver.restore(session, folder + "/s-1"))
    shutil.rmtree(folder)
    print(json.dumps(times))


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        sys.exit("%s: %s" % (" ".join(command), done.stderr))
    return json.loads(done.stdout.splitlines()[-1])


def warm(flags):
    """Touches memory: what a virtual machine has not used yet comes at half the speed."""
    os.makedirs(flags.folder, exist_ok=True)
    path = os.path.join(flags.folder, "warm")
    piece = bytes(1 << 20)
    with open(path, "wb", buffering=0) as file:
        for _ in range(3 * flags.mebibytes):
            file.write(piece)
    os.remove(path)


def ratio(rounds, name, other, other_rounds=None):
    ratios = sorted(r[name] / o[other] for r, o in zip(rounds, other_rounds or rounds))
    return "%.2f [%.2f, %.2f]" % (statistics.median(ratios), ratios[0], ratios[-1])


def print_copies(ours, copy):
    for kind in ["", "_cpu"]:
        print("save%s / %s %s" % (kind, copy, ratio(ours, "save" + kind, copy + kind)))


def print_memory(flags, ours, theirs):
    print("%d MiB in %d tensors, %s, medians of %d rounds in turns" %
          (flags.mebibytes, flags.tensors, flags.folder, flags.rounds))
    for name in ours[0]:
        print("%-16s %7.3f s" % (name, statistics.median(r[name] for r in ours)))
    for name in theirs[0]:
        print("tensorflow %-12s %7.3f s: ours takes %s of it" %
              (name, statistics.median(r[name] for r in theirs), ratio(ours, name, name, theirs)))
    print_copies(ours, "copy")


def print_disk(flags, ours):
    print("the same in %s" % flags.disk_folder)
    for name in ["copy", "copy_fsync", "save", "restore"]:
        print("%-16s %7.3f s" % (name, statistics.median(r[name] for r in ours)))
    print_copies(ours, "copy_fsync")


def print_training(flags, ours):
    print("%d steps on one core" % flags.steps)
    for name in ["train", "train_aside", "aside_blocks"]:
        print("%-16s %7.3f s" % (name, statistics.median(r[name] for r in ours)))
    print("train_aside / train %s" % ratio(ours, "train_aside", "train"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="")
    parser.add_argument("--folder", default="/dev/shm/saving_bench")
    parser.add_argument("--disk_folder", default="")
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--tensors", type=int, default=100)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(TENSORFLOW, action="store_true")
    flags = parser.parse_args()
    if flags.tensorflow:
        tensorflow_round(flags.folder, flags.mebibytes, flags.tensors)
        return
    sizes = ["--mebibytes", str(flags.mebibytes), "--tensors", str(flags.tensors)]
    here = sizes + ["--folder", flags.folder]
    ours, theirs, on_disk, training = [], [], [], []
    for _ in range(flags.rounds):
        warm(flags)
        ours.append(run([flags.program] + here))
        warm(flags)
        theirs.append(run([sys.executable, os.path.abspath(__file__), TENSORFLOW] + here))
        if flags.disk_folder:
            on_disk.append(run([flags.program] + sizes + ["--folder", flags.disk_folder]))
        if flags.steps:
            training.append(run(["taskset", "-c", "0", flags.program, "--steps", str(flags.steps)] +
                                here))
    print_memory(flags, ours, theirs)
    if on_disk:
        print_disk(flags, on_disk)
    if training:
        print_training(flags, training)


if __name__ == "__main__":
    main()
