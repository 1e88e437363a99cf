# SPDX-License-Identifier: Apache-2.0
"""Calls single ops with random attributes and operands on TensorFlow and on our server.

    python compare_calls.py --server "millrace server" --seeds 0:20000

Every call (random_calls.py) is fed several sets of operands, of unknown static shapes, so that kernels
and not shape functions judge them. Both sides have to give the same values (bit for bit but for
floats, which may differ as TOLERANCES says), or an error of the same class. Seeds run in processes
of their own, since some operands end TensorFlow's; those are counted and left out. Prints each kind
of difference once for each op, with how often it came, and a summary; exit code 1 if there is any, 2 if
there is no server.
"""
import argparse
import collections
import json
import os
import subprocess
import sys
import time

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import numpy as np  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "..", "..", "docs", "op_table.md")
OP_TIMEOUT_MS = 20000
SETS = 6         # of operands for each call
CHUNK = 400      # seeds of one process
TOLERANCES = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 1e-4, "complex64": 1e-4}


def same(want, have, dtype):
    if want.shape != have.shape or want.dtype != have.dtype:
        return False
    if want.dtype == object or want.dtype.kind in "biuS":
        return bool(np.array_equal(want, have))
    tolerance = TOLERANCES.get(dtype, 1e-7)
    with np.errstate(all="ignore"):
        wide = np.complex128 if dtype.startswith("complex") else np.float64
        a, b = want.astype(wide), have.astype(wide)
        if wide is np.float64:
            return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))
        # NaN in one part makes the other one a matter of the library.
        unclear = ~np.isfinite(a) & ~np.isfinite(b)
        return bool(np.all(unclear | np.isclose(a, b, rtol=tolerance, atol=tolerance)))


def answer(tf, session, outputs, feed):
    try:
        return session.run(outputs, feed)
    except tf.errors.OpError as error:
        return error
    except (ValueError, TypeError) as error:  # no answer that Python can hold
        return error


def short(value):
    if isinstance(value, Exception):
        return "%s: %s" % (type(value).__name__, getattr(value, "message", str(value))[:200])
    text = ", ".join("%s%s %s" % (v.dtype, list(v.shape), np.array2string(v.ravel()[:12],
                     max_line_width=1000, threshold=12)) for v in map(np.asarray, value))
    return text[:400]


def worker(target, first, end, only):
    """Prints one line of JSON for each seed before it runs, and for each difference."""
    import tensorflow.compat.v1 as tf
    from random_calls import Call, names_of_ops
    tf.logging.set_verbosity(tf.logging.ERROR)
    config = tf.ConfigProto(operation_timeout_in_ms=OP_TIMEOUT_MS)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    names = only or names_of_ops(TABLE)

    def say(**what):
        print(json.dumps(what), flush=True)

    for seed in range(first, end):
        name = names[seed % len(names)]
        call = None
        try:
            call = Call(seed, name)
            say(seed=seed, call=str(call))
            graph, feeds, outputs = call.build()
            sets = [call.operands() for _ in range(SETS)]
        except Exception as error:
            say(not_built=name, why="%s: %s" % (type(error).__name__, str(error)[:200]))
            continue
        if not outputs:
            continue
        with tf.Session("", graph=graph, config=config) as here, \
                tf.Session(target, graph=graph, config=config) as there:
            for operands in sets:
                feed = dict(zip(feeds, operands))
                want = answer(tf, here, outputs, feed)
                have = answer(tf, there, outputs, feed)
                kind = None
                if isinstance(want, Exception) and isinstance(have, Exception):
                    kind = "both fail" if type(want) is type(have) else "!another class"
                elif isinstance(want, Exception):
                    kind = "!accepted here alone"
                elif isinstance(have, Exception):
                    kind = "!refused here alone"
                else:
                    agree = all(same(np.asarray(a), np.asarray(b), t.dtype.name)
                                for a, b, t in zip(want, have, outputs))
                    kind = "same" if agree else "!other values"
                what = dict(kind=kind, op=name)
                if kind[0] == "!":
                    what.update(seed=seed, call=str(call), want=short(want), have=short(have),
                                operands=[short([o]) for o in operands])
                say(**what)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", help="command that starts a server of ours")
    parser.add_argument("--seeds", default="0:2000", help="first:end")
    parser.add_argument("--ops", default="", help="these alone, by comma")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    first, end = map(int, args.seeds.split(":"))
    only = [n for n in args.ops.split(",") if n]
    if args.worker:
        return worker(args.worker, first, end, only)
    from clusters import ServerCluster
    counts, start = collections.Counter(), time.monotonic()
    differences = collections.Counter()
    succeeded, tried = collections.Counter(), collections.Counter()
    try:
        cluster = ServerCluster({"local": 1}, 1, args.server).__enter__()
    except RuntimeError as error:
        print(error)
        return 2
    try:
        at = first
        while at < end:
            stop = min(at + CHUNK, end)
            process = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), "--worker",
                 cluster.target("local", 0), "--seeds=%d:%d" % (at, stop), "--ops", args.ops],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            seed, call = at - 1, ""
            for line in process.stdout:
                try:
                    what = json.loads(line)
                except ValueError:
                    continue
                if "kind" not in what:
                    if "not_built" in what:
                        counts["not built"] += 1
                    else:
                        seed, call = what["seed"], what["call"]
                    continue
                kind = what["kind"]
                counts[kind.lstrip("!")] += 1
                tried[what["op"]] += 1
                succeeded[what["op"]] += kind == "same"
                if kind[0] != "!":
                    continue
                key = (what["op"], kind)
                differences[key] += 1
                if differences[key] <= 2:
                    print("seed %d %s: %s\n  operands %s\n  TensorFlow %s\n  here       %s" % (
                        what["seed"], kind[1:], what["call"], "; ".join(what["operands"]),
                        what["want"], what["have"]), flush=True)
            at = stop
            if process.wait() != 0:
                counts["ended TensorFlow"] += 1
                print("seed %d ended TensorFlow: %s" % (seed, call), flush=True)
                at = seed + 1
            if not cluster.alive():
                print("seed %d: our server has ended" % seed)
                return 1
    finally:
        cluster.__exit__()
    for (op, kind), count in sorted(differences.items()):
        print("%s: %s %d times" % (op, kind[1:], count))
    never = sorted(op for op in tried if not succeeded[op])
    print("never computed: %s" % ", ".join(never))
    print("%s in %.0f s" % (dict(counts), time.monotonic() - start))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
