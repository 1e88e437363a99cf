// SPDX-License-Identifier: Apache-2.0
// The ledger of a parameter server whose workers are killed in the middle of their steps. The
// gradient of each variable is 1 and the rate -1: a variable is the number of its updates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "millrace/ledger.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/process.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int kWorkers = 2, kVariables = 20;
constexpr seconds kPatience{60};

// So many updates of all variables at least, and more where a program asks (tools/ci_long).
int64_t WantedUpdates() {
  const char* const text = std::getenv("MILLRACE_UPDATES");
  return text == nullptr ? 20'000 : std::atoll(text);
}
// How long that may take: on two loaded cores there are thousands in a second.
seconds Limit() { return seconds(60 + WantedUpdates() / 500); }

// A ps and workers, each a process of `millrace server`.
class Cluster {
 public:
  Cluster() : ports_(FreePorts(1 + kWorkers)) {
    spec_ = StrCat("ps|127.0.0.1:", ports_[0], ",worker|127.0.0.1:", ports_[1]);
    for (int i = 1; i < kWorkers; ++i) StrAppend(&spec_, ";127.0.0.1:", ports_[1 + i]);
    ps_ = Start("ps", 0);
    for (int i = 0; i < kWorkers; ++i) workers_.push_back(Start("worker", i));
  }
  std::string Ps() const { return StrCat("grpc://127.0.0.1:", ports_[0]); }
  std::string Worker(int i) const { return StrCat("grpc://127.0.0.1:", ports_[1 + i]); }
  void KillAndStart(int i) {
    workers_[i]->Signal(SIGKILL);
    EXPECT_EQ(workers_[i]->WaitForEnd(kPatience), -SIGKILL);
    workers_[i] = Start("worker", i);
  }
  std::string spec() const { return spec_; }

 private:
  std::unique_ptr<Process> Start(const char* job, int task) {
    auto process = std::make_unique<Process>(
        "tools/millrace",
        std::vector<std::string>{"server", StrCat("--cluster_spec=", spec_),
                                 StrCat("--job_name=", job), StrCat("--task_id=", task)});
    EXPECT_TRUE(process->WaitForOutput("listening on", kPatience)) << process->output();
    return process;
  }

  const std::vector<int> ports_;
  std::string spec_;
  std::unique_ptr<Process> ps_;
  std::vector<std::unique_ptr<Process>> workers_;
};

