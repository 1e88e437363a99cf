// SPDX-License-Identifier: Apache-2.0
// Runs a graph node by node in one thread, with kernels straight from the registry: what a
// kernel test needs of a session, and nothing else. No control flow, no functions.
#ifndef TESTS_KERNEL_CONFORMANCE_GRAPH_INTERPRETER_H_
#define TESTS_KERNEL_CONFORMANCE_GRAPH_INTERPRETER_H_

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/cancellation.h"
#include "device/device.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/state/session_tensors.h"
#include "ops/op_registry.h"
#include "proto/graph.pb.h"

namespace millrace::testing {

class GraphInterpreter {
 public:
  // What keeps this interpreter from running the graph: ops without a kernel, and "control
  // flow" or "functions". Empty if nothing does.
  static std::set<std::string> Missing(const pb::GraphDef& graph, const OpRegistry& ops,
                                       const KernelRegistry& kernels);

  // The registries and the device must outlive the interpreter. Kernels are made here; their
  // errors are returned.
  static StatusOr<std::unique_ptr<GraphInterpreter>> Create(const pb::GraphDef& graph,
                                                            const OpRegistry& ops,
                                                            const KernelRegistry& kernels,
                                                            Device* device);

  // One step. Feeds and fetches are tensor names ("x:0"), targets node names. The last reader
  // of a value owns it alone, so that kernels may work in place as they would in a session.
  StatusOr<std::vector<Tensor>> Run(const std::map<std::string, Tensor>& feeds,
                                    std::span<const std::string> fetches,
                                    std::span<const std::string> targets);

 private:
  struct Endpoint {
    int node = -1;
    int port = 0;  // -1: a control edge
  };
  struct Node {
    std::string name;
    AttrMap attrs;
    std::vector<DataType> input_types, output_types;
    std::vector<Endpoint> inputs;  // data inputs in order
    std::vector<int> control_inputs;
    std::unique_ptr<Kernel> kernel;
  };
  struct StepValues;

  StatusOr<Endpoint> Parse(const std::string& name) const;
  Status Compute(int node, StepEnv* env, StepValues* values);

  Device* device_ = nullptr;
  std::vector<Node> nodes_;
  std::map<std::string, int> by_name_;
  int64_t next_step_ = 1;
  SessionTensors session_tensors_;
};

}  // namespace millrace::testing

#endif  // TESTS_KERNEL_CONFORMANCE_GRAPH_INTERPRETER_H_
