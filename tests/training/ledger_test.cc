// SPDX-License-Identifier: Apache-2.0
// The ledger of jobs whose tasks are all in this process. The gradient of w is 1 and the rate -1,
// so that w says how many updates were applied.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/core.h"
#include "millrace/ledger.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// Updates by each worker: more of them where a program asks (tools/ci_long).
int64_t StepsOfEach(int64_t usual) {
  const char* const text = std::getenv("MILLRACE_UPDATES");
  return text == nullptr ? usual : std::max<int64_t>(usual, std::atoll(text) / 40);
}

std::string WorkerTask(int index) { return StrCat("/job:worker/replica:0/task:", index); }

Ledger Read(const InProcessCluster& cluster) {
  StatusOr<Ledger> ledger = ReadLedger(cluster.Target("worker", 0), {.timeout = seconds(30)});
  EXPECT_TRUE(ledger.ok()) << ledger.status();
  if (!ledger.ok()) return {};
  EXPECT_TRUE(ledger->Balances()) << LedgerToText(*ledger);
  EXPECT_TRUE(ledger->not_reached.empty());
  return *std::move(ledger);
}

const LedgerEntry* Find(const Ledger& ledger, LedgerKind kind, const std::string& name) {
  for (const LedgerEntry& entry : ledger.entries) {
    if (entry.kind == kind && entry.name == name) return &entry;
  }
  ADD_FAILURE() << "no " << name << " in:\n" << LedgerToText(ledger);
  static const LedgerEntry none;
  return &none;
}

UpdateAccount OfWorker(const LedgerEntry& entry, int index) {
  UpdateAccount sum;
  for (const UpdateAccount& account : entry.accounts) {
    if (account.task == WorkerTask(index)) sum.Add(account);
  }
  return sum;
}

