// SPDX-License-Identifier: Apache-2.0
// What feeds programs: data sets and their iterators, readers, and the places where steps meet
// and wait. Everything that waits ends with its step.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "millrace/core.h"

namespace millrace {
namespace {

const std::vector<DataType> kInts = {kInt64};
const std::vector<PartialShape> kScalars = {PartialShape({})};

Session Open(Graph& graph) {
  StatusOr<Session> session = Session::Create(graph);
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

void ExpectOk(const Status& status) { EXPECT_TRUE(status.ok()) << status; }

Output Range(const Scope& s, int64_t n) {
  return ops::RangeDataset(s, int64_t{0}, n, int64_t{1}, kInts, kScalars);
}

// A graph with one iterator over a data set of int64 elements.
struct Pipeline {
  Graph graph;
  Output handle, next;
  Operation start;

  void Iterate(const Output& dataset, const PartialShape& shape = PartialShape({})) {
    const Scope s = graph.root();
    handle = ops::IteratorV2(s, "", "", kInts, {shape});
    start = ops::MakeIterator(s, dataset, handle);
    next = ops::IteratorGetNext(s, handle, kInts, {shape})[0];
  }
};

// All elements up to the end.
std::vector<std::vector<int64_t>> Drain(Session& session, const Output& next) {
  std::vector<std::vector<int64_t>> elements;
  for (;;) {
    const auto got = session.Run({}, {next});
    if (!got.ok()) {
      EXPECT_EQ(got.status().code(), StatusCode::kOutOfRange) << got.status();
      return elements;
    }
    const auto values = (*got)[0].flat<int64_t>();
    elements.emplace_back(values.begin(), values.end());
  }
}

using Elements = std::vector<std::vector<int64_t>>;

TEST(DatasetTest, GivesBatchesAndTheRest) {
  Pipeline p;
  const Scope s = p.graph.root();
  p.Iterate(ops::BatchDatasetV2(s, Range(s, 5), int64_t{2}, false, kInts, {PartialShape({-1})}),
            PartialShape({-1}));
  Session session = Open(p.graph);
  EXPECT_EQ(session.Run({}, {p.next}).status().code(), StatusCode::kFailedPrecondition);
  ExpectOk(session.RunTargets({p.start}));
  EXPECT_EQ(Drain(session, p.next), (Elements{{0, 1}, {2, 3}, {4}}));
  ExpectOk(session.RunTargets({p.start}));
  EXPECT_EQ(Drain(session, p.next).size(), 3u);
}

TEST(DatasetTest, TakesSkipsRepeatsAndJoins) {
  Pipeline p;
  const Scope s = p.graph.root();
  const Output taken = ops::TakeDataset(s, Range(s, 9), int64_t{2}, kInts, kScalars);
  const Output skipped = ops::SkipDataset(s, Range(s, 4), int64_t{3}, kInts, kScalars);
  const Output both = ops::ConcatenateDataset(s, taken, skipped, kInts, kScalars);
  p.Iterate(ops::RepeatDataset(s, both, int64_t{2}, kInts, kScalars));
  Session session = Open(p.graph);
  ExpectOk(session.RunTargets({p.start}));
  EXPECT_EQ(Drain(session, p.next), (Elements{{0}, {1}, {3}, {0}, {1}, {3}}));
}

TEST(DatasetTest, ShufflesEveryEpochInAnotherOrderAndLosesNothing) {
  Pipeline p;
  const Scope s = p.graph.root();
  const Output shuffled =
      ops::ShuffleDataset(s, Range(s, 20), int64_t{20}, int64_t{5}, int64_t{7}, kInts, kScalars);
  p.Iterate(ops::RepeatDataset(s, shuffled, int64_t{2}, kInts, kScalars));
  Session session = Open(p.graph);
  ExpectOk(session.RunTargets({p.start}));
  Elements all = Drain(session, p.next);
  ASSERT_EQ(all.size(), 40u);
  Elements first(all.begin(), all.begin() + 20), second(all.begin() + 20, all.end());
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
  ExpectOk(session.RunTargets({p.start}));
  EXPECT_EQ(Drain(session, p.next), all);
}

TEST(DatasetTest, PadsBatchesToTheLargestElement) {
  Pipeline p;
  const Scope s = p.graph.root();
  const Output rows = ops::TensorSliceDataset(
      s, {Tensor::FromValues<int64_t>({1, 2, 3, 4}, Shape({2, 2}))}, {PartialShape({2})});
  const Output longer = ops::TensorSliceDataset(
      s, {Tensor::FromValues<int64_t>({5, 6, 7}, Shape({1, 3}))}, {PartialShape({3})});
  const std::vector<PartialShape> any = {PartialShape({-1})};
  const Output both = ops::ConcatenateDataset(s, rows, longer, kInts, any);
  p.Iterate(ops::PaddedBatchDatasetV2(s, both, int64_t{3}, {Tensor::FromValues<int64_t>({-1})},
                                      {int64_t{9}}, false, {PartialShape({-1, -1})}),
            PartialShape({-1, -1}));
  Session session = Open(p.graph);
  ExpectOk(session.RunTargets({p.start}));
  EXPECT_EQ(Drain(session, p.next), (Elements{{1, 2, 9, 3, 4, 9, 5, 6, 7}}));
}

// --- Readers ----------------------------------------------------------------------------------

std::string FileOf(const std::string& name, const std::string& content) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

struct Lines {
  Graph graph;
  Output queue, name;
  ops::ReaderReadV2Outputs read;
  Operation put, close;

  Lines() {
    const Scope s = graph.root();
    queue = ops::FIFOQueueV2(s, {kString}, {.shapes = {PartialShape({})}});
    name = ops::Placeholder(s, kString);
    put = ops::QueueEnqueueV2(s, queue, {name});
    close = ops::QueueCloseV2(s, queue);
    read = ops::ReaderReadV2(s, ops::TextLineReaderV2(s), queue);
  }
  std::string Read(Session& session) {
    const auto got = session.Run({}, {read.value});
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? (*got)[0].scalar<std::string>() : "";
  }
};

TEST(ReaderTest, GivesLinesOfOneFileAfterTheOther) {
  Lines lines;
  Session session = Open(lines.graph);
  for (const auto& path : {FileOf("a", "one\ntwo\n"), FileOf("b", ""), FileOf("c", "three")}) {
    ExpectOk(session.Run({{lines.name, Tensor::String(path)}}, {}, {lines.put}).status());
  }
  ExpectOk(session.RunTargets({lines.close}));
  EXPECT_EQ(lines.Read(session), "one");
  EXPECT_EQ(lines.Read(session), "two");
  EXPECT_EQ(lines.Read(session), "three");
  EXPECT_EQ(session.Run({}, {lines.read.value}).status().code(), StatusCode::kOutOfRange);
}

TEST(ReaderTest, WaitsForAFileUntilItsStepEnds) {
  Lines lines;
  Session session = Open(lines.graph);
  const RunOptions brief{.timeout = std::chrono::milliseconds(50)};
  const std::vector<Output> fetches = {lines.read.value};
  EXPECT_EQ(session.Run({}, fetches, {}, brief).status().code(), StatusCode::kDeadlineExceeded);
  // And goes on for the next one.
  const std::string path = FileOf("late", "line\n");
  std::string line;
  std::thread waiting([&] { line = lines.Read(session); });
  ExpectOk(session.Run({{lines.name, Tensor::String(path)}}, {}, {lines.put}).status());
  waiting.join();
  EXPECT_EQ(line, "line");
}

TEST(ReaderTest, ReportsAFileThatIsNotThere) {
  Lines lines;
  Session session = Open(lines.graph);
  ExpectOk(session.Run({{lines.name, Tensor::String("/no/such/file")}}, {}, {lines.put}).status());
  EXPECT_EQ(session.Run({}, {lines.read.value}).status().code(), StatusCode::kNotFound);
}

// --- Barriers and staging areas -----------------------------------------------------------------

TEST(BarrierTest, GivesElementsOnceTheyAreComplete) {
  Graph graph;
  const Scope s = graph.root();
  const Output barrier =
      ops::Barrier(s, {kFloat, kFloat}, {.shapes = {PartialShape({}), PartialShape({})}});
  const auto insert = [&](std::initializer_list<std::string> keys,
                          std::initializer_list<float> values, int64_t component) {
    return ops::BarrierInsertMany(s, barrier, Tensor::FromValues<std::string>(keys),
                                  Tensor::FromValues<float>(values), component);
  };
  const Operation first = insert({"a", "b"}, {1, 2}, 0), second = insert({"b"}, {20}, 1);
  const Operation fresh = insert({"c"}, {3}, 0);
  const auto take = ops::BarrierTakeMany(s, barrier, 1, {kFloat, kFloat});
  const Operation close = ops::BarrierClose(s, barrier);
  Session session = Open(graph);
  ExpectOk(session.RunTargets({first}));
  const RunOptions brief{.timeout = std::chrono::milliseconds(50)};
  const std::vector<Output> fetches = {take.keys, take.values[1]};
  EXPECT_EQ(session.Run({}, fetches, {}, brief).status().code(), StatusCode::kDeadlineExceeded);
  ExpectOk(session.RunTargets({second}));
  const auto got = session.Run({}, fetches);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].data<std::string>()[0], "b");
  EXPECT_EQ((*got)[1].data<float>()[0], 20);
  ExpectOk(session.RunTargets({close}));
  EXPECT_EQ(session.RunTargets({fresh}).code(), StatusCode::kCancelled);
}

TEST(StagingTest, HoldsBackWhoeverFindsItFullOrEmpty) {
  Graph graph;
  const Scope s = graph.root();
  const Operation put = ops::Stage(s, {4.0f}, {.capacity = 1, .shared_name = "area"});
  const Output get = ops::Unstage(s, {kFloat}, {.capacity = 1, .shared_name = "area"})[0];
  Session session = Open(graph);
  const RunOptions brief{.timeout = std::chrono::milliseconds(50)};
  const std::vector<Output> fetch = {get};
  const std::vector<Operation> target = {put};
  EXPECT_EQ(session.Run({}, fetch, {}, brief).status().code(), StatusCode::kDeadlineExceeded);
  ExpectOk(session.RunTargets({put}));
  EXPECT_EQ(session.Run({}, {}, target, brief).status().code(), StatusCode::kDeadlineExceeded);
  const auto got = session.Run({}, fetch);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].scalar<float>(), 4.0f);
}

