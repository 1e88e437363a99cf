// SPDX-License-Identifier: Apache-2.0
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
#include <tuple>

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
    // Each waits for the other.
    workers_.resize(kWorkers);
    std::vector<std::thread> threads;
    for (int task = 0; task < kWorkers; ++task) {
      threads.emplace_back([&, task] {
        workers_[static_cast<std::size_t>(task)] =
            std::make_unique<Worker>(*cluster_, task, communication);
      });
    }
    for (std::thread& thread : threads) thread.join();
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

// A strategy of each of so many workers, each with so many replicas, made at once, and what `use`
// makes of it.
template <typename Result, typename F>
std::vector<StatusOr<Result>> WithWorkers(const std::vector<StrategyOptions>& options,
                                          const F& use) {
  int devices = 1;
  for (const StrategyOptions& o : options) devices = std::max(devices, o.replicas);
  const int workers = static_cast<int>(options.size());
  const auto cluster =
      LocalCluster::Start({.workers = workers, .server = {.num_cpu_devices = devices}}).value();
  std::vector<StatusOr<Result>> all(options.size(), Result());
  std::vector<std::thread> threads;
  for (int task = 0; task < workers; ++task) {
    threads.emplace_back([&, task] {
      const auto i = static_cast<std::size_t>(task);
      StrategyOptions own = options[i];
      own.task = {.cluster = cluster->spec(), .job_name = "worker", .task_index = task};
      own.target = cluster->target("worker", task);
      const auto strategy = MakeStrategy("multi_worker_mirrored", own);
      all[i] = strategy.ok() ? use(*strategy) : StatusOr<Result>(strategy.status());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

// Each with so many replicas.
std::vector<StrategyOptions> WithReplicas(const std::vector<int>& replicas) {
  std::vector<StrategyOptions> all;
  for (const int count : replicas) {
    all.push_back({.replicas = count, .communication = {.timeout_seconds = 30}});
  }
  return all;
}

using Values = std::vector<Tensor>;
using MakeValues = std::function<std::vector<Output>(Strategy& strategy, const Scope& scope)>;

// Runs `make` in a graph of each worker: what its outputs are.
std::vector<StatusOr<Values>> Evaluate(const std::vector<int>& replicas, const MakeValues& make) {
  const auto use = [&](const std::shared_ptr<Strategy>& strategy) -> StatusOr<Values> {
    Graph graph;
    const std::vector<Output> outputs = make(*strategy, graph.root());
    MR_RETURN_IF_ERROR(graph.status());
    SessionOptions options;
    MR_RETURN_IF_ERROR(strategy->ConfigureSession(&options));
    MR_ASSIGN_OR_RETURN(Session session, Session::Create(graph, options));
    return session.Run({}, outputs);
  };
  return WithWorkers<Values>(WithReplicas(replicas), use);
}
std::vector<StatusOr<Values>> EvaluateOnBoth(int replicas, const MakeValues& make) {
  return Evaluate({replicas, replicas}, make);
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

// Replicas of worker 0 come before those of worker 1, however many each has.
TEST(UnequalWorkers, NumberTheirReplicasOneAfterTheOther) {
  struct Numbers {
    int workers, worker, replicas, local, first;
    std::string description;
  };
  const std::vector<int> replicas = {2, 1, 3};
  const auto all =
      WithWorkers<Numbers>(WithReplicas(replicas), [](const std::shared_ptr<Strategy>& s) {
        return Numbers{s->num_workers(),        s->worker(),        s->num_replicas_in_sync(),
                       s->num_local_replicas(), s->first_replica(), s->Description()};
      });
  const int first[] = {0, 2, 3};
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(all[i].ok()) << all[i].status();
    EXPECT_EQ(all[i]->workers, 3);
    EXPECT_EQ(all[i]->worker, static_cast<int>(i));
    EXPECT_EQ(all[i]->replicas, 6);
    EXPECT_EQ(all[i]->local, replicas[i]);
    EXPECT_EQ(all[i]->first, first[i]);
  }
  EXPECT_THAT(all[2]->description, HasSubstr("worker 2 of 3, replicas 3 to 5 of 6"));
}

TEST(UnequalWorkers, SumAverageAndGatherOverAllReplicas) {
  const auto make = [](Strategy& strategy, const Scope& scope) {
    const PerReplica values = strategy.ValuesOf(scope, [](const Scope& s, int replica) {
      return Constant(s, Tensor::FromValues<float>({static_cast<float>(1 << replica)}));
    });
    return std::vector{strategy.Reduce(scope, ReduceOp::kSum, values),
                       strategy.Reduce(scope, ReduceOp::kMean, values),
                       strategy.Reduce(scope, ReduceOp::kMean, values, 0),
                       strategy.Gather(scope, values)};
  };
  for (const auto& result : Evaluate({2, 1}, make)) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(TensorsEqual(result->at(0), Tensor::FromValues<float>({7})));
    EXPECT_TRUE(TensorsEqual(result->at(1), Tensor::FromValues<float>({7.0f / 3.0f})));
    EXPECT_TRUE(TensorsEqual(result->at(2), Tensor::Scalar<float>(7.0f / 3.0f)));
    EXPECT_TRUE(TensorsEqual(result->at(3), Tensor::FromValues<float>({1, 2, 4})));
  }
}

// Every row counts once, in the share of the replica that has it.
TEST(UnequalWorkers, TrainAsOneReplicaDoes) {
  const auto train = [](const std::shared_ptr<Strategy>& strategy) -> StatusOr<Values> {
    Model model(
        layers::Sequential({layers::Dense(3, {.activation = "tanh"}),
                            layers::BatchNormalization({.synchronized = true}), layers::Dense(1)}),
        {.seed = 5, .strategy = strategy});
    MR_RETURN_IF_ERROR(
        model.Compile({.optimizer = "sgd", .loss = "mse", .metrics = {"mean_absolute_error"}}));
    MR_ASSIGN_OR_RETURN(
        const History history,
        model.Fit(Samples(), Targets(),
                  {.batch_size = 7, .epochs = 3, .shuffle = false, .verbose = Verbose::kSilent}));
    MR_ASSIGN_OR_RETURN(Values values, model.GetWeights());
    for (const char* name : {"loss", "mean_absolute_error"}) {
      values.push_back(Tensor::Scalar<float>(static_cast<float>(history.values(name).back())));
    }
    return values;
  };
  const StatusOr<Values> alone = train(DefaultStrategy());
  ASSERT_TRUE(alone.ok()) << alone.status();
  const auto all = WithWorkers<Values>(WithReplicas({2, 1}), train);
  for (const auto& result : all) {
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->size(), alone->size());
    for (std::size_t i = 0; i < alone->size(); ++i) {
      const auto got = result->at(i).flat<float>(), want = alone->at(i).flat<float>();
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t k = 0; k < got.size(); ++k) {
        EXPECT_NEAR(got[k], want[k], 1e-5) << "value " << i;
      }
      EXPECT_TRUE(TensorsEqual(result->at(i), all[0]->at(i))) << "value " << i;
    }
  }
}

TEST(MultiWorker, TellsAllWhichOptionsDiffer) {
  std::vector<StrategyOptions> options = WithReplicas({1, 1, 1});
  options[2].communication = {.bytes_per_pack = 77, .compression = GradientCompression::kBfloat16};
  const auto none = [](const std::shared_ptr<Strategy>&) { return StatusOr<int>(0); };
  for (const auto& result : WithWorkers<int>(options, none)) {
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(result.status().ToString(), HasSubstr("/job:worker/replica:0/task:2"));
    EXPECT_THAT(result.status().ToString(), HasSubstr("bytes_per_pack = 77"));
    EXPECT_THAT(result.status().ToString(), HasSubstr("compression = bfloat16"));
  }
}

// What is added up over the workers of a model after a step, and what its weights are then.
struct Exchanged {
  int64_t bytes = 0;
  std::vector<DataType> types{};
  Values weights{};
};
std::vector<StatusOr<Exchanged>> TrainRounded(GradientCompression compression) {
  std::vector<StrategyOptions> options = WithReplicas({1, 1});
  for (StrategyOptions& o : options) o.communication.compression = compression;
  return WithWorkers<Exchanged>(
      options, [](const std::shared_ptr<Strategy>& strategy) -> StatusOr<Exchanged> {
        Model model(
            layers::Sequential({layers::Dense(3, {.activation = "tanh"}), layers::Dense(1)}),
            {.seed = 5, .strategy = strategy});
        MR_RETURN_IF_ERROR(
            model.Compile({.optimizer = optimizers::Sgd({.learning_rate = 0.05}), .loss = "mse"}));
        MR_RETURN_IF_ERROR(
            model
                .Fit(Samples(), Targets(),
                     {.batch_size = 12, .shuffle = false, .verbose = Verbose::kSilent})
                .status());
        Exchanged result;
        for (const Operation& op : model.graph().operations()) {
          if (op.type() != "CollectiveReduce" || !op.name().starts_with("train/")) continue;
          const Output sum = op.output(0);
          result.types.push_back(sum.dtype());
          result.bytes += sum.shape().AsShape()->num_elements() *
                          static_cast<int64_t>(DataTypeSize(sum.dtype()));
        }
        MR_ASSIGN_OR_RETURN(result.weights, model.GetWeights());
        return result;
      });
}

// Half of the bytes to the byte, the same bits everywhere, and weights as near to those of floats
// as gradients are.
TEST(MultiWorker, SendsGradientsInHalfOfTheBytesIfAsked) {
  const auto whole = TrainRounded(GradientCompression::kNone);
  ASSERT_TRUE(whole[0].ok()) << whole[0].status();
  EXPECT_THAT(whole[0]->types, ::testing::Each(kFloat));
  // Weights, and what each worker was told.
  EXPECT_EQ(whole[0]->bytes, 4 * (4 * 3 + 3 + 3 + 1 + kWorkers));
  for (const auto& [compression, type, within] :
       {std::tuple(GradientCompression::kFp16, kHalf, 1.0f / 1024),
        std::tuple(GradientCompression::kBfloat16, kBfloat16, 1.0f / 128)}) {
    const auto rounded = TrainRounded(compression);
    for (const auto& worker : rounded) {
      ASSERT_TRUE(worker.ok()) << worker.status();
      EXPECT_THAT(worker->types, ::testing::Each(type));
      EXPECT_EQ(2 * worker->bytes, whole[0]->bytes);
      bool differs = false;
      for (std::size_t i = 0; i < worker->weights.size(); ++i) {
        EXPECT_TRUE(TensorsEqual(worker->weights[i], rounded[0]->weights[i])) << i;
        const auto got = worker->weights[i].flat<float>(),
                   want = whole[0]->weights[i].flat<float>();
        for (std::size_t k = 0; k < got.size(); ++k) {
          EXPECT_NEAR(got[k], want[k], within) << i << " " << k;
          differs = differs || got[k] != want[k];
        }
      }
      EXPECT_TRUE(differs);
    }
  }
}

TEST(MultiWorker, RefusesRoundedGradientsThatShallHaveTheBitsOfOne) {
  const auto strategy = MakeStrategy(
      "mirrored",
      {.communication = {.compression = GradientCompression::kFp16}, .deterministic = true});
  EXPECT_EQ(strategy.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(strategy.status().ToString(), HasSubstr("CommunicationOptions.compression"));
}

TEST(MultiWorker, NamesTheWorkerThatDoesNotBegin) {
  // Until it has come as far as to wait for the other before it gives up.
  std::string said;
  for (std::chrono::milliseconds limit(1500); limit < std::chrono::minutes(1); limit *= 2) {
    const auto cluster = LocalCluster::Start({.workers = 2}).value();
    const auto alone = MultiWorkerMirroredStrategy(
        {.task = {.cluster = cluster->spec(), .job_name = "worker", .task_index = 0},
         .target = cluster->target("worker", 0),
         .start_timeout = limit});
    EXPECT_EQ(alone.status().code(), StatusCode::kDeadlineExceeded) << alone.status();
    said = alone.status().ToString();
    if (said.find("worker 1") != std::string::npos) break;
  }
  EXPECT_THAT(said, HasSubstr("worker 1 (/job:worker/replica:0/task:1)"));
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