// A worker with variables w0, w1, ... that are trained at once.
class Worker {
 public:
  Worker(const InProcessCluster& cluster, int index, int num_variables, int64_t bound = -1) {
    ReplicaDeviceSetterOptions setter;
    setter.ps_tasks = cluster.spec().num_tasks("ps");
    setter.worker_device = StrCat("/job:worker/task:", index);
    const Scope root = graph_.root().WithDevice(ReplicaDeviceSetter(std::move(setter)));
    const Variable step = GlobalStep(root);
    x_ = Placeholder(root, kFloat, PartialShape({}));
    Output loss = Constant(root, Tensor::Scalar(0.0f));
    for (int i = 0; i < num_variables; ++i) {
      w_.push_back(MakeVariable(root, StrCat("w", i), Zeros(root, {})));
      loss = ops::Add(root, loss, ops::Mul(root, w_.back().read, x_));
    }
    auto descent = GradientDescent({.learning_rate = -1.0f});
    const auto train =
        bound < 0
            ? descent->Minimize(root, loss, &step)
            : StalenessBound(std::move(descent), {.bound = bound}).Minimize(root, loss, &step);
    EXPECT_TRUE(train.ok()) << train.status();
    train_ = *train;
    init_ = InitializeVariables(root);
    auto session = Session::Create(graph_, {.target = cluster.Target("worker", index)});
    EXPECT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }
  void Initialise() { Expect(session_->RunTargets({init_})); }
  Status Train(const Tensor& gradient = Tensor::Scalar(1.0f),
               milliseconds limit = milliseconds(60'000)) {
    return session_->Run({{x_, gradient}}, {}, {train_}, {.timeout = limit}).status();
  }
  float w(int i) {
    const auto value = session_->Eval(w_[static_cast<std::size_t>(i)].read);
    Expect(value.status());
    return value.ok() ? value->scalar<float>() : -1;
  }

 private:
  static void Expect(const Status& status) { EXPECT_TRUE(status.ok()) << status; }
  Graph graph_;
  std::vector<Variable> w_;
  Output x_;
  Operation train_, init_;
  std::optional<Session> session_;
};

TEST(LedgerOfAsynchronousTraining, SaysWhoAppliedHowManyToWhat) {
  constexpr int kVariables = 10;
  InProcessCluster cluster(2, 2);
  Worker first(cluster, 0, kVariables), second(cluster, 1, kVariables);
  first.Initialise();
  const int64_t steps = StepsOfEach(50);
  std::atomic<int64_t> of_second{0};
  std::thread other([&] {
    while (of_second < 2 * steps && second.Train().ok()) ++of_second;
  });
  for (int64_t i = 0; i < steps; ++i) EXPECT_TRUE(first.Train().ok());
  other.join();
  EXPECT_EQ(of_second, 2 * steps);
  const Ledger ledger = Read(cluster);
  EXPECT_EQ(ledger.asked.size(), 4u);
  for (int i = 0; i < kVariables; ++i) {
    const LedgerEntry& entry = *Find(ledger, LedgerKind::kVariable, StrCat("w", i));
    EXPECT_EQ(entry.accounts.size(), 2u);
    EXPECT_EQ(OfWorker(entry, 0).applied, steps);
    EXPECT_EQ(OfWorker(entry, 1).applied, 2 * steps);
    const UpdateAccount total = entry.Total();
    EXPECT_EQ(static_cast<float>(total.applied), first.w(i));
    EXPECT_EQ(total.dropped() + total.not_arrived + total.awaited, 0);
    EXPECT_EQ(total.age_not_known, 0);
    int64_t ages = 0;
    for (const int64_t count : total.ages) ages += count;
    EXPECT_EQ(ages, total.applied);
    // Each worker has one step at a time: no more than the other's updates come between.
    EXPECT_LE(total.oldest, 2 * steps);
  }
  EXPECT_THAT(LedgerToText(ledger), HasSubstr(StrCat(3 * steps * kVariables, " pushed = ")));
}

// A variable of a ps, and what a client does to it through a worker.
class OneVariable : public ::testing::TestWithParam<bool> {
 protected:
  OneVariable() {
    w_ = MakeVariable(ps_, "w", Zeros(ps_, {}), {.use_resource = GetParam()});
    delta_ = ops::Placeholder(ps_, kFloat);
    const Tensor rate = Tensor::Scalar(-1.0f);
    const Output queue = ops::FIFOQueueV2(ps_, {kFloat});
    const Output never = ops::QueueDequeueV2(ps_, queue, {kFloat})[0];
    push_ = Push(rate, delta_);
    stuck_ = Push(rate, never);
    init_ = InitializeVariables(ps_);
    auto session = Session::Create(graph_, {.target = cluster_.Target("worker", 0)});
    EXPECT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    EXPECT_TRUE(session_->RunTargets({init_}).ok());
  }
  Operation Push(const Tensor& rate, const Output& delta) {
    if (GetParam()) return ops::ResourceApplyGradientDescent(ps_, w_.handle, rate, delta);
    return ops::ApplyGradientDescent(ps_, w_.handle, rate, delta).op();
  }
  Status Train(const Tensor& delta) {
    return session_->Run({{delta_, delta}}, {}, {push_}).status();
  }
  UpdateAccount W() { return Find(Read(cluster_), LedgerKind::kVariable, "w")->Total(); }
  // Of an update that has perhaps not come to the server yet.
  bool IsAwaited() {
    for (const LedgerEntry& entry : Read(cluster_).entries) {
      if (entry.kind == LedgerKind::kVariable && entry.name == "w") {
        return entry.Total().awaited == 1;
      }
    }
    return false;
  }

  InProcessCluster cluster_{1, 1};
  Graph graph_;
  const Scope ps_ = graph_.root().WithDevice("/job:ps/task:0");
  Variable w_;
  Output delta_;
  Operation push_, stuck_, init_;
  std::optional<Session> session_;
};

INSTANTIATE_TEST_SUITE_P(BothKinds, OneVariable, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "resource" : "reference"; });

