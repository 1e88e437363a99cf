# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of drive/, or of drive2/, against our servers and tells the results, a line for each module.

    python run_drive.py --server "path/to/millrace server" [--write ../../docs/tf_compatibility.md]
    python run_drive.py --server "path/to/millrace server" --suite drive2 [--tests "connect or fit"]

What the tests take beyond a server (MNIST_DIR, MNIST_REPLICA_SCRIPT, TFDRIVE_SLOW) is passed on
from the environment. Exit code 1 when a test failed.
"""
import argparse
import glob
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
MODULE_LIMIT_S, TEST_LIMIT_S = 1200, 120

ABOUT = {
    "control_flow": "branches, loops, their gradients, tensor arrays, functions",
    "faults": "killed, frozen, restarted and absent tasks",
    "input": "readers, queue runners, parsing, data sets",
    "mnist": "two programs train MNIST together, the one of 2016 among them",
    "partition": "sends and receives: number, names, attributes; loops over tasks",
    "placement": "where nodes go",
    "placement_random": "where the nodes of random graphs go",
    "protocol": "long errors, tensor connections, step statistics, graphs as they come",
    "sessions": "create, extend, run, callables, partial runs, reset, timeouts, errors",
    "state": "variables, queues, accumulators, tables, barriers, stacks",
    "sync": "synchronous replicas",
    "training": "optimisers, checkpoints, monitored sessions",
    "values": "every type and shape over the wire, tensors of 64 MB and 3 GB",
}


# The heading of the part of the page that is not written here.
KEPT = "## TensorFlow 2"

# What is not as in TensorFlow, and stays so.
DIFFERENCES = [
    "- Denormal numbers are kept; TensorFlow's threads take them for zero. So `sign`, comparisons with 0, `x / x` and functions",
    "  that end near zero (`softplus(-100)`) may differ for numbers below 1.2e-38.",
    "- `Cholesky` of a matrix that has no factor is NaN in the lower triangle, as in TensorFlow 2.21, and zero above it.",
    "- `TopKV2` takes a NaN for larger than all else; TensorFlow's order of NaNs is any.",
    "- `ArgMax` of infinities below and the lowest finite number finds the finite one; TensorFlow the first.",
    "- Zeros of both signs are one value of half precision for `Unique` and its kin too.",
    "- `ShuffleDatasetV3` takes its order from its seeds, not from the resource of the seed generator, and the order for one",
    "  seed is not TensorFlow's.",
]


class Module:
    """The outcomes of one module's tests, by name."""

    def __init__(self, name, passed=(), failed=(), skipped=()):
        self.name = name
        self.passed, self.failed, self.skipped = list(passed), list(failed), list(skipped)

    @classmethod
    def read(cls, name, path):
        """From pytest's report."""
        module = cls(name)
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            skip = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                module.failed.append(case.get("name"))
            elif skip is not None:
                module.skipped.append((case.get("name"), skip.get("message", "")))
            else:
                module.passed.append(case.get("name"))
        return module

    def row(self):
        counts = [len(x) for x in (self.passed, self.failed, self.skipped)]
        return "| %s | %s | %s | %d |" % (self.name, ABOUT.get(self.name, ""),
                                          " | ".join(map(str, counts)), sum(counts))

    def line(self):
        what = "ok" if not self.failed else "FAILED"
        return "%s: %s: %d passed, %d failed, %d skipped %s" % (
            what, self.name, len(self.passed), len(self.failed), len(self.skipped),
            " ".join(self.failed))


def name_of(path):
    return os.path.basename(path)[len("test_"):-len(".py")]


def run(path, server, tests):
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.xml")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout",
             str(TEST_LIMIT_S), "--junitxml", report, os.path.basename(path)]
            + (["-k", tests] if tests else []),
            cwd=os.path.dirname(path), timeout=MODULE_LIMIT_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env=dict(os.environ, TFDRIVE_SERVER=server, PYTHONDONTWRITEBYTECODE="1"))
        if not os.path.exists(report):
            raise RuntimeError("%s did not run:\n%s" % (path, done.stdout[-2000:]))
        module = Module.read(name_of(path), report)
        if module.failed:
            print(done.stdout[-6000:])
        return module


