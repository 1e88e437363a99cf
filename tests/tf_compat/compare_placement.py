# SPDX-License-Identifier: Apache-2.0
"""Compares where two clusters put the nodes of random graphs: TensorFlow's and ours.

    python compare_placement.py --server "millrace server" --seeds 0:500

Every graph is run through a stock client on both clusters (2 ps and 2 worker tasks of two
CPU devices each). They agree if every node is on the same device or both fail with the same
error code. Prints each difference and a summary; exit code 1 if there is any, 2 if a cluster
could not be used.
"""
import argparse
import collections
import os
import sys
import time

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import tensorflow.compat.v1 as tf  # noqa: E402

from clusters import ServerCluster  # noqa: E402
from random_graph import RandomGraph  # noqa: E402

JOBS = {"ps": 2, "worker": 2}
CPUS = 2
OP_TIMEOUT_MS = 120000
ASK_AGAIN = 5


def session_config(graph):
    """Both sides run the graph that was written: nothing is rewritten."""
    config = tf.ConfigProto(allow_soft_placement=graph.soft, device_filters=graph.filters)
    config.operation_timeout_in_ms = OP_TIMEOUT_MS
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    # TensorFlow's calls take handles of other tasks only so.
    config.experimental.share_cluster_devices_in_session = True
    return config


def answer(cluster, graph, tf_graph):
    """({node: device}, None), or ({}, (error class, message))."""
    known = {node.name for node in graph.graph_def.node}
    options = tf.RunOptions(output_partition_graphs=True)
    devices = {}
    session = tf.Session(cluster.target(*graph.master), graph=tf_graph,
                         config=session_config(graph))
    try:
        for names in (graph.init, graph.targets):
            meta = tf.RunMetadata()
            session.run([tf_graph.get_operation_by_name(n) for n in names], options=options,
                        run_metadata=meta)
            for part in meta.partition_graphs:
                devices.update((n.name, n.device) for n in part.node if n.name in known)
    except tf.errors.OpError as error:
        return {}, (type(error).__name__, error.message)
    finally:
        try:
            session.close()
        except tf.errors.OpError as error:
            print("%s: %s did not close its session: %s" %
                  (graph, cluster.name, error.message), flush=True)
    for target in cluster.targets():
        tf.Session.reset(target)
    return devices, None


def compare(want_cluster, got_cluster, graph):
    """Lines that tell the differences, and what happened on both sides."""
    tf_graph = tf.Graph()
    with tf_graph.as_default():
        tf.import_graph_def(graph.graph_def, name="")
    got = answer(got_cluster, graph, tf_graph)
    want = answer(want_cluster, graph, tf_graph)
    lines, outcome = differences(graph, want, got)
    if lines and graph.calls:
        # TensorFlow takes calls that return handles in the order of their addresses.
        for _ in range(ASK_AGAIN):
            with ServerCluster(JOBS, CPUS) as other:
                if answer(other, graph, tf_graph) != want:
                    return [], "on which TensorFlow differs from itself"
    return lines, outcome


def differences(graph, want_answer, got_answer):
    (want, want_error), (got, got_error) = want_answer, got_answer
    if want_error or got_error:
        if want_error and got_error and want_error[0] == got_error[0]:
            return [], want_error[0]
        return ["want %s" % (want_error or "devices",), "got %s" % (got_error or "devices",)], "?"
    lines = []
    for node in graph.graph_def.node:
        want_device, got_device = want.get(node.name), got.get(node.name)
        if want_device != got_device:
            lines.append("%s (asks for '%s'): want %s, got %s" %
                         (node.name, node.device, want_device, got_device))
    missing = [n.name for n in graph.graph_def.node if n.name not in want]
    if missing:
        lines.append("not run at all: " + " ".join(missing[:5]))
    return lines, "placed"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", required=True, help="command that starts one of our servers")
    parser.add_argument("--seeds", default="0:500", help="first:end")
    parser.add_argument("--min_nodes", type=int, default=20)
    parser.add_argument("--max_nodes", type=int, default=2000)
    parser.add_argument("--calls", action="store_true",
                        help="let handles of variables pass through functions")
    parser.add_argument("--show", type=int, default=5, help="differences to print for a graph")
    args = parser.parse_args()
    first, end = map(int, args.seeds.split(":"))
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    outcomes, nodes, different = collections.Counter(), 0, 0
    started = time.monotonic()
    with ServerCluster(JOBS, CPUS) as tensorflow, ServerCluster(JOBS, CPUS, args.server) as ours:
        for seed in range(first, end):
            graph = RandomGraph(seed, args.min_nodes, args.max_nodes, args.calls)
            lines, outcome = compare(tensorflow, ours, graph)
            outcomes[outcome] += 1
            nodes += len(graph.graph_def.node)
            if lines:
                different += 1
                print(graph)
                for line in lines[:args.show]:
                    print("  " + line[:600])
                if len(lines) > args.show:
                    print("  and %d more" % (len(lines) - args.show))
                sys.stdout.flush()
    print("%d graphs with %d nodes in %d s: %s; %d different" % (
        end - first, nodes, time.monotonic() - started,
        ", ".join("%d %s" % (n, what) for what, n in outcomes.most_common()), different))
    return 1 if different else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        print("compare_placement: %s" % error, file=sys.stderr)
        sys.exit(2)
