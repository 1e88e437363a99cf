// SPDX-License-Identifier: Apache-2.0
// Workers that apply their gradients as they come: no update is lost or seen by half.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace::testing {
namespace {

constexpr int kWorkers = 3;
constexpr int kStepsEach = 60;
constexpr int kSize = 5000;  // large enough for an update to be interrupted

DeviceFunction Setter(int num_ps, int worker) {
  ReplicaDeviceSetterOptions options;
  options.ps_tasks = num_ps;
  options.worker_device = StrCat("/job:worker/task:", worker);
  return ReplicaDeviceSetter(std::move(options));
}

// The gradient of w is 1 everywhere.
class Worker {
 public:
  Worker(const InProcessCluster& cluster, int index, std::unique_ptr<Optimizer> optimizer,
         bool use_resource) {
    const Scope root = graph_.root().WithDevice(Setter(cluster.spec().num_tasks("ps"), index));
    step_ = GlobalStep(root);
    w_ = MakeVariable(root, "w", Zeros(root, {kSize}), {.use_resource = use_resource});
    const auto train = optimizer->Minimize(root, ReduceSum(root, w_.read), &step_);
    EXPECT_TRUE(train.ok()) << train.status();
    train_ = *train;
    init_ = InitializeVariables(root);
    SessionOptions options;
    options.target = cluster.Target("worker", index);
    auto session = Session::Create(graph_, options);
    EXPECT_TRUE(session.ok()) << session.status();
    session_ = std::make_unique<Session>(*std::move(session));
  }
  void Initialise() { Expect(session_->RunTargets({init_})); }
  void Train() { Expect(session_->RunTargets({train_})); }
  Tensor Read(const std::string& variable) {
    const auto value = session_->Eval(graph_.FindOperation(variable + "/read").output(0));
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? *value : Tensor();
  }

 private:
  static void Expect(const Status& status) { EXPECT_TRUE(status.ok()) << status; }
  Graph graph_;
  Variable step_, w_;
  Operation train_, init_;
  std::unique_ptr<Session> session_;
};

bool AllEqual(const Tensor& t, float value) {
  if (t.dtype() != kFloat || t.num_elements() != kSize) return false;
  for (const float element : t.flat<float>()) {
    if (element != value) return false;
  }
  return true;
}

class AsyncApply : public ::testing::TestWithParam<bool> {
 protected:
  // All workers train at once, worker 0 having initialised the variables; returns it.
  std::unique_ptr<Worker> TrainTogether(const InProcessCluster& cluster,
                                        const std::function<std::unique_ptr<Optimizer>()>& make) {
    std::vector<std::unique_ptr<Worker>> workers;
    for (int i = 0; i < kWorkers; ++i) {
      workers.push_back(std::make_unique<Worker>(cluster, i, make(), GetParam()));
    }
    workers[0]->Initialise();
    std::vector<std::thread> threads;
    for (const auto& worker : workers) {
      threads.emplace_back([&worker] {
        for (int k = 0; k < kStepsEach; ++k) worker->Train();
      });
    }
    // Meanwhile every read is of one moment: all elements have seen the same updates.
    for (int k = 0; k < kStepsEach; ++k) {
      const Tensor seen = workers[0]->Read("w");
      EXPECT_TRUE(AllEqual(seen, seen.data<float>()[0])) << seen.DebugString();
    }
    for (std::thread& t : threads) t.join();
    return std::move(workers[0]);
  }
};

TEST_P(AsyncApply, LosesNoUpdateOfAVariable) {
  InProcessCluster cluster(2, kWorkers);
  const auto worker =
      TrainTogether(cluster, [] { return GradientDescent({.learning_rate = 1.0f}); });
  EXPECT_TRUE(AllEqual(worker->Read("w"), -kWorkers * kStepsEach));
  EXPECT_EQ(worker->Read("global_step").scalar<int64_t>(), kWorkers * kStepsEach);
}

// Momentum changes two variables in one update: interleaved halves would show in both.
TEST_P(AsyncApply, ChangesAVariableAndItsSlotsTogether) {
  InProcessCluster cluster(1, kWorkers);
  const auto worker =
      TrainTogether(cluster, [] { return Momentum({.learning_rate = 0.25f, .momentum = 0.5f}); });
  float w = 0, m = 0;
  for (int k = 0; k < kWorkers * kStepsEach; ++k) {
    m = m * 0.5f + 1.0f;
    w -= 0.25f * m;
  }
  EXPECT_TRUE(AllEqual(worker->Read("w/Momentum"), m));
  EXPECT_TRUE(AllEqual(worker->Read("w"), w)) << worker->Read("w").DebugString() << " " << w;
}

INSTANTIATE_TEST_SUITE_P(Variables, AsyncApply, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "resource" : "reference"; });

// Two workers with data of their own fit one line; the variables lie on different ps tasks.
TEST(AsyncTraining, FitsALineAcrossTasks) {
  InProcessCluster cluster(2, 2);
  std::vector<std::thread> threads;
  std::vector<float> slopes(2), intercepts(2);
  for (int index = 0; index < 2; ++index) {
    threads.emplace_back([&, index] {
      Graph graph;
      const Scope root = graph.root().WithDevice(Setter(2, index));
      const Variable step = GlobalStep(root);
      const Variable a = MakeVariable(root, "a", Zeros(root, {}));
      const Variable b = MakeVariable(root, "b", Zeros(root, {}));
      EXPECT_NE(a.handle.op().device(), b.handle.op().device());
      const Output x = Placeholder(root, kFloat, {-1}), y = Placeholder(root, kFloat, {-1});
      const Output error = ops::Sub(root, ops::Add(root, ops::Mul(root, a.read, x), b.read), y);
      const auto train = GradientDescent({.learning_rate = 0.1f})
                             ->Minimize(root, ReduceMean(root, ops::Square(root, error)), &step);
      ASSERT_TRUE(train.ok()) << train.status();
      SupervisedSessionOptions options;
      options.session.target = cluster.Target("worker", index);
      options.is_chief = index == 0;
      options.init_op = InitializeVariables(root);
      options.not_ready = ReportUninitializedVariables(root);
      auto session = SupervisedSession::Create(graph, options);
      ASSERT_TRUE(session.ok()) << session.status();
      // y = 3 x - 1; worker 0 sees negative, worker 1 positive x.
      const float sign = index == 0 ? -1.0f : 1.0f;
      const std::vector<Feed> feeds = {
          {x, Tensor::FromValues<float>({sign * 0.5f, sign * 1.0f, sign * 1.5f})},
          {y, Tensor::FromValues<float>({sign * 1.5f - 1, sign * 3.0f - 1, sign * 4.5f - 1})}};
      for (int k = 0; k < 400; ++k) {
        const Status status = (*session)->Run(feeds, {}, std::span(&*train, 1)).status();
        ASSERT_TRUE(status.ok()) << status;
      }
      const Output fetches[] = {a.read, b.read};
      const auto out = (*session)->Run({}, fetches);
      ASSERT_TRUE(out.ok()) << out.status();
      slopes[index] = (*out)[0].scalar<float>();
      intercepts[index] = (*out)[1].scalar<float>();
      EXPECT_TRUE((*session)->Stop().ok());
    });
  }
  for (std::thread& t : threads) t.join();
  for (int i = 0; i < 2; ++i) {
    EXPECT_NEAR(slopes[i], 3, 0.05) << i;
    EXPECT_NEAR(intercepts[i], -1, 0.05) << i;
  }
}

}  // namespace
}  // namespace millrace::testing
