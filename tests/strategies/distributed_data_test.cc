// SPDX-License-Identifier: Apache-2.0
// Who gets which rows: against what TensorFlow's strategies recorded, and by a ledger of all rows
// that all workers have seen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <thread>

#include "base/strings.h"
#include "millrace/millrace.h"
#include "tests/training_goldens/golden.h"

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int64_t>;
using Step = std::vector<Ids>;  // by replica
using Make = std::function<DistributedIterator(const Scope& scope, Strategy& strategy)>;

// Reads so many epochs of a data set of one int64 component.
StatusOr<std::vector<std::vector<Step>>> ReadEpochs(Strategy& strategy, const Make& make,
                                                    int epochs) {
  Graph graph;
  const DistributedIterator data = make(graph.root(), strategy);
  if (!graph.status().ok()) return graph.status();
  SessionOptions options;
  if (Status s = strategy.ConfigureSession(&options); !s.ok()) return s;
  auto session = Session::Create(graph, options);
  if (!session.ok()) return session.status();
  std::vector<std::vector<Step>> read;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    if (Status s = session->RunTargets({data.initializer}); !s.ok()) return s;
    std::vector<Step>& steps = read.emplace_back();
    for (;;) {
      const Output more[] = {data.more};
      const Operation take[] = {data.take};
      const auto left = session->Run({}, more, take);
      if (!left.ok()) return left.status();
      if (left->at(0).scalar<float>() == 0) break;
      const auto got = session->Run({}, data.next[0].values);
      if (!got.ok()) return got.status();
      Step& step = steps.emplace_back();
      for (const Tensor& rows : *got) {
        const auto flat = rows.flat<int64_t>();
        step.emplace_back(flat.begin(), flat.end());
      }
    }
  }
  return read;
}

std::string StepsDifference(const StatusOr<std::vector<std::vector<Step>>>& got, const Json& want) {
  if (!got.ok()) return got.status().ToString();
  return got->at(0) == want.get<std::vector<Step>>() ? "" : "other rows";
}

TEST(BatchSplittingGolden, ReplicasGetTheRowsThatTensorFlowsDo) {
  const Json golden = LoadGolden("strategies/batch_splitting.json");
  Tally tally("strategies/batch_splitting distributed_dataset");
  for (const Json& c : golden["distributed_dataset"]) {
    const auto strategy = MirroredStrategy({.replicas = c["replicas"].get<int>()}).value();
    const Dataset batches = Dataset::Range(c["records"].get<int64_t>())
                                .Batch(c["global_batch"].get<int64_t>(),
                                       {.drop_remainder = c["drop_remainder"].get<bool>()});
    const auto make = [&](const Scope& scope, Strategy& s) {
      return MakeDistributedIterator(scope, s, batches);
    };
    tally.Add(StrCat(c["replicas"].dump(), " replicas ", c["records"].dump(), " records ",
                     c["global_batch"].dump()),
              StepsDifference(ReadEpochs(*strategy, make, 1), c["steps"]));
  }
}

TEST(BatchSplittingGolden, FunctionsGiveEachReplicaABatchOfItsOwn) {
  const Json golden = LoadGolden("strategies/batch_splitting.json");
  Tally tally("strategies/batch_splitting from_function");
  for (const Json& c : golden["from_function"]) {
    const auto strategy = MirroredStrategy({.replicas = c["replicas"].get<int>()}).value();
    const auto dataset = [&](const InputContext&) {
      return Dataset::Range(c["records"].get<int64_t>())
          .Batch(c["per_replica_batch"].get<int64_t>());
    };
    const auto make = [&](const Scope& scope, Strategy& s) {
      return MakeDistributedIterator(scope, s, dataset);
    };
    tally.Add(c.dump().substr(0, 60), StepsDifference(ReadEpochs(*strategy, make, 1), c["steps"]));
  }
}

TEST(InputContext, DividesTheGlobalBatch) {
  const InputContext context{.num_replicas_in_sync = 4};
  EXPECT_EQ(context.PerReplicaBatchSize(12).value(), 3);
  EXPECT_THAT(context.PerReplicaBatchSize(10).status().ToString(),
              HasSubstr("The `global_batch_size` 10 is not divisible by `num_replicas_in_sync` 4"));
}

