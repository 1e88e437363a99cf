// SPDX-License-Identifier: Apache-2.0
// What data sets give, element by element and walk by walk, against what tf.data gives.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "millrace/data.h"
#include "millrace/ops.h"
#include "tests/data/element_text.h"

namespace millrace {
namespace {

using Json = nlohmann::json;
using Outputs = std::vector<Output>;
using Element = std::span<const Output>;

std::string Golden(const std::string& name) { return StrCat("tests/goldens/data/", name); }

Dataset Range(int64_t n) { return Dataset::Range(n); }

Outputs SquarePlusOne(const Scope& s, Element x) {
  return {ops::AddV2(s, ops::Mul(s, x[0], x[0]), int64_t{1})};
}
Outputs SelfAndHalf(const Scope& s, Element x) {
  return {x[0], ops::Div(s, ops::Cast(s, x[0], kFloat), 2.0f)};
}
// x times x.
Outputs Ragged(const Scope& s, Element x) {
  return {ops::Fill(s, ops::Reshape(s, ops::Cast(s, x[0], kInt32), {1}), x[0])};
}
Dataset Itself(const Scope&, Element x) { return Dataset::FromOutputs({x[0]}); }
// x, x times.
Dataset Repeated(const Scope& s, Element x) {
  const Output row = ops::Fill(s, ops::Reshape(s, ops::Cast(s, x[0], kInt32), {1}), x[0]);
  return Dataset::FromOutputSlices({row});
}
Dataset UpTo(const Scope& s, Element x) {
  return Dataset::FromOutputSlices({ops::Range(s, int64_t{0}, x[0], int64_t{1})});
}

Tensor Longs(const std::vector<int64_t>& values, const Shape& shape) {
  return Tensor::FromValues<int64_t>(values, shape);
}

Dataset MnistLike() {
  std::vector<int64_t> images(40), labels(10);
  for (int i = 0; i < 40; ++i) images[i] = i;
  for (int i = 0; i < 10; ++i) labels[i] = i;
  return Dataset::FromTensorSlices({Longs(images, {10, 4}), Longs(labels, {10})})
      .Shuffle(10, {.seed = 1})
      .Repeat(2)
      .Batch(4)
      .Prefetch(1);
}

std::map<std::string, Dataset> OrderCases() {
  return {
      {"range", Range(5)},
      {"range_down", Dataset::Range(10, 3, -3)},
      {"range_empty", Dataset::Range(3, 3)},
      {"tensors",
       Dataset::FromTensors({Tensor::FromValues<int32_t>({1, 2}), Tensor::Scalar(3.5f)})},
      {"slices", Dataset::FromTensorSlices({Tensor::FromValues<int32_t>({1, 2, 3, 4, 5, 6}, {3, 2}),
                                            Tensor::FromValues<std::string>({"a", "b", "c"})})},
      {"batch", Range(7).Batch(3)},
      {"batch_drop", Range(7).Batch(3, {.drop_remainder = true})},
      {"batch_of_batch", Range(10).Batch(2).Batch(2)},
      {"unbatch", Range(7).Batch(3).Unbatch()},
      {"repeat", Range(3).Repeat(2)},
      {"repeat_zero", Range(3).Repeat(0)},
      {"repeat_take", Range(3).Repeat().Take(7)},
      {"take_skip", Range(10).Skip(2).Take(5)},
      {"take_all", Range(4).Take(-1)},
      {"skip_all", Range(4).Skip(-1)},
      {"shard", Range(10).Shard(3, 1)},
      {"zip", Dataset::Zip({Range(4), Dataset::Range(10, 13)})},
      {"concatenate", Range(3).Concatenate(Dataset::Range(7, 9))},
      {"concatenate_shapes", Range(4)
                                 .Batch(2, {.drop_remainder = true})
                                 .Concatenate(Range(3).Batch(3, {.drop_remainder = true}))},
      {"enumerate", Range(3).Enumerate(5)},
      {"shuffle", Range(10).Shuffle(4, {.seed = 7})},
      {"shuffle_fixed", Range(10).Shuffle(4, {.seed = 7, .reshuffle_each_iteration = false})},
      {"shuffle_large_buffer", Range(10).Shuffle(100, {.seed = 3})},
      {"shuffle_one", Range(5).Shuffle(1, {.seed = 3})},
      {"shuffle_repeat", Range(6).Shuffle(4, {.seed = 7}).Repeat(3)},
      {"repeat_shuffle", Range(6).Repeat(3).Shuffle(4, {.seed = 7})},
      {"shuffle_batch_repeat", Range(10).Shuffle(5, {.seed = 11}).Batch(4).Repeat(2)},
      {"shuffle_repeat_batch", Range(5).Shuffle(5, {.seed = 3}).Repeat(2).Batch(4)},
      {"shuffle_prefetch_repeat", Range(5).Shuffle(5, {.seed = 3}).Prefetch(1).Repeat(2)},
      {"shuffle_repeat_take", Range(5).Shuffle(5, {.seed = 3}).Batch(2).Repeat().Take(7)},
      {"shuffle_twice", Range(10).Shuffle(3, {.seed = 1}).Shuffle(3, {.seed = 2})},
      {"zip_shuffles",
       Dataset::Zip({Range(6).Shuffle(6, {.seed = 1}), Range(6).Shuffle(6, {.seed = 2})})},
      {"cache_shuffle", Range(8).Cache().Shuffle(8, {.seed = 5})},
      {"shuffle_cache", Range(8).Shuffle(8, {.seed = 5}).Cache()},
      {"prefetch", Range(6).Prefetch(2)},
      {"window", Range(7).Window(3)},
      {"window_shift", Range(7).Window(3, {.shift = 1})},
      {"window_stride", Range(7).Window(2, {.shift = 2, .stride = 3})},
      {"window_drop", Range(7).Window(3, {.shift = 2, .drop_remainder = true})},
      {"mnist_like", MnistLike()},
  };
}

std::map<std::string, Dataset> FunctionCases() {
  const auto rows = [](const Scope&, Element x) { return Dataset::FromOutputSlices({x[0]}); };
  const auto six_times = [](const Scope& s, Element x) { return Itself(s, x).Repeat(6); };
  return {
      {"map", Range(5).Map(SquarePlusOne)},
      {"map_two", Range(5).Map(SelfAndHalf)},
      {"map_parallel", Range(20).Map(SquarePlusOne, {.num_parallel = 4})},
      {"map_batch", Range(7).Map(SquarePlusOne).Batch(4)},
      {"filter", Range(10).Filter([](const Scope& s, Element x) -> Output {
         return ops::Equal(s, ops::FloorMod(s, x[0], int64_t{3}), int64_t{0});
       })},
      {"take_while", Range(10).TakeWhile([](const Scope& s, Element x) -> Output {
         return ops::Less(s, x[0], int64_t{4});
       })},
      {"flat_map", Range(5).FlatMap(UpTo)},
      {"flat_map_rows", Range(6).Batch(3).FlatMap(rows)},
      {"interleave",
       Dataset::Range(1, 5).Interleave(six_times, {.cycle_length = 2, .block_length = 4})},
      {"interleave_uneven", Range(6).Interleave(Repeated, {.cycle_length = 3, .block_length = 1})},
      {"interleave_blocks", Range(6).Interleave(Repeated, {.cycle_length = 2, .block_length = 2})},
      {"interleave_parallel",
       Range(6).Interleave(Repeated, {.cycle_length = 3, .block_length = 2, .num_parallel = 2})},
      {"padded_batch", Dataset::Range(1, 6).Map(Ragged).PaddedBatch(2)},
      {"padded_batch_to",
       Dataset::Range(1, 6).Map(Ragged).PaddedBatch(2, {.shapes = {PartialShape({6})},
                                                        .values = {Tensor::Scalar<int64_t>(-1)},
                                                        .drop_remainder = true})},
  };
}

std::map<std::string, Dataset> FileCases() {
  const std::vector<std::string> table = {Golden("table.csv")};
  return {
      {"text_lines", Dataset::TextLines({Golden("a.txt"), Golden("b.txt")})},
      {"records", Dataset::TfRecords({Golden("two.tfrecord")})},
      {"records_packed",
       Dataset::TfRecords({Golden("packed.tfrecord.gz")}, {.compression = "GZIP"})},
      {"blocks",
       Dataset::FixedLength({Golden("blocks.bin")}, 3, {.header_bytes = 2, .footer_bytes = 1})},
      {"csv", Dataset::Csv(table,
                           {Tensor(kInt32, {0}), Tensor::FromValues<std::string>({"none"}),
                            Tensor::FromValues<float>({-1.0f})},
                           {.header = true})},
      {"csv_columns",
       Dataset::Csv(table, {Tensor::FromValues<float>({0.0f})}, {.header = true, .columns = {2}})},
  };
}

std::string ShapeText(const PartialShape& shape) {
  if (!shape.has_rank()) return "?";
  std::string text;
  for (int i = 0; i < shape.rank(); ++i) {
    StrAppend(&text, i == 0 ? "" : ",", shape.dim(i) < 0 ? "?" : std::to_string(shape.dim(i)));
  }
  return text;
}

// Ours may know more of a shape.
bool Refines(const std::string& ours, const std::string& theirs) {
  if (theirs == "?") return true;
  const std::vector<std::string_view> a = StrSplit(ours, ','), b = StrSplit(theirs, ',');
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (b[i] != "?" && a[i] != b[i]) return false;
  }
  return true;
}

class SequencesTest : public ::testing::Test {
 protected:
  SequencesTest() {
    std::ifstream file(Golden("sequences.json"));
    file >> golden_;
  }

