// SPDX-License-Identifier: Apache-2.0
// Small ops and a graph to put them in, for tests and benchmarks of the executor.
#ifndef EXECUTOR_TEST_GRAPH_H_
#define EXECUTOR_TEST_GRAPH_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "executor/compiled_graph.h"
#include "executor/executor.h"
#include "graph/dataflow_graph.h"
#include "kernels/kernel_registry.h"

namespace millrace::test {

// A device, all ops of the engine, and ops of the tests' own:
//   Null() cheap; Work(expensive) -> nothing, runs its hook
//   Value(value: float) -> float, a new buffer with every run
//   Sum(a: float, b: float, expensive) -> float;   InPlace(x: float) -> float, x + 1
//   Below(x: float, limit: float) -> bool
//   Later(x: float) -> float, asynchronous, completes on another thread
//   Now(x: float) -> float, asynchronous, completes before it returns
//   Stuck() -> nothing, asynchronous, ends with the step's cancellation only
//   Throw(async) throws what containers and the memory do; Fail(code: int), Wrong() -> float (gives
//   an int32), Silent() -> float (gives nothing) Variable() -> Ref(float), uninitialised until
//   `variable` is set Look(v: Ref(float)) takes references that hold nothing; Use(v: Ref(float))
//   does not Keep(x: float, index: int) puts its input into kept[index] and counts
class TestGraph {
 public:
  TestGraph();
  ~TestGraph();

  Node* Add(std::string_view op, std::vector<Node*> inputs = {}, AttrMap attrs = {});
  Node* AddNamed(std::string_view name, std::string_view op, std::vector<Node*> inputs = {},
                 AttrMap attrs = {});
  // A part of the sends and receives between two nodes of this device.
  static AttrMap Edge(std::string_view name, bool is_recv);
  static AttrMap Attr(std::string_view name, AttrValue value);
  void Connect(Node* src, int output, Node* dst, int input);
  void Control(Node* src, Node* dst) { graph.AddControlEdge(src, dst); }

  StatusOr<std::unique_ptr<CompiledGraph>> Compile();

  // Runs when a Work or Later kernel does.
  std::function<void(const std::string& node)> hook;
  // Runs before a Sum, InPlace, Below or Later computes: to shake out what depends on who is first.
  std::function<void()> jitter;
  std::atomic<int> runs{0};  // of Null, Work and Keep
  Mutex variable_mu;
  Tensor variable;
  std::atomic<int> kept_runs{0};
  std::vector<Tensor> kept;
  std::vector<std::string> order;  // names of Work nodes, if one thread runs them
  std::atomic<bool> in_place_forwarded{false};

  ThreadPool helpers{"helpers", 2};  // where Later completes
  OpRegistry ops;
  ResourceManager resources;
  std::unique_ptr<Device> device;
  KernelRegistry registry;
  DataflowGraph graph;
  std::vector<std::unique_ptr<Kernel>> kernels;
};

}  // namespace millrace::test

#endif  // EXECUTOR_TEST_GRAPH_H_
