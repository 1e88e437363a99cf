# SPDX-License-Identifier: Apache-2.0
"""Saving and restoring beside TensorFlow, in turns, and beside a copy of the same bytes.

    python compare.py --program "$PWD/bazel-bin/bench/saving/saving_bench" [--folder /dev/shm/x]

In a folder in memory (/dev/shm) fsync costs nothing: those are the times without it. TensorFlow
never calls it; on a disk its times end when the system has the bytes. What ends with _cpu is the
work of all threads and of the system for them: the number to look at on a machine that is not alone.
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="")
    parser.add_argument("--folder", default="/dev/shm/saving_bench")
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--tensors", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(TENSORFLOW, action="store_true")
    flags = parser.parse_args()
    if flags.tensorflow:
        tensorflow_round(flags.folder, flags.mebibytes, flags.tensors)
        return
    sizes = ["--folder", flags.folder, "--mebibytes", str(flags.mebibytes),
             "--tensors", str(flags.tensors)]
    ours, theirs = [], []
    for _ in range(flags.rounds):
        ours.append(run([flags.program] + sizes))
        theirs.append(run([sys.executable, os.path.abspath(__file__), TENSORFLOW] + sizes))
    middle = {k: statistics.median(r[k] for r in ours) for k in ours[0]}
    tensorflow = {k: statistics.median(r[k] for r in theirs) for k in theirs[0]}
    print("%d MiB in %d tensors, %s, medians of %d rounds in turns" %
          (flags.mebibytes, flags.tensors, flags.folder, flags.rounds))
    for name, seconds in middle.items():
        print("%-16s %7.3f s" % (name, seconds))
    for name, seconds in tensorflow.items():
        print("tensorflow %-12s %7.3f s: ours takes %.2f of it" %
              (name, seconds, middle[name] / seconds))
    for kind in ["", "_cpu"]:
        print("save%s / copy %.2f, / copy and fsync %.2f" % (
            kind, middle["save" + kind] / middle["copy" + kind],
            middle["save" + kind] / middle["copy_fsync" + kind]))


if __name__ == "__main__":
    main()
