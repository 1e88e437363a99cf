// SPDX-License-Identifier: Apache-2.0
// Learns who likes what: a table of a million users, of whom a step touches a few, on two parameter
// servers, trained by two workers that do not wait for each other; all in one process.
//
//   recommender --users=1000000 --steps=1500
//
// A step fetches the rows of its users and items, and sends back what changes in these: what it
// costs does not depend on how long the tables are. The program shows that: it trains with a small
// table as well, and prints both rates. Who likes what is made up: users and items are of five
// kinds, and like goes with like.
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "examples/training_flags.h"
#include "millrace/cluster.h"
#include "millrace/core.h"
#include "millrace/local_cluster.h"
#include "millrace/math.h"
#include "millrace/status_macros.h"

namespace mr = millrace;
using mr::initializers::RandomNormal;

struct Flags {
  int64_t users = 1'000'000, small = 10'000, items = 2000, width = 32;
  int64_t batch_size = 256, steps = 1500;
  double min_accuracy = 0, min_ratio = 0;
};

constexpr int64_t kActive = 500;  // users of whom something is known, spread over the table
constexpr int64_t kKinds = 5;

struct Pairs {
  mr::Tensor users, items, likes;
};

// Every tenth pair is kept for the test.
Pairs Draw(const Flags& flags, int64_t table, bool for_test, std::mt19937_64* random) {
  const int64_t n = flags.batch_size;
  Pairs pairs{mr::Tensor(mr::kInt64, mr::Shape({n})), mr::Tensor(mr::kInt64, mr::Shape({n})),
              mr::Tensor(mr::kFloat, mr::Shape({n}))};
  for (int64_t i = 0; i < n;) {
    const auto user = static_cast<int64_t>((*random)() % kActive);
    const auto item = static_cast<int64_t>((*random)() % static_cast<uint64_t>(flags.items));
    const bool likes = user % kKinds == item * 3 % kKinds;
    const bool is_for_test = (user * 31 + item * 17) / 7 % 10 == 0;
    // As many that like as that do not.
    if (is_for_test != for_test || (!likes && (*random)() % (kKinds - 1) != 0)) continue;
    pairs.users.data<int64_t>()[i] = user * (table / kActive);
    pairs.items.data<int64_t>()[i] = item;
    pairs.likes.data<float>()[i++] = likes ? 1.0f : 0.0f;
  }
  return pairs;
}

// One worker: its graph, whose variables those of the other worker are too, and its session.
class Worker {
 public:
  Worker(const Flags& flags, int64_t table, int task) : flags_(flags), table_(table), task_(task) {}

  mr::Status Start(const mr::LocalCluster& cluster) {
    const mr::Scope root = graph_.root().WithDevice(
        mr::ReplicaDeviceSetter({.ps_tasks = cluster.spec().num_tasks("ps"),
                                 .worker_device = "/job:worker/task:" + std::to_string(task_)}));
    for (const char* name : {"users", "items"}) {
      feeds_.push_back(mr::Placeholder(root.WithOpName(name), mr::kInt64, {flags_.batch_size}));
    }
    feeds_.push_back(mr::Placeholder(root.WithOpName("likes"), mr::kFloat, {flags_.batch_size}));
    const mr::Variable users = mr::MakeVariable(root, "user_table", {table_, flags_.width},
                                                RandomNormal({.stddev = 0.3, .seed = 1}));
    const mr::Variable items = mr::MakeVariable(root, "item_table", {flags_.items, flags_.width},
                                                RandomNormal({.stddev = 0.3, .seed = 2}));
    const mr::Variable bias = mr::MakeVariable(root, "bias", {}, mr::initializers::Zeros());
    // Beside the tables: rows travel, not tables.
    const mr::Output of_users =
        mr::ops::GatherV2(root.ColocateWith(users.handle), users.read, feeds_[0], 0);
    const mr::Output of_items =
        mr::ops::GatherV2(root.ColocateWith(items.handle), items.read, feeds_[1], 0);
    logits_ = (mr::Expr(root, of_users) * of_items).Sum({1}) + bias.read;
    const mr::Output loss = mr::Expr(root, mr::losses::BinaryCrossentropy({.from_logits = true})(
                                               root, mr::Expr(root, feeds_[2]).ExpandDims(-1),
                                               mr::Expr(root, logits_).ExpandDims(-1)));
    const mr::Variable step = mr::GlobalStep(root);
    auto optimizer = mr::Adagrad({.learning_rate = 0.5});
    MR_ASSIGN_OR_RETURN(
        const mr::Operation train,
        optimizer->Minimize(root, mr::Expr(root, loss) * static_cast<float>(flags_.batch_size),
                            &step));
    const mr::Operation init = mr::InitializeVariables(root);
    MR_RETURN_IF_ERROR(graph_.status());
    MR_ASSIGN_OR_RETURN(mr::Session session,
                        mr::Session::Create(graph_, {.target = cluster.target("worker", task_)}));
    session_ = std::make_unique<mr::Session>(std::move(session));
    if (task_ == 0) MR_RETURN_IF_ERROR(session_->RunTargets({init}));
    const mr::Operation targets[] = {train};
    MR_ASSIGN_OR_RETURN(train_, session_->MakeCallable(feeds_, {}, targets));
    const mr::Output fetches[] = {logits_};
    MR_ASSIGN_OR_RETURN(predict_, session_->MakeCallable(feeds_, fetches, {}));
    return mr::OkStatus();
  }