def page(modules, version):
    lines = [
        "# What works with a stock TensorFlow client",
        "",
        "Programs of TensorFlow's graph mode open `tf.Session(\"grpc://host:port\")` on `millrace server` tasks",
        "and are expected to give what they give on TensorFlow's own servers: values, classes of errors,",
        "placements, partitions. This page is written by `tests/tf_compat/run_drive.py`; the client",
        "was TensorFlow %s." % version,
        "",
        "| tests | of | passed | failed | skipped | total |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [m.row() for m in modules]
    total = Module("all", *([x for m in modules for x in getattr(m, kind)]
                            for kind in ("passed", "failed", "skipped")))
    lines += [total.row(), ""]
    for m in modules:
        lines += ["Failed: `%s`, `%s`." % (m.name, test) for test in m.failed]
        lines += ["Skipped: `%s`, `%s`: %s." % (m.name, test, why.rstrip("."))
                  for test, why in m.skipped]
    if total.failed or total.skipped:
        lines.append("")
    lines += [
        "What differs on purpose:",
        "",
        *DIFFERENCES,
        "",
        "Beside these tests:",
        "",
        "- `op_table.md` lists every op with the types it takes, the cases recorded from TensorFlow that it",
        "  passes, and whether it has a gradient in C++.",
        "- `tests/tf_compat` compares placements of random graphs with TensorFlow's, and trains one model on",
        "  clusters in which TensorFlow's servers and Millrace's work together.",
        "- `bench/rpc` times the same client on both.",
        "- A session may bring its own cluster (`ConfigProto.cluster_def`): servers that know nothing of each other then run its",
        "  steps under the names that it gives them. Its state is its own unless it sets",
        "  `share_session_state_in_clusterspec_propagation`. As with TensorFlow, the master may not keep the name that it was",
        "  started with, and a master that comes at a new address under the name of an old one ends the old one's sessions. Such",
        "  a session has the CPUs of the tasks, not their accelerators, and no collectives. Which addresses it may name:",
        "  [security.md](security.md#clusters-that-clients-bring).",
        "",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", required=True, help="command that starts one of our servers")
    parser.add_argument("--write", help="the page to write")
    parser.add_argument("--suite", default="drive", choices=["drive", "drive2"],
                        help="programs of graph mode, or of TensorFlow 2")
    parser.add_argument("--only", default="", help="modules, separated by commas")
    parser.add_argument("--tests", default="", help="of them the tests that pytest -k takes")
    args = parser.parse_args()
    if args.write and (args.suite != "drive" or args.only or args.tests):
        parser.error("the page is about all tests of drive")
    version = subprocess.run(
        [sys.executable, "-c", "import tensorflow; print(tensorflow.__version__)"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout.strip()
    modules = []
    only = set(filter(None, args.only.split(",")))
    for path in sorted(glob.glob(os.path.join(HERE, args.suite, "test_*.py"))):
        if only and name_of(path) not in only:
            continue
        modules.append(run(path, args.server, args.tests))
        print(modules[-1].line(), flush=True)
    if args.write:
        # What follows is written by hand.
        kept = ""
        if os.path.exists(args.write):
            with open(args.write, encoding="utf-8") as old:
                kept = "".join("\n" + KEPT + part for part in old.read().split("\n" + KEPT)[1:])
        with open(args.write, "w", encoding="utf-8") as out:
            out.write(page(modules, version) + kept)
    if not any(m.passed or m.failed for m in modules):
        print("no test ran")
        return 1
    return 1 if any(m.failed for m in modules) else 0


if __name__ == "__main__":
    sys.exit(main())
