// Models on two workers, each with a session of its own: how they begin, what they exchange, and
// what the one says that is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
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

// Runs `make` in a graph of each worker: what its outputs are.
std::vector<StatusOr<std::vector<Tensor>>> EvaluateOnBoth(
    int replicas,
    const std::function<std::vector<Output>(Strategy& strategy, const Scope& scope)>& make) {
  const auto cluster =
      LocalCluster::Start({.workers = kWorkers, .server = {.num_cpu_devices = replicas}}).value();
  std::vector<StatusOr<std::vector<Tensor>>> all(kWorkers, std::vector<Tensor>());
  std::vector<std::thread> threads;
  for (int task = 0; task < kWorkers; ++task) {
    threads.emplace_back([&, task] {
      auto& result = all[static_cast<std::size_t>(task)];
      const auto strategy =
          MakeStrategy(
              "multi_worker_mirrored",
              {.replicas = replicas,
               .task = {.cluster = cluster->spec(), .job_name = "worker", .task_index = task},
               .target = cluster->target("worker", task),
               .communication = {.timeout_seconds = 30}})
              .value();
      Graph graph;
      const std::vector<Output> outputs = make(*strategy, graph.root());
      SessionOptions options;
      Status status = graph.status();
      if (status.ok()) status = strategy->ConfigureSession(&options);
      if (!status.ok()) {
        result = status;
        return;
      }
      auto session = Session::Create(graph, options);
      if (session.ok()) {
        result = session->Run({}, outputs);
      } else {
        result = session.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

TEST(MultiWorker, GathersWhatAllReplicasHaveInTheirOrder) {
  // Replica i has i rows, and as many columns where columns are gathered; the first has none.
  const auto make = [](Strategy& strategy, const Scope& scope) {
    std::vector<Output> gathered;
    for (const int axis : {0, 1, -1}) {
      const PerReplica values = strategy.ValuesOf(scope, [&](const Scope& s, int replica) {
        Tensor value(kInt32, axis == 0 ? Shape({replica, 2}) : Shape({2, replica}));
        std::fill_n(value.data<int32_t>(), value.num_elements(), replica);
        return Constant(s, value);
      });
      gathered.push_back(strategy.Gather(scope, values, axis));
    }
    return gathered;
  };
  for (const auto& result : EvaluateOnBoth(2, make)) {
    ASSERT_TRUE(result.ok()) << result.status();
    const std::vector<int32_t> want = {1, 2, 2, 3, 3, 3};
    ASSERT_EQ(result->at(0).shape(), Shape({6, 2}));
    for (int64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(result->at(0).data<int32_t>()[2 * i], want[static_cast<std::size_t>(i)]);
    }
    for (const std::size_t k : {1u, 2u}) {
      ASSERT_EQ(result->at(k).shape(), Shape({2, 6}));
      for (int64_t i = 0; i < 12; ++i) {
        EXPECT_EQ(result->at(k).data<int32_t>()[i], want[static_cast<std::size_t>(i % 6)]);
      }
    }
  }
}

TEST(MultiWorker, GivesReplicasWhatAllHaveInTheMiddleOfTheirWork) {
  const auto make = [](Strategy& strategy, const Scope& scope) {
    const auto all = strategy.Run(scope, [](ReplicaContext& context) {
      const float own = static_cast<float>(context.replica_id_in_sync_group());
      return std::vector{
          context.AllGather(Constant(context.scope(), Tensor::FromValues<float>({own})))};
    });
    return all.ok() ? all->at(0).values : std::vector<Output>();
  };
  for (const auto& result : EvaluateOnBoth(2, make)) {
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->size(), 2u);
    for (const Tensor& got : *result) {
      EXPECT_TRUE(TensorsEqual(got, Tensor::FromValues<float>({0, 1, 2, 3})));
    }
  }
}

TEST(MultiWorker, RefusesToGatherNumbersWithoutAnAxis) {
  const auto make = [](Strategy& strategy, const Scope& scope) {
    return std::vector{strategy.GatherOverWorkers(
        scope, {{Constant(scope, Tensor::Scalar<float>(1))}}, std::source_location::current())[0]};
  };
  for (const auto& result : EvaluateOnBoth(1, make)) {
    EXPECT_THAT(result.status().ToString(), HasSubstr("cannot be gathered over workers"));
  }
}

// What travels is the rows that a step looks up, and only those are changed.
TEST(MultiWorker, SendsRowsOfEmbeddingsAlone) {
  constexpr int64_t kWords = 1000;
  const auto cluster = LocalCluster::Start({.workers = kWorkers}).value();
  std::vector<std::thread> threads;
  std::vector<Status> statuses(kWorkers);
  for (int task = 0; task < kWorkers; ++task) {
    threads.emplace_back([&, task] {
      const auto strategy =
          MakeStrategy(
              "multi_worker_mirrored",
              {.task = {.cluster = cluster->spec(), .job_name = "worker", .task_index = task},
               .target = cluster->target("worker", task),
               .communication = {.timeout_seconds = 30}})
              .value();
      Model model(
          layers::Sequential({layers::Embedding(kWords, 4), layers::Flatten(), layers::Dense(1)}),
          {.strategy = strategy});
      Tensor ids(kInt64, Shape({6, 2}));
      for (int64_t i = 0; i < 12; ++i) ids.data<int64_t>()[i] = (i * i) % 20;
      Status& status = statuses[static_cast<std::size_t>(task)];
      status = model.Compile({.optimizer = "sgd", .loss = "mse"});
      if (status.ok()) {
        status = model
                     .Fit(ids, Targets().Slice(0, 6),
                          {.batch_size = 5, .shuffle = false, .verbose = Verbose::kSilent})
                     .status();
      }
      for (const Operation& op : model.graph().operations()) {
        if (op.type() != "CollectiveReduce") continue;
        const auto shape = op.output(0).shape().AsShape();
        EXPECT_TRUE(shape.has_value() && shape->num_elements() < kWords) << op.name();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// The bytes of all files of a folder, by their names.
std::map<std::string, std::string> FilesOf(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    std::string& content = files[entry.path().lexically_relative(folder)];
    if (entry.is_directory()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    content.assign(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

std::string EmptyFolder(const std::string& name) {
  const std::string folder = StrCat(::testing::TempDir(), "/multi_worker_", name, getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

TEST(MultiWorker, SavesTheSameFilesWhetherAllSaveOrTheChiefAlone) {
  TwoWorkers two;
  for (const Status& status : two.All([](Worker& worker) { return worker.Fit(); })) {
    ASSERT_TRUE(status.ok()) << status;
  }
  for (const WeightsFormat format : {WeightsFormat::kObjects, WeightsFormat::kNames}) {
    const std::string all = EmptyFolder("all"), one = EmptyFolder("one");
    for (const Status& status :
         two.All([&](Worker& worker) { return worker.model().SaveWeights(all + "/m", format); })) {
      ASSERT_TRUE(status.ok()) << status;
    }
    ASSERT_TRUE(two.worker(0).model().SaveWeights(one + "/m", format).ok());
    EXPECT_EQ(FilesOf(all).size(), 2u);
    EXPECT_EQ(FilesOf(all), FilesOf(one)) << "and no folder of the other worker";
    // Nor after a failure, and the chief's files stay as they are.
    const std::string blocked = one + "/workertemp_1";
    std::ofstream(blocked) << "a file";
    EXPECT_FALSE(two.worker(1).model().SaveWeights(one + "/m", format).ok());
    EXPECT_FALSE(std::filesystem::exists(blocked));
    EXPECT_EQ(FilesOf(all), FilesOf(one));
  }
}

TEST(MultiWorker, TheChiefsCheckpointsOfFitStay) {
  for (const bool weights : {false, true}) {
    for (const bool asynchronous : {false, true}) {
      TwoWorkers two;
      const std::string folder = EmptyFolder("fit");
      for (const Status& status : two.All([&](Worker& worker) {
             ModelCheckpoint checkpoint({.filepath = folder + "/m{epoch}",
                                         .save_weights_only = weights,
                                         .asynchronous = asynchronous});
             return worker.model()
                 .Fit(Samples(), Targets(),
                      {.batch_size = 8,
                       .epochs = 2,
                       .shuffle = false,
                       .callbacks = {&checkpoint},
                       .verbose = Verbose::kSilent})
                 .status();
           })) {
        ASSERT_TRUE(status.ok()) << status;
      }
      // Of weights the chief's alone; of the whole state each worker's, the other's in a folder.
      EXPECT_EQ(FilesOf(folder).size(), weights ? 4u : 9u);
      ASSERT_TRUE(two.worker(1).model().LoadWeights(folder + "/m2").ok());
      two.ExpectEqualWeights();
    }
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