  mr::Status Train(int64_t steps) {
    std::vector<mr::Tensor> none;
    for (int64_t i = 0; i < steps; ++i) {
      const Pairs p = Draw(flags_, table_, /*for_test=*/false, &random_);
      const mr::Tensor feeds[] = {p.users, p.items, p.likes};
      MR_RETURN_IF_ERROR(train_.Run(feeds, &none));
    }
    return mr::OkStatus();
  }

  // Of pairs that nobody was trained on.
  mr::StatusOr<double> Accuracy() {
    int64_t right = 0, all = 0;
    for (int batch = 0; batch < 8; ++batch) {
      const Pairs p = Draw(flags_, table_, /*for_test=*/true, &random_);
      const mr::Tensor feeds[] = {p.users, p.items, p.likes};
      MR_ASSIGN_OR_RETURN(const std::vector<mr::Tensor> out, predict_.Run(feeds));
      for (int64_t i = 0; i < flags_.batch_size; ++i, ++all) {
        right += (out[0].data<float>()[i] > 0) == (p.likes.data<float>()[i] > 0.5f);
      }
    }
    return static_cast<double>(right) / static_cast<double>(all);
  }

 private:
  const Flags& flags_;
  const int64_t table_;
  const int task_;
  std::mt19937_64 random_{static_cast<uint64_t>(task_) + 1};
  mr::Graph graph_;
  std::vector<mr::Output> feeds_;
  mr::Output logits_;
  std::unique_ptr<mr::Session> session_;
  mr::Callable train_, predict_;
};

struct Outcome {
  double steps_per_second = 0, accuracy = 0;
};

mr::StatusOr<Outcome> Run(const Flags& flags, int64_t table, int64_t steps) {
  MR_ASSIGN_OR_RETURN(const auto cluster, mr::LocalCluster::Start({.workers = 2, .ps = 2}));
  Worker first(flags, table, 0), second(flags, table, 1);
  MR_RETURN_IF_ERROR(first.Start(*cluster));
  MR_RETURN_IF_ERROR(second.Start(*cluster));
  // What is made once, at the first step, is not counted.
  MR_RETURN_IF_ERROR(first.Train(1));
  MR_RETURN_IF_ERROR(second.Train(1));
  const auto begin = std::chrono::steady_clock::now();
  mr::Status of_second;
  std::thread thread([&] { of_second = second.Train(steps); });
  const mr::Status of_first = first.Train(steps);
  thread.join();
  MR_RETURN_IF_ERROR(of_first);
  MR_RETURN_IF_ERROR(of_second);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  MR_ASSIGN_OR_RETURN(const double accuracy, first.Accuracy());
  const Outcome outcome{static_cast<double>(2 * steps) / time.count(), accuracy};
  std::printf("%8lld users: %.0f steps/s of two workers, accuracy %.3f\n",
              static_cast<long long>(table), outcome.steps_per_second, outcome.accuracy);
  return outcome;
}

mr::Status Compare(const Flags& flags) {
  MR_ASSIGN_OR_RETURN(const Outcome large, Run(flags, flags.users, flags.steps));
  MR_ASSIGN_OR_RETURN(const Outcome small, Run(flags, flags.small, flags.steps / 4 + 1));
  const double ratio = large.steps_per_second / small.steps_per_second;
  std::printf("the large table's rate is %.2f of the small one's\n", ratio);
  if (large.accuracy >= flags.min_accuracy && ratio >= flags.min_ratio) return mr::OkStatus();
  return mr::Status(mr::StatusCode::kFailedPrecondition,
                    "the accuracy is below --min_accuracy, or the ratio below --min_ratio");
}

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Learns who likes what, with a large table on parameter servers", "recommender");
  app.add_option("--users", flags.users, "Rows of the large table")
      ->check(CLI::Range(int64_t{1000}, int64_t{100'000'000}))
      ->capture_default_str();
  app.add_option("--small", flags.small, "Rows of the small table")
      ->check(CLI::Range(int64_t{1000}, int64_t{100'000'000}))
      ->capture_default_str();
  app.add_option("--batch_size", flags.batch_size, "Pairs of a step")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--steps", flags.steps, "Steps of each worker")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--min_accuracy", flags.min_accuracy, "Fails below this accuracy")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--min_ratio", flags.min_ratio, "Fails if the large table is slower by more")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  return mr::examples::RunProgram(app, argc, argv, [&] { return Compare(flags); });
}
