// SPDX-License-Identifier: Apache-2.0
// Asynchronous workers within a staleness bound. The gradient of w is 1, so that w counts updates:
// what a step has read of it says from when its gradient is.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/core.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace::testing {
namespace {

// Lets a step fetch which update it was, in its turn.
class Numbered : public Optimizer {
 public:
  explicit Numbered(Output* number) : number_(number) {}
  StatusOr<Operation> ApplyGradients(const Scope& scope,
                                     std::span<const GradientAndVariable> gradients,
                                     const Variable* global_step,
                                     std::source_location where) override {
    auto update = GradientDescent({.learning_rate = -1.0f})
                      ->ApplyGradients(scope, gradients, global_step, where);
    if (!update.ok()) return update;
    *number_ =
        ops::Identity(scope.ColocateWith(global_step->handle).WithControlDependencies({*update}),
                      global_step->handle);
    return number_->op();
  }

 private:
  Output* const number_;
};

class Worker {
 public:
  // With `doubles`, an update adds what the step has read of w.
  Worker(const InProcessCluster& cluster, int index, int64_t bound, bool doubles = false) {
    ReplicaDeviceSetterOptions setter;
    setter.ps_tasks = cluster.spec().num_tasks("ps");
    setter.worker_device = StrCat("/job:worker/task:", index);
    const Scope root = graph_.root().WithDevice(ReplicaDeviceSetter(std::move(setter)));
    step_ = GlobalStep(root);
    w_ = MakeVariable(root, "w", Constant(root, Tensor::Scalar(doubles ? 1.0f : 0.0f)));
    StalenessBound optimizer(std::make_unique<Numbered>(&number_),
                             {.bound = bound, .worker = StrCat("worker ", index)});
    const Output loss = doubles ? ops::Mul(root, ops::Square(root, w_.read), 0.5f) : w_.read;
    const auto train = optimizer.Minimize(root, loss, &step_);
    EXPECT_TRUE(train.ok()) << train.status();
    train_ = *train;
    init_ = InitializeVariables(root);
    // The same, but that the gradient never comes.
    const Output queue = ops::FIFOQueueV2(root, {kFloat}, {.shapes = {PartialShape({})}});
    const Operation never = ops::QueueDequeueV2(root, queue, {kFloat})[0].op();
    auto gradients = optimizer.ComputeGradients(root, loss);
    EXPECT_TRUE(gradients.ok()) << gradients.status();
    (*gradients)[0].gradient =
        ops::Identity(root.WithControlDependencies({never}), (*gradients)[0].gradient);
    Output unused;
    StalenessBound same(std::make_unique<Numbered>(&unused),
                        {.bound = bound, .worker = StrCat("worker ", index)});
    const auto stuck = same.ApplyGradients(root, *gradients, &step_);
    EXPECT_TRUE(stuck.ok()) << stuck.status();
    stuck_ = *stuck;
    SessionOptions options;
    options.target = cluster.Target("worker", index);
    auto session = Session::Create(graph_, options);
    EXPECT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }
  void Initialise() { Expect(session_->RunTargets({init_})); }
  // How many updates of others came between what the step read and its own update.
  int64_t Train() {
    const auto out = session_->Run({}, {w_.read, number_}, {train_});
    Expect(out.status());
    if (!out.ok()) return -1;
    return (*out)[1].scalar<int64_t>() - 1 - static_cast<int64_t>((*out)[0].scalar<float>());
  }
  Status TryToTrain(std::chrono::milliseconds limit, bool stuck = false) {
    RunOptions options;
    options.timeout = limit;
    return session_->Run({}, {}, std::span(stuck ? &stuck_ : &train_, 1), options).status();
  }
  float w() {
    const auto value = session_->Eval(w_.read);
    Expect(value.status());
    return value.ok() ? value->scalar<float>() : -1;
  }

