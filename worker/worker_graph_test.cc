// SPDX-License-Identifier: Apache-2.0
// What graphs of one session share, and what a worker makes of constants before a step.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/notification.h"
#include "graph/graph_def_io.h"
#include "master/session_test_util.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

class WorkerGraphTest : public ::testing::Test {
 protected:
  WorkerGraphTest() {
    EXPECT_TRUE(RegisterAll());
    WorkerSessionOptions options;
    options.session_handle = "s";
    const Status created =
        Wait([&](auto done) { cluster_.worker().CreateSessionAsync({}, options, done); });
    EXPECT_TRUE(created.ok()) << created;
  }

  // The error of one step of a graph that has the nodes of `def`, all on the worker's device.
  Status RegisterAndRun(pb::GraphDef def) {
    for (pb::NodeDef& node : *def.mutable_node()) node.set_device(cluster_.device()->name());
    RegisterGraphArgs args;
    args.session_handle = "s";
    args.graph = std::make_unique<DataflowGraph>(&ops_);
    const Status imported = ImportGraphDef(
        ImportOptions{.internal_names = true, .devices_are_assigned = true}, def, args.graph.get());
    if (!imported.ok()) return imported;
    std::string handle;
    const Status registered = Wait([&](auto done) {
      cluster_.worker().RegisterGraphAsync({}, std::move(args), &handle, done);
    });
    if (!registered.ok()) return registered;
    RunGraphArgs run;
    run.session_handle = "s";
    run.graph_handle = handle;
    run.step_id = ++step_;
    RunGraphResult result;
    return Wait([&](auto done) { cluster_.worker().RunGraphAsync({}, &run, &result, done); });
  }

  template <typename Begin>
  static Status Wait(Begin&& begin) {
    Notification done;
    Status status;
    begin([&](Status ended) {
      status = std::move(ended);
      done.Notify();
    });
    done.Wait();
    return status;
  }

  bool RegisterAll() {
    RegisterTestOpsAndKernels(ops_, kernels_);
    return true;
  }

  OpRegistry ops_;
  KernelRegistry kernels_;
  TestCluster cluster_;
  int64_t step_ = 100;
};

TEST_F(WorkerGraphTest, AKernelWithAStateIsNotTakenForAnotherOpOfItsName) {
  TestGraph counts, fails;
  counts.Counter("n");
  fails.Fail("n");
  EXPECT_TRUE(RegisterAndRun(counts.def()).ok());
  EXPECT_TRUE(errors::IsInvalidArgument(RegisterAndRun(fails.def()))) << "it counted";
  EXPECT_TRUE(RegisterAndRun(counts.def()).ok());
}

}  // namespace
}  // namespace millrace