TEST(StagingTest, RefusesATupleOfOtherTypes) {
  Graph graph;
  const Scope s = graph.root();
  const Operation put = ops::Stage(s, {4.0f}, {.shared_name = "area"});
  const Output get = ops::Unstage(s, {kString}, {.shared_name = "area"})[0];
  Session session = Open(graph);
  ExpectOk(session.RunTargets({put}));
  const std::vector<Output> fetch = {get};
  const Status status = session.Run({}, fetch).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.ToString().find("is float, but"), std::string::npos) << status;
}

// Ops of one staging map of a float and an int64.
struct StagingMap {
  Operation Put(int64_t key, const std::vector<int32_t>& indices,
                const std::vector<Input>& values) {
    return ops::OrderedMapStage(scope, key, Tensor::FromValues<int32_t>(indices, Vector(indices)),
                                values, {kFloat, kInt64}, {.capacity = 2, .shared_name = "map"});
  }
  std::vector<Output> Get(int64_t key, const std::vector<int32_t>& indices,
                          const std::vector<DataType>& types) {
    return ops::OrderedMapUnstage(scope, key, Tensor::FromValues<int32_t>(indices, Vector(indices)),
                                  types, {.capacity = 2, .shared_name = "map"});
  }
  static Shape Vector(const std::vector<int32_t>& indices) {
    return Shape({static_cast<int64_t>(indices.size())});
  }
  Graph graph;
  const Scope scope = graph.root();
};