 private:
  static void Expect(const Status& status) { EXPECT_TRUE(status.ok()) << status; }
  Graph graph_;
  Variable step_, w_;
  Output number_;
  Operation train_, stuck_, init_;
  std::optional<Session> session_;
};

struct Job {
  Job(int num_workers, int64_t bound, bool doubles = false) : cluster(2, num_workers) {
    for (int i = 0; i < num_workers; ++i) {
      workers.push_back(std::make_unique<Worker>(cluster, i, bound, doubles));
    }
    workers[0]->Initialise();
  }
  InProcessCluster cluster;
  std::vector<std::unique_ptr<Worker>> workers;
};

TEST(StalenessBound, IsKeptByWorkersAtFullSpeed) {
  for (const int64_t bound : {2, 4}) {
    Job job(/*num_workers=*/3, bound);
    std::atomic<int64_t> oldest{0};
    std::vector<std::thread> threads;
    for (const auto& worker : job.workers) {
      threads.emplace_back([&oldest, &worker] {
        for (int k = 0; k < 40; ++k) {
          const int64_t old = worker->Train();
          int64_t seen = oldest;
          while (old > seen && !oldest.compare_exchange_weak(seen, old)) {
          }
        }
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_LE(oldest, bound);
    EXPECT_EQ(job.workers[0]->w(), 120);
  }
}

TEST(StalenessBound, OfZeroMakesWorkersTakeTurns) {
  Job job(/*num_workers=*/2, /*bound=*/0, /*doubles=*/true);
  std::vector<std::thread> threads;
  for (const auto& worker : job.workers) {
    threads.emplace_back([&worker] {
      for (int k = 0; k < 20; ++k) worker->Train();
    });
  }
  for (std::thread& t : threads) t.join();
  // Every update has seen all before it.
  EXPECT_EQ(job.workers[0]->w(), std::ldexp(1.0f, 40));
}

// A step whose gradient does not come holds the others up, and no longer when it is over.
TEST(StalenessBound, MakesOthersWaitForAGradientThatDoesNotCome) {
  using std::chrono::milliseconds;
  Job job(/*num_workers=*/2, /*bound=*/0);
  EXPECT_EQ(job.workers[0]->Train(), 0);  // a step that is late from now on was held up
  Status held;
  // Longer and longer, until the stuck step has come as far as to hold anybody up.
  for (milliseconds limit(2000); held.ok() && limit < std::chrono::minutes(1); limit *= 2) {
    std::atomic<bool> over{false};
    std::thread stuck([&job, &over, limit] {
      const Status late = job.workers[1]->TryToTrain(limit, /*stuck=*/true);
      EXPECT_TRUE(errors::IsDeadlineExceeded(late)) << late;
      over = true;
    });
    while (held.ok() && !over) held = job.workers[0]->TryToTrain(milliseconds(300));
    stuck.join();
  }
  EXPECT_TRUE(errors::IsDeadlineExceeded(held)) << held;
  EXPECT_EQ(job.workers[0]->Train(), 0);
}

TEST(StalenessBound, IsTheSameForAll) {
  InProcessCluster cluster(1, 2);
  Worker one(cluster, 0, 1), other(cluster, 1, 2);
  one.Initialise();
  EXPECT_EQ(one.Train(), 0);
  const Status refused = other.TryToTrain(std::chrono::seconds(20));
  EXPECT_TRUE(errors::IsInvalidArgument(refused)) << refused;
}

TEST(StalenessBound, WantsAGlobalStepAndNoNegativeBound) {
  Graph graph;
  const Variable w = MakeVariable(graph.root(), "w", Zeros(graph.root(), {}));
  const Variable step = GlobalStep(graph.root());
  StalenessBound bound(GradientDescent({}), {.bound = 1});
  EXPECT_TRUE(errors::IsInvalidArgument(bound.Minimize(graph.root(), w.read, nullptr).status()));
  StalenessBound negative(GradientDescent({}), {.bound = -1});
  EXPECT_TRUE(errors::IsInvalidArgument(negative.Minimize(graph.root(), w.read, &step).status()));
}

}  // namespace
}  // namespace millrace::testing