TEST(DistributedData, NeedsBatches) {
  const auto strategy = MirroredStrategy({.replicas = 2}).value();
  Graph graph;
  (void)MakeDistributedIterator(graph.root(), *strategy, Dataset::Range(4));
  EXPECT_THAT(graph.status().ToString(), HasSubstr("Call the `batch` method on the input Dataset"));
}

constexpr int64_t kRows = 23, kBatch = 7;
constexpr int kEpochs = 2;

// Files of 1, 2, 3, ... rows, which count on.
std::vector<std::string> WriteFiles(const std::string& name) {
  std::vector<std::string> paths;
  int64_t next = 0;
  for (int64_t size = 1; next < kRows; ++size) {
    paths.push_back(StrCat(::testing::TempDir(), "/", name, "_", size, ".txt"));
    std::ofstream file(paths.back());
    for (int64_t i = 0; i < size && next < kRows; ++i) file << next++ << "\n";
  }
  return paths;
}

Dataset Numbers(const Dataset& lines) {
  return lines.Map([](const Scope& s, std::span<const Output> line) -> std::vector<Output> {
    return {ops::StringToNumber(s, line[0], {.out_type = kInt64})};
  });
}

struct Reading {
  std::string name;
  Dataset batches;
  int times_each = 1;  // 0: as often as there are workers
};

std::vector<Reading> Readings(const std::string& files) {
  const Dataset rows = Dataset::Range(kRows);
  const std::vector<std::string> paths = WriteFiles(files);
  const Dataset names = Dataset::FromTensorSlices(
      {Tensor::FromValues<std::string>(paths, Shape({static_cast<int64_t>(paths.size())}))});
  const Dataset read = Numbers(names.Shuffle(100).Interleave(
      [](const Scope&, std::span<const Output> file) { return Dataset::TextLines(file[0]); },
      {.cycle_length = 2}));
  return {
      {"dealt out", rows.Batch(kBatch)},
      // Without a seed: workers must draw the same order all the same.
      {"shuffled and dealt out", rows.Shuffle(kRows).Batch(kBatch)},
      {"dealt out on request", read.Batch(kBatch).WithOptions({.auto_shard = AutoShard::kData}), 1},
      {"by files", Numbers(Dataset::TextLines(paths)).Batch(kBatch)},
      {"by shuffled files", read.Shuffle(5).Batch(kBatch).Prefetch(2)},
      {"batches of batches", read.Batch(kBatch).Unbatch().Batch(2)},
      {"dropping the remainder", rows.Batch(kBatch, {.drop_remainder = true}), -1},
      {"everything", rows.Batch(kBatch).WithOptions({.auto_shard = AutoShard::kOff}), 0}};
}

// How many replicas each worker has.
using Cluster = std::vector<int>;

class Ledger : public ::testing::TestWithParam<Cluster> {
 protected:
  using Read = StatusOr<std::vector<std::vector<Step>>>;

