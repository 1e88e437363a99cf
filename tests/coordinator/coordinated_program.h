// SPDX-License-Identifier: Apache-2.0
// What most tests of the coordinator run: a sum at a parameter server, to which functions add.
#ifndef TESTS_COORDINATOR_COORDINATED_PROGRAM_H_
#define TESTS_COORDINATOR_COORDINATED_PROGRAM_H_

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/cluster_coordinator.h"
#include "millrace/millrace.h"

namespace millrace::testing {

// Far more than anything takes; what must end earlier is told a deadline of its own.
inline constexpr std::chrono::seconds kPatience{60};

inline std::string Text(const Status& status) { return std::string(Message(status)); }

// Variable "sum" (double) at ps 0, "count" (int64) at the last ps. The coordinator is made by Open.
struct CoordinatedProgram {
  explicit CoordinatedProgram(const ClusterSpec& spec) {
    options.cluster = spec;
    options.connect_timeout = kPatience;
    options.join_timeout = kPatience;
    options.fetch_timeout = kPatience;
    options.heartbeat = std::chrono::milliseconds(200);
    const Scope root = graph.root();
    const Scope first = root.WithDevice("/job:ps/task:0");
    const Scope last = root.WithDevice(StrCat("/job:ps/task:", spec.num_tasks("ps") - 1));
    sum = MakeVariable(first, "sum", Constant(first, Tensor::Scalar(0.0)), {.use_resource = true});
    count = MakeVariable(last, "count", Constant(last, Tensor::Scalar<int64_t>(0)),
                         {.trainable = false, .use_resource = true});
    init = InitializeVariables(root.WithDevice("/job:worker"));
  }

  // Initialises the variables and adds the functions.
  void Open() {
    auto made = ClusterCoordinator::Create(graph, options);
    ASSERT_TRUE(made.ok()) << made.status();
    coordinator = *std::move(made);
    // sum += x, count += 1; gives 2 x.
    add = Function("add", [this](const Scope& worker) {
      const Output x = Placeholder(worker, kDouble, PartialShape(Shape({})));
      return FunctionParts{
          {x},
          {ops::Add(worker, x, x)},
          {AssignAdd(worker, sum, x), AssignAdd(worker, count, Tensor::Scalar<int64_t>(1))}};
    });
    // Gives x; fails with InvalidArgument if it is negative.
    check = Function("check", [](const Scope& worker) {
      const Output x = Placeholder(worker, kDouble, PartialShape(Shape({})));
      const Operation fine = ops::Assert(worker, ops::GreaterEqual(worker, x, Tensor::Scalar(0.0)),
                                         {Input("x is negative")});
      return FunctionParts{{x}, {ops::Identity(worker.WithControlDependencies({fine}), x)}, {}};
    });
    // Waits for what nobody gives.
    wait = Function("wait", [](const Scope& worker) {
      const Output queue = ops::FIFOQueueV2(worker, {kFloat}, {.shared_name = "never"});
      return FunctionParts{{}, {ops::QueueDequeueV2(worker, queue, {kFloat})[0]}, {}};
    });
    const auto ready = coordinator->Run({}, {}, std::span(&init, 1));
    ASSERT_TRUE(ready.ok()) << ready.status();
  }

  WorkerFunction Function(const char* name, const WorkerFunctionBuilder& builder) {
    const auto function = coordinator->AddFunction(name, builder);
    EXPECT_TRUE(function.ok()) << function.status();
    return function.ok() ? *function : WorkerFunction();
  }

  RemoteValue Schedule(const WorkerFunction& function, double x) {
    const Tensor input = Tensor::Scalar(x);
    const auto value = coordinator->Schedule(function, std::span(&input, 1));
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? *value : RemoteValue();
  }

  double Sum() {
    const auto value = coordinator->Run({}, std::span(&sum.read, 1));
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? (*value)[0].scalar<double>() : -1;
  }

  Graph graph;
  CoordinatorOptions options;
  Variable sum, count;
  Operation init;
  std::unique_ptr<ClusterCoordinator> coordinator;
  WorkerFunction add, check, wait;
};

}  // namespace millrace::testing

#endif  // TESTS_COORDINATOR_COORDINATED_PROGRAM_H_
