# SPDX-License-Identifier: Apache-2.0
"""libmillrace.so and TensorFlow's wheel in one process, loaded in either order.

  beside_tensorflow.py --library bazel-bin/tools/install/libmillrace.so \
      --include include --include bazel-bin/include

A small library that runs a graph, in the process and at a server within it, is compiled against the
public headers and loaded by ctypes, as docs/installing.md says: with RTLD_DEEPBIND, because
TensorFlow shows its own Protocol Buffers to whatever is loaded later.
"""

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile

PROBE = r"""
#include <cstdio>
#include "millrace/core.h"
namespace mr = millrace;

static mr::StatusOr<float> Product(const std::string& target) {
  mr::Graph graph;
  const mr::Scope root = graph.root();
  const mr::Tensor values = mr::Tensor::FromValues<float>({1, 2, 3, 4}, {2, 2});
  const mr::Output m = mr::ops::Const(root, values, mr::kFloat);
  const mr::Output product = mr::ops::MatMul(root, m, m);
  MR_ASSIGN_OR_RETURN(mr::Session session, mr::Session::Create(graph, {.target = target}));
  MR_ASSIGN_OR_RETURN(const std::vector<mr::Tensor> out, session.Run({}, {product}, {}));
  return out[0].flat<float>()[3];
}

static mr::StatusOr<float> Both() {
  MR_ASSIGN_OR_RETURN(const mr::ClusterSpec cluster, mr::ClusterSpec::Parse("w|127.0.0.1:0"));
  MR_ASSIGN_OR_RETURN(const auto server, mr::Server::Create({.cluster = cluster, .job_name = "w"}));
  MR_RETURN_IF_ERROR(server->Start());
  MR_ASSIGN_OR_RETURN(const float here, Product(""));
  MR_ASSIGN_OR_RETURN(const float there, Product(server->target()));
  MR_RETURN_IF_ERROR(server->Stop());
  return here + there;
}

extern "C" float Probe() {
  const mr::StatusOr<float> sum = Both();
  if (sum.ok()) return *sum;
  std::fprintf(stderr, "%s\n", sum.status().ToString().c_str());
  return -1;
}
"""


def load(probe):
  library = ctypes.CDLL(probe, mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
  library.Probe.restype = ctypes.c_float
  return library


def check(library):
  value = library.Probe()
  if value != 44.0:  # 22 here and 22 at the server
    sys.exit("the product is %g" % value)


def run_tensorflow():
  import tensorflow as tf  # pylint: disable=import-outside-toplevel
  if tf.function(lambda x: tf.linalg.matmul(x, x))(tf.ones([2, 2])).numpy().sum() != 8:
    sys.exit("TensorFlow's product is wrong")


def one_order(probe, tensorflow_first):
  if tensorflow_first:
    run_tensorflow()
  library = load(probe)
  check(library)
  run_tensorflow()
  check(library)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--library", required=True)
  parser.add_argument("--include", action="append", required=True)
  parser.add_argument("--order", help="(internal)")
  parser.add_argument("--probe", help="(internal)")
  args = parser.parse_args()
  if args.order:
    one_order(args.probe, args.order == "tensorflow")
    return
  with tempfile.TemporaryDirectory() as folder:
    source, probe = os.path.join(folder, "probe.cc"), os.path.join(folder, "probe.so")
    with open(source, "w", encoding="utf-8") as out:
      out.write(PROBE)
    # The library is looked for by the name that programs keep.
    os.symlink(os.path.abspath(args.library), os.path.join(folder, "libmillrace.so.0.2"))
    subprocess.run(
        ["g++", "-std=c++20", "-O0", "-fPIC", "-shared", source, "-o", probe] +
        ["-I" + include for include in args.include] +
        [os.path.abspath(args.library), "-Wl,-z,defs", "-Wl,-rpath," + folder], check=True)
    for order in ("tensorflow", "millrace"):
      subprocess.run([sys.executable, "-B", __file__, "--library", args.library, "--include", ".",
                      "--order", order, "--probe", probe], check=True, timeout=200)
      print("%s first: ok" % order)


if __name__ == "__main__":
  main()