TEST_P(OneVariable, CountsWhatDoesNotFitAsDropped) {
  EXPECT_TRUE(Train(Tensor::Scalar(1.0f)).ok());
  EXPECT_FALSE(Train(Tensor::FromValues<float>({1, 2})).ok());
  const UpdateAccount w = W();
  EXPECT_EQ(w.pushed, 2);
  EXPECT_EQ(w.applied, 1);
  EXPECT_EQ(w.failed, 1);
  EXPECT_EQ(w.not_arrived, 0);
}

TEST_P(OneVariable, CountsApartWhatHadNotArrivedWhenItsStepFailed) {
  // Longer and longer, until the step has been seen to wait at the server before its deadline.
  int steps = 0;
  bool awaited = false;
  for (milliseconds limit(300); !awaited && limit < seconds(60); limit *= 2, ++steps) {
    std::atomic<bool> over{false};
    std::thread stuck([&] {
      const std::vector<Operation> targets = {stuck_};
      const Status late = session_->Run({}, {}, targets, {.timeout = limit}).status();
      EXPECT_TRUE(errors::IsDeadlineExceeded(late)) << late;
      over = true;
    });
    while (!awaited && !over) awaited = IsAwaited();
    stuck.join();
  }
  ASSERT_TRUE(awaited);
  UpdateAccount w = W();
  // The client is told before the server has quite ended the step.
  for (int i = 0; i < 3000 && w.not_arrived == 0; ++i) {
    std::this_thread::sleep_for(milliseconds(20));
    w = W();
  }
  EXPECT_GE(w.not_arrived, 1);
  EXPECT_LE(w.not_arrived, steps);  // one, but where the machine stood still
  EXPECT_EQ(w.pushed, 0);
  EXPECT_EQ(w.awaited, 0);
}