  void Check(const std::string& name, const Dataset& dataset) {
    ASSERT_TRUE(golden_.contains(name)) << name;
    const Json& want = golden_[name];
    ASSERT_TRUE(dataset.status().ok()) << name << ": " << dataset.status();
    if (want["cardinality"] != Dataset::kUnknown) {
      EXPECT_EQ(dataset.cardinality(), want["cardinality"].get<int64_t>()) << name;
    }
    ASSERT_EQ(dataset.shapes().size(), want["shapes"].size()) << name;
    for (std::size_t i = 0; i < dataset.shapes().size(); ++i) {
      EXPECT_TRUE(Refines(ShapeText(dataset.shapes()[i]), want["shapes"][i].get<std::string>()))
          << name << " " << i << ": " << dataset.shapes()[i].DebugString();
    }
    StatusOr<DatasetReader> reader = DatasetReader::Create(dataset);
    ASSERT_TRUE(reader.ok()) << name << ": " << reader.status();
    for (const Json& walk : want["walks"]) {
      EXPECT_EQ(testing::TextsOf(*reader), walk.get<std::vector<std::string>>())
          << name << ": " << dataset.DebugString();
      const Status again = reader->Restart();
      ASSERT_TRUE(again.ok()) << name << ": " << again;
    }
    ++checked_;
  }

