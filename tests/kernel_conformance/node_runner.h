// SPDX-License-Identifier: Apache-2.0
// Runs single nodes of any type, and small graphs, with kernels straight from the registry.
#ifndef TESTS_KERNEL_CONFORMANCE_NODE_RUNNER_H_
#define TESTS_KERNEL_CONFORMANCE_NODE_RUNNER_H_

#include <map>
#include <string>
#include <vector>

#include "millrace/dtype.h"
#include "millrace/tensor.h"
#include "proto/graph.pb.h"

namespace millrace::testing {

pb::AttrValue TypeAttr(DataType type);

// The first output of one node, whose inputs are set here, computed with `threads` more threads.
// A failure is a failure of the test that runs, and gives an empty tensor.
Tensor RunNode(pb::NodeDef node, const std::vector<Tensor>& inputs, int threads);
// The same for `fetch` of a graph, without control flow or functions.
Tensor RunGraph(const pb::GraphDef& graph, const std::map<std::string, Tensor>& feeds,
                const std::string& fetch, int threads);

}  // namespace millrace::testing

#endif  // TESTS_KERNEL_CONFORMANCE_NODE_RUNNER_H_