TEST(LedgerOfAStalenessBound, ShowsThatNoUpdateWasOlder) {
  constexpr int64_t kBound = 2, kSteps = 20;
  InProcessCluster cluster(1, 3);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 3; ++i) workers.push_back(std::make_unique<Worker>(cluster, i, 1, kBound));
  workers[0]->Initialise();
  std::vector<std::thread> threads;
  for (const auto& worker : workers) {
    threads.emplace_back([&worker] {
      for (int64_t k = 0; k < kSteps; ++k) EXPECT_TRUE(worker->Train().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Ledger ledger = Read(cluster);
  const UpdateAccount turns = Find(ledger, LedgerKind::kBound, "staleness_bound")->Total();
  EXPECT_EQ(turns.applied, 3 * kSteps);
  EXPECT_LE(turns.oldest, kBound);
  EXPECT_EQ(Find(ledger, LedgerKind::kVariable, "w0")->Total().applied, 3 * kSteps);
}

// --- Synchronous -------------------------------------------------------------------------------

class Replica {
 public:
  Replica(const InProcessCluster& cluster, int index, int num_workers) {
    ReplicaDeviceSetterOptions setter;
    setter.ps_tasks = cluster.spec().num_tasks("ps");
    setter.worker_device = StrCat("/job:worker/task:", index);
    const Scope root = graph_.root().WithDevice(ReplicaDeviceSetter(std::move(setter)));
    const Variable step = GlobalStep(root);
    w_ = MakeVariable(root, "w", Zeros(root, {}));
    SyncReplicas sync(GradientDescent({.learning_rate = -1.0f}),
                      {.replicas_to_aggregate = num_workers, .total_num_replicas = num_workers});
    const auto train = sync.Minimize(root, w_.read, &step);
    EXPECT_TRUE(train.ok()) << train.status();
    train_ = *train;
    init_ = InitializeVariables(root);
    local_init_ = index == 0 ? *sync.chief_init_op() : *sync.local_step_init_op();
    tokens_ = *sync.InitTokensOp(root);
    sync_ = *sync.chief_queue_op();
    auto session = Session::Create(
        graph_, {.target = cluster.Target("worker", index), .step_timeout = seconds(60)});
    EXPECT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }
  void Initialise(bool is_chief) {
    if (is_chief) Run(init_);
    Run(local_init_);
    if (is_chief) Run(tokens_);
  }
  void Train() { Run(train_); }
  void Aggregate() { Run(sync_); }
  float w() { return session_->Eval(w_.read)->scalar<float>(); }

 private:
  void Run(const Operation& op) {
    const Status ran = session_->RunTargets({op});
    EXPECT_TRUE(ran.ok()) << ran;
  }
  Graph graph_;
  Variable w_;
  Operation train_, init_, local_init_, tokens_, sync_;
  std::optional<Session> session_;
};

TEST(LedgerOfSynchronousTraining, CountsGradientsTakenDroppedAndHeldAndTokens) {
  InProcessCluster cluster(1, 2);
  Replica chief(cluster, 0, 2), other(cluster, 1, 2);
  chief.Initialise(true);
  other.Initialise(false);
  chief.Train();  // with the first tokens
  other.Train();
  chief.Aggregate();
  // Their local steps are of before that: both are dropped, and bring the tokens of step 1.
  chief.Train();
  other.Train();
  std::thread last([&] { other.Train(); });  // held; it waits for a token
  milliseconds waited{0};
  UpdateAccount gradients;
  while (gradients.held < 1 && waited < seconds(60)) {
    const Ledger ledger = Read(cluster);
    for (const LedgerEntry& entry : ledger.entries) {
      if (entry.kind == LedgerKind::kAccumulator) gradients = entry.Total();
    }
    std::this_thread::sleep_for(milliseconds(20));
    waited += milliseconds(20);
  }
  EXPECT_EQ(gradients.pushed, 5);
  EXPECT_EQ(gradients.applied, 2);
  EXPECT_EQ(gradients.stale, 2);
  EXPECT_EQ(gradients.held, 1);
  EXPECT_EQ(gradients.oldest, 1);
  std::thread first([&] { chief.Train(); });
  chief.Aggregate();
  first.join();
  last.join();
  const Ledger ledger = Read(cluster);
  const UpdateAccount settled = ledger.Total(LedgerKind::kAccumulator);
  EXPECT_EQ(settled.pushed, 6);
  EXPECT_EQ(settled.applied, 4);
  EXPECT_EQ(settled.held, 0);
  // What was applied to the variable are the two means, by the chief.
  const LedgerEntry& w = *Find(ledger, LedgerKind::kVariable, "w");
  EXPECT_EQ(OfWorker(w, 0).applied, 2);
  EXPECT_EQ(w.Total().applied, 2);
  EXPECT_EQ(chief.w(), 2);
  const UpdateAccount tokens = ledger.Total(LedgerKind::kTokens);
  EXPECT_EQ(tokens.handed_out, 6);  // two at first, two with each step
  EXPECT_EQ(tokens.taken, 6);
}

TEST(LedgerOfATask, IsRefusedForWhatIsNoTarget) {
  EXPECT_TRUE(errors::IsInvalidArgument(ReadLedger("127.0.0.1:1").status()));
  const Status nobody = ReadLedger("grpc://127.0.0.1:1", {.timeout = milliseconds(500)}).status();
  EXPECT_FALSE(nobody.ok());
  EXPECT_THAT(std::string(Message(nobody)), HasSubstr("127.0.0.1:1"));
}

TEST(LedgerOfATask, NamesTasksThatDoNotAnswer) {
  InProcessCluster cluster(1, 2);
  cluster.Stop("worker", 1);
  const auto ledger = ReadLedger(cluster.Target("ps", 0), {.timeout = seconds(5)});
  ASSERT_TRUE(ledger.ok()) << ledger.status();
  EXPECT_EQ(ledger->asked.size(), 2u);
  ASSERT_EQ(ledger->not_reached.size(), 1u);
  EXPECT_THAT(ledger->not_reached[0], HasSubstr(WorkerTask(1)));
}

}  // namespace
}  // namespace millrace::testing
