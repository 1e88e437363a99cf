// SPDX-License-Identifier: Apache-2.0
// Which part of a data set a worker reads, against TensorFlow's strategies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "data/pipeline/sharding.h"
#include "millrace/data.h"
#include "millrace/ops.h"
#include "tests/data/element_text.h"

namespace millrace {
namespace {

using Json = nlohmann::json;
using Outputs = std::vector<Output>;
using Element = std::span<const Output>;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json Load(const std::string& name) {
  const char* folder = std::getenv("MILLRACE_GOLDENS");
  std::ifstream file(
      StrCat(folder == nullptr ? "tests/goldens/training" : folder, "/strategies/", name));
  return Json::parse(file);
}

std::string Folder() {
  const char* folder = std::getenv("TEST_TMPDIR");
  return folder == nullptr ? "/tmp" : folder;
}

// Lines with numbers that count on from file to file, in place of the records of the recording.
std::vector<std::string> WriteFiles(const Json& sizes) {
  std::vector<std::string> paths;
  int number = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    paths.push_back(StrCat(Folder(), "/shard_", sizes.size(), "_", i, ".txt"));
    std::ofstream file(paths.back());
    for (int k = 0; k < sizes[i].get<int>(); ++k) file << number++ << "\n";
  }
  return paths;
}

Outputs Parse(const Scope& s, Element line) {
  return {ops::StringToNumber(s, line[0], {.out_type = kInt64})};
}

// A reader of one file, named by an element.
Dataset Reader(const Scope&, Element file) { return Dataset::TextLines(file[0]); }

Dataset Pipeline(const std::string& name, const Json& sizes) {
  if (name == "range")
    return Dataset::Range(11)
        .Map([](const Scope& s, Element x) -> Outputs { return {ops::Identity(s, x[0])}; })
        .Batch(2);
  const std::vector<std::string> files = WriteFiles(sizes);
  if (name == "shard_placeholder") {
    return Dataset::TextLines(files).Shard(kShardHint, kShardHint).Map(Parse).Batch(2);
  }
  if (name == "tfrecord") return Dataset::TextLines(files).Map(Parse).Batch(2);
  if (name == "tfrecord_prefetch_repeat") {
    return Dataset::TextLines(files).Map(Parse).Repeat(2).Batch(2).Prefetch(1);
  }
  if (name == "list_files_interleave") {
    const std::string pattern = StrCat(Folder(), "/shard_", sizes.size(), "_*.txt");
    return Dataset::ListFiles(pattern, {.shuffle = false})
        .Interleave(Reader, {.cycle_length = 2, .block_length = 1})
        .Map(Parse)
        .Batch(2);
  }
  const Tensor names =
      Tensor::FromValues<std::string>(files, Shape({static_cast<int64_t>(files.size())}));
  return Dataset::FromTensorSlices({names})
      .Interleave([](const Scope& s, Element file) { return Reader(s, file).Map(Parse); },
                  {.cycle_length = 3, .block_length = 2})
      .Batch(3);
}

AutoShard PolicyOf(const std::string& name) {
  if (name == "FILE") return AutoShard::kFile;
  if (name == "DATA") return AutoShard::kData;
  if (name == "HINT") return AutoShard::kHint;
  return name == "AUTO" ? AutoShard::kAuto : AutoShard::kOff;
}

// The batches, or the error, as the recording has them.
void CheckWorker(const StatusOr<ShardedDataset>& sharded, const Json& want,
                 const std::string& where) {
  Status status = sharded.status();
  std::vector<std::vector<int64_t>> batches;
  if (status.ok()) {
    StatusOr<DatasetReader> reader = DatasetReader::Create(sharded->dataset);
    ASSERT_TRUE(reader.ok()) << where << ": " << reader.status();
    const auto all = reader->ReadAll();
    status = all.status();
    if (all.ok()) {
      for (const std::vector<Tensor>& element : *all) {
        const auto flat = element[0].flat<int64_t>();
        batches.emplace_back(flat.begin(), flat.end());
      }
    }
  }
  if (want.is_array()) {
    ASSERT_TRUE(status.ok()) << where << ": " << status;
    EXPECT_EQ(batches, want.get<std::vector<std::vector<int64_t>>>()) << where;
    return;
  }
  EXPECT_EQ(static_cast<int>(status.code()), want["error_code"].get<int>()) << where;
  EXPECT_THAT(std::string(status.message()), HasSubstr(want["message"].get<std::string>()))
      << where;
}

TEST(ShardingTest, WorkersReadWhatTheyDoInTensorFlow) {
  const Json golden = Load("auto_shard.json");
  int checked = 0;
  for (const Json& c : golden["cases"]) {
    const std::string name = c["pipeline"];
    const Dataset dataset = Pipeline(name, c["files"]);
    ASSERT_TRUE(dataset.status().ok()) << name << ": " << dataset.status();
    const int64_t workers = c["workers"];
    for (int64_t w = 0; w < workers; ++w) {
      CheckWorker(ShardForWorker(dataset, PolicyOf(c["policy"]), workers, w),
                  c["batches_per_worker"][w],
                  StrCat(name, " ", c["policy"].get<std::string>(), " worker ", w, " of ", workers,
                         " files ", c["files"].dump()));
    }
    ++checked;
  }
  EXPECT_EQ(checked, 240);
}

TEST(ShardingTest, AutoSaysWhyItDealsOutElements) {
  const auto sharded = ShardForWorker(Dataset::Range(10).Batch(2), AutoShard::kAuto, 2, 0);
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  EXPECT_EQ(sharded->policy, AutoShard::kData);
  EXPECT_THAT(sharded->reason, HasSubstr("Found an unshardable source dataset: Range(0, 10, 1)"));
  EXPECT_FALSE(ShardForWorker(Dataset::Range(10), AutoShard::kAuto, 2, 2).ok());
}

TEST(ShardingTest, HintsMustBeThereWhereTheyAreAskedFor) {
  const Dataset none = Dataset::Range(10).Batch(2);
  const auto sharded = ShardForWorker(none, AutoShard::kHint, 2, 0);
  EXPECT_THAT(std::string(sharded.status().message()), HasSubstr("no Shard(kShardHint"));
}

TEST(ShardingTest, ShufflesOfFileNamesComeAfterTheShard) {
  const std::vector<std::string> files = WriteFiles(Json::array({1, 1, 1, 1}));
  const Tensor names = Tensor::FromValues<std::string>(files, Shape({4}));
  const Dataset lines = Dataset::FromTensorSlices({names}).Shuffle(4, {.seed = 1}).FlatMap(Reader);
  const auto sharded = ShardForWorker(lines, AutoShard::kFile, 2, 1);
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  std::vector<std::string> texts = testing::TextsOf(sharded->dataset);
  EXPECT_THAT(texts, ::testing::UnorderedElementsAre("string[] 1", "string[] 3"));
}

TEST(ShardingTest, BatchesAreSplitAsInTensorFlow) {
  const Json golden = Load("batch_splitting.json");
  for (const Json& c : golden["batch_sizes_for_worker"]) {
    for (std::size_t w = 0; w < c["per_worker"].size(); ++w) {
      const std::vector<int64_t> replicas(c["workers"].get<std::size_t>(),
                                          c["replicas_per_worker"].get<int64_t>());
      EXPECT_EQ(BatchSizesForWorker(c["global_batch"], replicas, static_cast<int64_t>(w)),
                c["per_worker"][w].get<std::vector<int64_t>>())
          << c.dump();
    }
  }
  for (const Json& c : golden["distributed_dataset"]) {
    for (const Json& step : c["steps"]) {
      std::vector<int64_t> sizes;
      int64_t records = 0;
      for (const Json& replica : step) {
        sizes.push_back(static_cast<int64_t>(replica.size()));
        records += sizes.back();
      }
      EXPECT_EQ(RecordsPerReplica(records, c["replicas"]), sizes) << c.dump();
    }
  }
}

}  // namespace
}  // namespace millrace