// The graph that worker `i` trains, in sessions that are opened anew when they break.
class Client {
 public:
  explicit Client(int i) {
    ReplicaDeviceSetterOptions setter;
    setter.ps_tasks = 1;
    setter.worker_device = StrCat("/job:worker/task:", i);
    const Scope root = graph_.root().WithDevice(ReplicaDeviceSetter(std::move(setter)));
    const Variable step = GlobalStep(root);
    Output loss = Constant(root, Tensor::Scalar(0.0f));
    for (int k = 0; k < kVariables; ++k) {
      w_.push_back(MakeVariable(root, StrCat("w", k), Zeros(root, {})));
      loss = ops::Add(root, loss, w_.back().read);
    }
    const auto train = GradientDescent({.learning_rate = -1.0f})->Minimize(root, loss, &step);
    EXPECT_TRUE(train.ok()) << train.status();
    train_ = *train;
    init_ = InitializeVariables(root);
  }
  void Initialise(const std::string& target) {
    auto session = Session::Create(graph_, {.target = target});
    ASSERT_TRUE(session.ok()) << session.status();
    const Status ran = session->RunTargets({init_});
    EXPECT_TRUE(ran.ok()) << ran;
  }
  // Until `stop`, however often the worker is killed. Counts the steps whose end it saw.
  void TrainUntil(const std::atomic<bool>& stop, const std::string& target) {
    while (!stop) {
      auto session = Session::Create(graph_, {.target = target, .step_timeout = seconds(20)});
      while (session.ok() && !stop && session->RunTargets({train_}).ok()) ++steps_;
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
  std::vector<float> Read(const std::string& target) {
    auto session = Session::Create(graph_, {.target = target});
    EXPECT_TRUE(session.ok()) << session.status();
    std::vector<float> values;
    for (const Variable& w : w_) {
      const auto value = session->Eval(w.read);
      EXPECT_TRUE(value.ok()) << value.status();
      values.push_back(value.ok() ? value->scalar<float>() : -1);
    }
    return values;
  }
  int64_t steps() const { return steps_; }

 private:
  Graph graph_;
  std::vector<Variable> w_;
  Operation train_, init_;
  std::atomic<int64_t> steps_{0};
};

// Once nothing is on its way any more.
Ledger SettledLedger(const std::string& ps) {
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  Ledger ledger;
  do {
    auto read = ReadLedger(ps, {.timeout = seconds(10)});
    EXPECT_TRUE(read.ok()) << read.status();
    if (!read.ok()) return {};
    ledger = *std::move(read);
    if (ledger.Total(LedgerKind::kVariable).awaited == 0) return ledger;
    std::this_thread::sleep_for(milliseconds(50));
  } while (std::chrono::steady_clock::now() < limit);
  ADD_FAILURE() << "updates are awaited still:\n" << LedgerToText(ledger);
  return ledger;
}

TEST(LedgerOfKilledWorkers, AddsUpToWhatTheVariablesHold) {
  AdoptOrphans();
  Cluster cluster;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kWorkers; ++i) clients.push_back(std::make_unique<Client>(i));
  clients[0]->Initialise(cluster.Ps());
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kWorkers; ++i) {
    threads.emplace_back([&, i] { clients[i]->TrainUntil(stop, cluster.Worker(i)); });
  }
  const auto done = [&] { return (clients[0]->steps() + clients[1]->steps()) * kVariables; };
  const auto limit = std::chrono::steady_clock::now() + Limit();
  constexpr int kKills = 4;
  const int64_t wanted = WantedUpdates();
  for (int kill = 0; kill <= kKills; ++kill) {
    // Every worker has done a step since the last kill: none is killed before it has pushed any.
    const int64_t until = wanted * (kill + 1) / (kKills + 1);
    const int64_t steps[kWorkers] = {clients[0]->steps(), clients[1]->steps()};
    while ((done() < until || clients[0]->steps() == steps[0] || clients[1]->steps() == steps[1]) &&
           std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    if (kill < kKills) cluster.KillAndStart(kill % kWorkers);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(done(), wanted);

  const Ledger ledger = SettledLedger(cluster.Ps());
  EXPECT_TRUE(ledger.Balances()) << LedgerToText(ledger);
  const std::vector<float> values = clients[0]->Read(cluster.Ps());
  for (const LedgerEntry& entry : ledger.entries) {
    ASSERT_EQ(entry.kind, LedgerKind::kVariable);
    ASSERT_TRUE(entry.name.starts_with("w")) << entry.name;
    const UpdateAccount total = entry.Total();
    EXPECT_EQ(static_cast<float>(total.applied), values.at(std::stoul(entry.name.substr(1))));
    EXPECT_EQ(total.pushed, total.applied + total.dropped());
    // What clients saw the end of was applied; of steps that were cut off they do not know.
    EXPECT_GE(total.applied, clients[0]->steps() + clients[1]->steps());
    std::set<uint64_t> processes;
    for (const UpdateAccount& account : entry.accounts) {
      EXPECT_FALSE(account.task.empty());
      processes.insert(account.incarnation);
    }
    EXPECT_EQ(processes.size(), entry.accounts.size());
    EXPECT_GT(entry.accounts.size(), static_cast<std::size_t>(kWorkers));
  }

  Process text("tools/millrace", {"ledger", cluster.Ps()});
  EXPECT_EQ(text.WaitForEnd(kPatience), 0) << text.output();
  EXPECT_THAT(text.output(), HasSubstr(" pushed = "));
  Process json("tools/millrace", {"ledger", "--json", "--this_task", cluster.Ps()});
  EXPECT_EQ(json.WaitForEnd(kPatience), 0) << json.output();
  EXPECT_THAT(json.output(), HasSubstr("\"balances\": true"));
  Process nobody("tools/millrace", {"ledger", "--timeout=0.5", "127.0.0.1:1"});
  EXPECT_EQ(nobody.WaitForEnd(kPatience), 1);
}

}  // namespace
}  // namespace millrace::testing