  // What each worker has seen.
  std::vector<Read> ReadByAll(const Dataset& batches) {
    const Cluster& replicas = GetParam();
    const int workers = static_cast<int>(replicas.size());
    const int most = *std::max_element(replicas.begin(), replicas.end());
    const auto cluster =
        LocalCluster::Start({.workers = workers, .server = {.num_cpu_devices = most}}).value();
    std::vector<Read> all(replicas.size(), std::vector<std::vector<Step>>());
    std::vector<std::thread> threads;
    for (int task = 0; task < workers; ++task) {
      threads.emplace_back([&, task] {
        const auto strategy = MultiWorkerMirroredStrategy(
            {.replicas = replicas[static_cast<std::size_t>(task)],
             .task = {.cluster = cluster->spec(), .job_name = "worker", .task_index = task},
             .target = cluster->target("worker", task),
             .communication = {.timeout_seconds = 60}});
        all[static_cast<std::size_t>(task)] =
            !strategy.ok() ? Read(strategy.status())
                           : ReadEpochs(
                                 **strategy,
                                 [&](const Scope& scope, Strategy& s) {
                                   return MakeDistributedIterator(scope, s, batches);
                                 },
                                 kEpochs);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return all;
  }
};

TEST_P(Ledger, HasEveryRowOnceInEveryEpoch) {
  const Cluster& replicas = GetParam();
  const int workers = static_cast<int>(replicas.size());
  for (const Reading& reading : Readings(StrCat("ledger_", StrJoin(replicas, "_")))) {
    SCOPED_TRACE(reading.name);
    const std::vector<Read> all = ReadByAll(reading.batches);
    for (const Read& read : all) ASSERT_TRUE(read.ok()) << read.status();
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      SCOPED_TRACE(StrCat("epoch ", epoch));
      const auto e = static_cast<std::size_t>(epoch);
      std::map<int64_t, int> seen;
      int64_t rows = 0;
      for (const Read& read : all) {
        // All workers make the same number of steps, whatever is left for each.
        ASSERT_EQ(read->at(e).size(), all[0]->at(e).size());
        const std::size_t worker = static_cast<std::size_t>(&read - all.data());
        for (const Step& step : read->at(e)) {
          ASSERT_EQ(step.size(), static_cast<std::size_t>(replicas[worker]));
          for (const Ids& ids : step) {
            rows += static_cast<int64_t>(ids.size());
            for (const int64_t id : ids) ++seen[id];
          }
        }
      }
      const int64_t whole = reading.times_each < 0 ? kRows / kBatch * kBatch : kRows;
      const int times = reading.times_each == 0 ? workers : 1;
      EXPECT_EQ(rows, whole * times);
      EXPECT_EQ(static_cast<int64_t>(seen.size()), whole);
      for (const auto& [id, count] : seen) EXPECT_EQ(count, times) << "row " << id;
    }
  }
}

TEST_P(Ledger, GlobalBatchesThatAreDealtOutAreThoseOfOneWorker) {
  const std::vector<Read> all = ReadByAll(Dataset::Range(kRows).Batch(kBatch));
  for (const Read& read : all) ASSERT_TRUE(read.ok()) << read.status();
  for (std::size_t step = 0; step < all[0]->at(0).size(); ++step) {
    Ids ids;
    for (const Read& read : all) {
      for (const Ids& own : read->at(0).at(step)) ids.insert(ids.end(), own.begin(), own.end());
    }
    std::sort(ids.begin(), ids.end());
    Ids want;
    const auto first = static_cast<int64_t>(step) * kBatch;
    for (int64_t id = first; id < std::min(kRows, first + kBatch); ++id) want.push_back(id);
    EXPECT_EQ(ids, want) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Clusters, Ledger,
                         ::testing::Values(Cluster{1, 1}, Cluster{2, 2}, Cluster{1, 1, 1},
                                           Cluster{2, 2, 2}, Cluster{2, 1}, Cluster{1, 3, 2}),
                         [](const auto& info) {
                           return StrCat("replicas_", StrJoin(info.param, "_"));
                         });

TEST(DistributedData, WorkersThatReadEverythingTakeTurnsWithTheLargerBatches) {
  const auto cluster =
      LocalCluster::Start({.workers = 2, .server = {.num_cpu_devices = 2}}).value();
  std::vector<std::vector<std::vector<Step>>> all(2);
  std::vector<std::thread> threads;
  for (int task = 0; task < 2; ++task) {
    threads.emplace_back([&, task] {
      const auto strategy =
          MultiWorkerMirroredStrategy(
              {.replicas = 2,
               .task = {.cluster = cluster->spec(), .job_name = "worker", .task_index = task},
               .target = cluster->target("worker", task)})
              .value();
      const Dataset batches =
          Dataset::Range(14).Batch(7).WithOptions({.auto_shard = AutoShard::kOff});
      const auto make = [&](const Scope& scope, Strategy& s) {
        return MakeDistributedIterator(scope, s, batches);
      };
      const auto read = ReadEpochs(*strategy, make, 1);
      if (read.ok()) all[static_cast<std::size_t>(task)] = *read;
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(all[0].size() == 1 && all[1].size() == 1);
  // Of 7 rows 2, 2, 2 and 1, and for the other worker 2, 1, 2 and 2.
  EXPECT_EQ(all[0][0], (std::vector<Step>{
                           {{0, 1}, {2, 3}}, {{4, 5}, {6}}, {{7, 8}, {9, 10}}, {{11, 12}, {13}}}));
  EXPECT_EQ(all[1][0], (std::vector<Step>{
                           {{0, 1}, {2}}, {{3, 4}, {5, 6}}, {{7, 8}, {9}}, {{10, 11}, {12, 13}}}));
}

}  // namespace
}  // namespace millrace::testing
