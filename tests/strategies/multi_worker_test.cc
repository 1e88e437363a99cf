// Models on two workers, each with a session of its own: how they begin, what they exchange, and
// what the one says that is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/strings.h"
#include "millrace/millrace.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr int kWorkers = 2;
constexpr int64_t kRows = 12, kFeatures = 4;

Tensor Samples() {
  Tensor x(kFloat, Shape({kRows, kFeatures}));
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.data<float>()[i] = static_cast<float>((i * 37) % 23) / 11.0f - 1.0f;
  }
  return x;
}

Tensor Targets() {
  Tensor y(kFloat, Shape({kRows, 1}));
  for (int64_t i = 0; i < kRows; ++i) y.data<float>()[i] = static_cast<float>(i % 5);
  return y;
}

// The model of one worker. Its weights are drawn without a seed.
class Worker {
 public:
  Worker(const LocalCluster& cluster, int task, const CommunicationOptions& communication)
      : model_(layers::Sequential({layers::Dense(3, {.activation = "tanh"}), layers::Dense(1)}),
               {.strategy = StrategyOf(cluster, task, communication)}) {
    status_ = model_.Compile({.optimizer = "adam", .loss = "mse"});
  }

  Status Fit() {
    if (!status_.ok()) return status_;
    return model_
        .Fit(Samples(), Targets(), {.batch_size = 8, .shuffle = false, .verbose = Verbose::kSilent})
        .status();
  }
  Model& model() { return model_; }

 private:
  static std::shared_ptr<Strategy> StrategyOf(const LocalCluster& cluster, int task,
                                              const CommunicationOptions& communication) {
    return MakeStrategy(
               "multi_worker_mirrored",
               {.task = {.cluster = cluster.spec(), .job_name = "worker", .task_index = task},
                .target = cluster.target("worker", task),
                .communication = communication})
        .value();
  }

  Model model_;
  Status status_;
};

class TwoWorkers {
 public:
  explicit TwoWorkers(const CommunicationOptions& communication = {.timeout_seconds = 30})
      : cluster_(LocalCluster::Start({.workers = kWorkers}).value()) {
    for (int task = 0; task < kWorkers; ++task) {
      workers_.push_back(std::make_unique<Worker>(*cluster_, task, communication));
    }
  }

  // Of all at once.
  template <typename F>
  std::vector<Status> All(const F& call) {
    std::vector<Status> statuses(workers_.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      threads.emplace_back([&, i] { statuses[i] = call(*workers_[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }
  Worker& worker(std::size_t i) { return *workers_[i]; }
  LocalCluster& cluster() { return *cluster_; }
  void ExpectEqualWeights() {
    const auto first = worker(0).model().GetWeights(), second = worker(1).model().GetWeights();
    ASSERT_TRUE(first.ok() && second.ok());
    ASSERT_EQ(first->size(), 4u);
    for (std::size_t i = 0; i < first->size(); ++i) {
      EXPECT_TRUE(TensorsEqual(first->at(i), second->at(i))) << "weight " << i;
    }
  }

 private:
  std::unique_ptr<LocalCluster> cluster_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

TEST(MultiWorker, BeginsWithTheWeightsOfTheChief) {
  TwoWorkers two;
  for (const Status& status : two.All([](Worker& worker) {
         return worker.model().Build({{PartialShape({-1, kFeatures}), kFloat}});
       })) {
    ASSERT_TRUE(status.ok()) << status;
  }
  two.ExpectEqualWeights();
  // A model by itself draws others.
  Model alone(layers::Sequential({layers::Dense(3), layers::Dense(1)}));
  ASSERT_TRUE(alone.Build({{PartialShape({-1, kFeatures}), kFloat}}).ok());
  EXPECT_FALSE(TensorsEqual(alone.GetWeights()->at(0), two.worker(0).model().GetWeights()->at(0)));
}

TEST(MultiWorker, KeepsWeightsEqualToTheBitWhateverThePacks) {
  for (const int64_t bytes : {0, 1, 20}) {
    TwoWorkers two({.bytes_per_pack = bytes, .timeout_seconds = 30});
    for (int pass = 0; pass < 3; ++pass) {
      for (const Status& status : two.All([](Worker& worker) { return worker.Fit(); })) {
        ASSERT_TRUE(status.ok()) << status;
      }
    }
    two.ExpectEqualWeights();
  }
}

TEST(MultiWorker, NamesTheWorkerThatIsGone) {
  TwoWorkers two({.timeout_seconds = 20});
  for (const Status& status : two.All([](Worker& worker) { return worker.Fit(); })) {
    ASSERT_TRUE(status.ok()) << status;
  }
  ASSERT_TRUE(two.cluster().Stop("worker", 1).ok());
  const Status alone = two.worker(0).Fit();
  EXPECT_FALSE(alone.ok());
  EXPECT_THAT(alone.ToString(), HasSubstr("/job:worker/replica:0/task:1"));
}

}  // namespace
}  // namespace millrace