  Json golden_;
  int checked_ = 0;
};

TEST_F(SequencesTest, OrderAndBatchesAreThoseOfTensorFlow) {
  for (const auto& [name, dataset] : OrderCases()) Check(name, dataset);
}

TEST_F(SequencesTest, FunctionsSeeWhatTheyDoInTensorFlow) {
  for (const auto& [name, dataset] : FunctionCases()) Check(name, dataset);
}

TEST_F(SequencesTest, FilesAreReadAsInTensorFlow) {
  for (const auto& [name, dataset] : FileCases()) Check(name, dataset);
}

TEST_F(SequencesTest, EveryRecordedCaseIsChecked) {
  std::map<std::string, Dataset> all = OrderCases();
  all.merge(FunctionCases());
  all.merge(FileCases());
  for (const auto& [name, want] : golden_.items()) {
    EXPECT_TRUE(all.contains(name) || name == "shuffle_graph_seed") << name;
  }
}

TEST_F(SequencesTest, TheSeedOfTheGraphCounts) {
  Graph graph;
  graph.SetSeed(42);
  const DatasetIterator it = MakeIterator(graph.root(), Range(10).Shuffle(4, {.seed = 7}));
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  for (const Json& walk : golden_["shuffle_graph_seed"]["walks"]) {
    ASSERT_TRUE(session->RunTargets({it.initializer}).ok());
    std::vector<std::string> got;
    for (std::size_t i = 0; i < walk.size(); ++i) {
      const StatusOr<Tensor> next = session->Eval(it.next[0]);
      ASSERT_TRUE(next.ok()) << next.status();
      got.push_back(testing::TextOf(*next));
    }
    EXPECT_EQ(got, walk.get<std::vector<std::string>>());
  }
}

}  // namespace
}  // namespace millrace
