# SPDX-License-Identifier: Apache-2.0
"""Runs random programs of branches, loops and functions on TensorFlow and on our server.

    python compare_control_flow.py --server "millrace server" --seeds 0:500

Every program (random_control_flow.py) is run in a session of TensorFlow in this process and in
one of a server, step by step with the variables' values after each; they agree if all values do
(to 1e-4), or both fail with the same error class. Prints each difference and a summary; exit code
1 if there is any, 2 if there is no server.

    python compare_control_flow.py --record --seeds 0:400

writes the smallest programs of each style with what TensorFlow answers into ../goldens/control_flow/cases.pb,
for tests/functions:control_flow_golden_test, which needs no Python.
"""
import argparse
import collections
import os
import sys
import time
import traceback

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402

from clusters import ServerCluster  # noqa: E402
from random_control_flow import Program  # noqa: E402

OP_TIMEOUT_MS = 60000
TOLERANCE = 1e-4
RECORDED = 14  # programs of each style
GOLDENS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "goldens", "control_flow")


def session_config():
    """Both sides run the graph that was written: nothing is rewritten."""
    config = tf.ConfigProto()
    config.operation_timeout_in_ms = OP_TIMEOUT_MS
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def answers(target, program):
    """For each run its values, or its error class, and then the variables' values."""
    found = []
    with tf.Session(target, graph=program.graph, config=session_config()) as session:
        for run in program.runs:
            session.run(program.init)
            for _ in range(2):
                try:
                    found.append(session.run(run))
                except tf.errors.OpError as error:
                    found.append(type(error).__name__ + ": " + error.message[:300])
                found.append(session.run(program.reads))
    return found


def differ(a, b):
    if isinstance(a, str) or isinstance(b, str):
        return not (isinstance(a, str) and isinstance(b, str) and
                    a.split(":")[0] == b.split(":")[0])
    return not all(np.allclose(x, y, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
                   for x, y in zip(a, b))


def compare(program, target):
    """A description of the first difference, or None."""
    expected = answers("", program)
    try:
        got = answers(target, program)
    except tf.errors.OpError as error:
        return "no answers: " + error.message[:400]
    for i, (want, have) in enumerate(zip(expected, got)):
        if differ(want, have):
            run = program.runs[i // 4]
            what = "variables after" if i % 2 else "values of"
            return "%s run %s (%d): %s, TensorFlow %s" % (
                what, [t.name for t in run], i // 2 % 2, have, want)
    return None


def record(seeds):
    from record_kernels import golden_module
    chosen = []
    for seed in seeds:
        try:
            program = Program(seed)
        except Exception:  # what TensorFlow does not build
            continue
        if program.constructs >= 2:
            chosen.append((len(program.graph.as_graph_def().SerializeToString()), seed))
    cases, counts = golden_module().CaseSet(), collections.Counter()
    for _, seed in sorted(chosen):
        program = Program(seed)
        if counts[program.style] == RECORDED:
            continue
        # What always gives the same, in case a program is not determined after all.
        found = [answers("", program) for _ in range(3)]
        if any(differ(a, b) for again in found[1:] for a, b in zip(found[0], again)):
            continue
        if any(isinstance(answer, str) for answer in found[0]):
            continue
        counts[program.style] += 1
        case = cases.case.add(name="%s_%d" % (program.style.replace(" ", "_"), seed), op="While",
                              family=2, compare="close", rtol=TOLERANCE, atol=TOLERANCE,
                              graph_def=program.graph.as_graph_def().SerializeToString())
        for i, values in enumerate(found[0]):
            if i % 4 == 0:
                case.step.add(target=[program.init.name])
            step = case.step.add()
            tensors = program.reads if i % 2 else program.runs[i // 4]
            step.fetch.extend(t.name for t in tensors)
            for t, value in zip(tensors, values):
                step.expected.append(tf.make_tensor_proto(value, t.dtype).SerializeToString())
    os.makedirs(GOLDENS, exist_ok=True)
    with open(os.path.join(GOLDENS, "cases.pb"), "wb") as f:
        f.write(cases.SerializeToString(deterministic=True))
    print("%d programs recorded" % len(cases.case))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", help="command that starts a server of ours")
    parser.add_argument("--seeds", default="0:400", help="first:end")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    first, end = map(int, args.seeds.split(":"))
    if args.record:
        return record(range(first, end))
    counts, start = collections.Counter(), time.monotonic()
    try:
        cluster = ServerCluster({"local": 1}, 1, args.server).__enter__()
    except RuntimeError as error:
        print(error)
        return 2
    try:
        for seed in range(first, end):
            try:
                program = Program(seed)
            except Exception:
                counts["not built"] += 1
                if args.verbose:
                    traceback.print_exc()
                continue
            difference = compare(program, cluster.target("local", 0))
            counts["same" if difference is None else "different"] += 1
            if difference is not None:
                print("seed %d (%s): %s" % (seed, program.style, difference), flush=True)
            elif args.verbose:
                print("seed %d (%s): same" % (seed, program.style), flush=True)
    finally:
        cluster.__exit__()
    print("%s in %.0f s" % (dict(counts), time.monotonic() - start))
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
