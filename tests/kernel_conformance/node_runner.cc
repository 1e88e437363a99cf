// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel_conformance/node_runner.h"

#include <map>

#include "base/thread_pool.h"
#include "gtest/gtest.h"
#include "kernels/all_kernels.h"
#include "ops/all_ops.h"
#include "tests/kernel_conformance/graph_interpreter.h"

namespace millrace::testing {
namespace {

const OpRegistry& Ops() {
  static const OpRegistry* const ops = [] {
    auto* registry = new OpRegistry;
    EXPECT_TRUE(RegisterAllOps(*registry).ok());
    return registry;
  }();
  return *ops;
}

const KernelRegistry& Kernels() {
  static const KernelRegistry* const kernels = [] {
    auto* registry = new KernelRegistry;
    RegisterAllKernels(*registry);
    return registry;
  }();
  return *kernels;
}

}  // namespace

pb::AttrValue TypeAttr(DataType type) {
  pb::AttrValue value;
  value.set_type(static_cast<pb::DataType>(type));
  return value;
}

Tensor RunNode(pb::NodeDef node, const std::vector<Tensor>& inputs, int threads) {
  pb::GraphDef graph;
  std::map<std::string, Tensor> feeds;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    pb::NodeDef* fed = graph.add_node();
    fed->set_name("in" + std::to_string(i));
    fed->set_op("Placeholder");
    (*fed->mutable_attr())["dtype"] = TypeAttr(inputs[i].dtype());
    node.add_input(fed->name());
    feeds[fed->name() + ":0"] = inputs[i];
  }
  node.set_name("node");
  *graph.add_node() = node;
  return RunGraph(graph, feeds, "node:0", threads);
}

Tensor RunGraph(const pb::GraphDef& graph, const std::map<std::string, Tensor>& feeds,
                const std::string& fetch, int threads) {
  ThreadPool pool("kernels", threads);
  ResourceManager resources;
  const auto device =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, &pool, &resources);
  auto interpreter = GraphInterpreter::Create(graph, Ops(), Kernels(), device.get());
  EXPECT_TRUE(interpreter.ok()) << interpreter.status().ToString();
  if (!interpreter.ok()) return Tensor();
  auto out = (*interpreter)->Run(feeds, {&fetch, 1}, {});
  EXPECT_TRUE(out.ok()) << out.status().ToString();
  return out.ok() ? (*out)[0] : Tensor();
}

}  // namespace millrace::testing
