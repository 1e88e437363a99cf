# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's own server as a process: the reference side of the suite.

  tf_server.py --cluster_spec='ps|h:p,worker|h:p;h:p' --job_name=ps --task_id=0

runs one server in this process until it is killed.  The suite itself calls
serve() in forked processes (see cluster.py), which starts a server in a
fraction of a second.
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")


def parse_cluster_spec(text):
    """'ps|a:1;b:2,worker|c:3' -> {'ps': ['a:1', 'b:2'], 'worker': ['c:3']}."""
    jobs = {}
    for part in text.split(","):
        name, hosts = part.split("|")
        jobs[name] = [h for h in hosts.split(";") if h]
    return jobs


def parse_flags(argv):
    flags = {}
    for arg in argv:
        key, _, value = arg.lstrip("-").partition("=")
        flags[key] = value
    return flags


def serve(argv):
    import tensorflow as tf

    flags = parse_flags(argv)
    config = tf.compat.v1.ConfigProto()
    # Calls wait inside this pool for calls to other tasks; with as many threads
    # as a small machine has cores, a few clients that died can block a server.
    config.inter_op_parallelism_threads = 16
    if "cpus" in flags:
        config.device_count["CPU"] = int(flags["cpus"])
    server = tf.distribute.Server(
        tf.train.ClusterSpec(parse_cluster_spec(flags["cluster_spec"])),
        job_name=flags["job_name"], task_index=int(flags["task_id"]),
        protocol="grpc", config=config)
    server.join()


if __name__ == "__main__":
    serve(sys.argv[1:])