TEST(StagingTest, AMapGivesATupleOnceItHasAllItsPieces) {
  StagingMap map;
  const Operation first = map.Put(7, {0}, {1.5f}), second = map.Put(7, {1}, {int64_t{3}});
  const std::vector<Output> number = map.Get(7, {0}, {kFloat}), rest = map.Get(7, {1}, {kInt64});
  const Output size = ops::OrderedMapSize(map.scope, {kFloat, kInt64}, {.shared_name = "map"});
  Session session = Open(map.graph);
  const RunOptions brief{.timeout = std::chrono::milliseconds(50)};
  ExpectOk(session.RunTargets({first}));
  EXPECT_EQ(session.Run({}, number, {}, brief).status().code(), StatusCode::kDeadlineExceeded);
  ExpectOk(session.RunTargets({second}));
  const auto got = session.Run({}, number);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].scalar<float>(), 1.5f);
  EXPECT_EQ(session.Run({}, number).status().code(), StatusCode::kInvalidArgument);  // taken
  const std::vector<Output> sizes = {size};
  EXPECT_EQ((*session.Run({}, sizes))[0].scalar<int32_t>(), 1);
  const auto other = session.Run({}, rest);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)[0].scalar<int64_t>(), 3);
  EXPECT_EQ((*session.Run({}, sizes))[0].scalar<int32_t>(), 0);
}

TEST(StagingTest, AFullMapHoldsBackUntilSomethingIsTaken) {
  StagingMap map;
  std::vector<Operation> puts;
  for (int64_t key = 0; key < 3; ++key) puts.push_back(map.Put(key, {0, 1}, {1.0f, key}));
  const std::vector<Output> get = map.Get(0, {0, 1}, {kFloat, kInt64});
  const Operation clear =
      ops::OrderedMapClear(map.scope, {kFloat, kInt64}, {.capacity = 2, .shared_name = "map"});
  Session session = Open(map.graph);
  const RunOptions brief{.timeout = std::chrono::milliseconds(50)};
  ExpectOk(session.RunTargets({puts[0], puts[1]}));
  const std::vector<Operation> third = {puts[2]};
  EXPECT_EQ(session.Run({}, {}, third, brief).status().code(), StatusCode::kDeadlineExceeded);
  Status put;
  std::thread waits([&] { put = session.RunTargets({puts[2]}); });
  const auto got = session.Run({}, get);
  waits.join();
  ExpectOk(put);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[1].scalar<int64_t>(), 0);
  ExpectOk(session.RunTargets({clear}));
  ExpectOk(session.RunTargets({puts[2]}));
}

}  // namespace
}  // namespace millrace
