// SPDX-License-Identifier: Apache-2.0
// Synchronous training of two workers that is killed after any step and gone on with from its
// checkpoint, on other servers: it ends with the variables of a job that was never killed, bit for
// bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

constexpr int kWorkers = 2;
constexpr int64_t kSteps = 30;
constexpr int64_t kFurther = 3;

// One worker's graph and session: a network with one hidden layer, its variables on the ps.
class Replica {
 public:
  Replica(const InProcessCluster& cluster, int index, int64_t seed) : index_(index) {
    graph_.SetSeed(seed);
    ReplicaDeviceSetterOptions setter;
    setter.ps_tasks = cluster.spec().num_tasks("ps");
    setter.worker_device = StrCat("/job:worker/task:", index);
    const Scope s = graph_.root().WithDevice(ReplicaDeviceSetter(setter));
    const Variable step = GlobalStep(s);
    x_ = Placeholder(s, kFloat, {-1, 12});
    y_ = Placeholder(s, kInt64, {-1});
    const Variable w1 = MakeVariable(s, "w1", TruncatedNormal(s, {12, 9}, {.stddev = 0.3f}));
    const Variable b1 = MakeVariable(s, "b1", Zeros(s, {9}));
    const Variable w2 = MakeVariable(s, "w2", TruncatedNormal(s, {9, 5}, {.stddev = 0.3f}));
    const Output hidden = ops::Relu(s, ops::BiasAdd(s, ops::MatMul(s, x_, w1.read), b1.read));
    const Output logits = ops::MatMul(s, hidden, w2.read);
    const Output loss = ReduceMean(s, SparseSoftmaxCrossEntropy(s, logits, y_));
    SyncReplicas sync(Adam({.learning_rate = 0.02f}),
                      {.replicas_to_aggregate = kWorkers, .total_num_replicas = kWorkers});
    train_ = *sync.Minimize(s, loss, &step);
    local_init_ = index == 0 ? *sync.chief_init_op() : *sync.local_step_init_op();
    aggregate_ = *sync.chief_queue_op();
    init_ = InitializeVariables(s);
    for (const SavedVariable& v : SavedVariables(graph_.root())) reads_.push_back(v.variable.read);
    if (index == 0) saver_ = *Saver::Create(graph_, {.sharded = true, .max_to_keep = 0});
    session_.emplace(*Session::Create(graph_, {.target = cluster.Target("worker", index)}));
  }

  Status Initialize() { return session_->RunTargets({init_}); }
  Status InitializeLocally() { return session_->RunTargets({local_init_}); }
  Status Restore(const std::string& prefix) { return saver_->Restore(*session_, prefix); }
  StatusOr<std::string> Save(const std::string& prefix, int64_t step) {
    return saver_->Save(*session_, prefix, {.global_step = step, .write_meta_graph = false});
  }
  // Waits for its token, which the chief's Aggregate hands out.
  Status Train(int64_t step) {
    Tensor x(kFloat, {6, 12}), y(kInt64, {6});
    for (int64_t i = 0; i < x.num_elements(); ++i) {
      x.data<float>()[i] = static_cast<float>((i * 37 + step * 101 + index_ * 17) % 64) / 32 - 1;
    }
    for (int64_t i = 0; i < 6; ++i) y.data<int64_t>()[i] = (i * 3 + step + index_) % 5;
    return session_->Run({{x_, x}, {y_, y}}, {}, {train_}).status();
  }
  Status Aggregate() { return session_->RunTargets({aggregate_}); }
  // Weights, slots, the optimizer's counts and the global step.
  std::vector<Tensor> Values() {
    auto values = session_->Run({}, std::span<const Output>(reads_));
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *std::move(values) : std::vector<Tensor>();
  }

 private:
  const int index_;
  Graph graph_;
  Output x_, y_;
  Operation train_, local_init_, aggregate_, init_;
  std::vector<Output> reads_;
  std::unique_ptr<Saver> saver_;
  std::optional<Session> session_;
};

class Job {
 public:
  Job(int num_ps, int64_t seed) : cluster_(num_ps, kWorkers) {
    for (int i = 0; i < kWorkers; ++i) {
      replicas_.push_back(std::make_unique<Replica>(cluster_, i, seed));
    }
  }

  // From the checkpoint, or from the initial values.
  void Begin(const std::string& checkpoint) {
    const Status status = checkpoint.empty() ? chief().Initialize() : chief().Restore(checkpoint);
    ASSERT_TRUE(status.ok()) << status;
    for (const auto& replica : replicas_) {
      const Status local = replica->InitializeLocally();
      ASSERT_TRUE(local.ok()) << local;
    }
  }
  void Train(int64_t step) {
    std::vector<std::thread> threads;
    for (const auto& replica : replicas_) {
      threads.emplace_back([&replica, step] {
        const Status status = replica->Train(step);
        EXPECT_TRUE(status.ok()) << status;
      });
    }
    const Status status = chief().Aggregate();
    EXPECT_TRUE(status.ok()) << status;
    for (std::thread& thread : threads) thread.join();
  }
  Replica& chief() { return *replicas_[0]; }

 private:
  InProcessCluster cluster_;
  std::vector<std::unique_ptr<Replica>> replicas_;
};

void ExpectSame(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(TensorsEqual(got[i], want[i]))
        << "variable " << i << ": " << got[i].DebugString() << " " << want[i].DebugString();
  }
}

TEST(SyncResume, AJobThatIsKilledAfterAnyStepEndsAsOneThatWasNot) {
  const std::string prefix = EmptyFolder("it") + "/model.ckpt";
  std::vector<std::vector<Tensor>> after;  // so many steps
  {
    Job job(2, /*seed=*/11);
    job.Begin("");
    for (int64_t step = 0; step < kSteps; ++step) {
      after.push_back(job.chief().Values());
      ASSERT_TRUE(job.chief().Save(prefix, step).ok());
      job.Train(step);
      ASSERT_FALSE(HasFailure());
    }
    after.push_back(job.chief().Values());
  }
  ASSERT_GE(after[0].size(), 10u);
  for (int64_t killed_at = 0; killed_at < kSteps; ++killed_at) {
    SCOPED_TRACE(StrCat("killed after step ", killed_at));
    // Servers of another number, and a program that would have begun with other weights.
    Job job(1 + static_cast<int>(killed_at % 3), /*seed=*/100 + killed_at);
    job.Begin(StrCat(prefix, "-", killed_at));
    ASSERT_FALSE(HasFailure());
    // All values being the same after some steps, those that follow are. One job goes on to the
    // end.
    const int64_t end = killed_at == kSteps / 2 ? kSteps : std::min(killed_at + kFurther, kSteps);
    for (int64_t step = killed_at; step < end; ++step) job.Train(step);
    ExpectSame(job.chief().Values(), after[static_cast<std::size_t>(end)]);
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace millrace::testing
