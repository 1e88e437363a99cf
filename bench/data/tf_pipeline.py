# SPDX-License-Identifier: Apache-2.0
"""What pipeline_bench times, of tf.data: python3 tf_pipeline.py [ELEMENTS]."""

import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf


def timed(name, dataset, elements):
    best = 1e30
    for _ in range(3):
        start = time.perf_counter()
        for _ in dataset:
            pass
        best = min(best, (time.perf_counter() - start) / elements)
    print("%-28s %8.0f ns per element" % (name, best * 1e9))


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100000
    numbers = tf.data.Dataset.range(n)
    same = lambda x: tf.identity(x)
    timed("range", numbers, n)
    timed("range, batch", numbers.batch(100), n)
    timed("range, map, batch", numbers.map(same).batch(100), n)
    timed("range, parallel map, batch", numbers.map(same, num_parallel_calls=2).batch(100), n)
    timed("range, shuffle, batch", numbers.shuffle(1000, seed=1).batch(100), n)
    timed("range, batch, prefetch", numbers.batch(100).prefetch(2), n)


if __name__ == "__main__":
    main()
