// SPDX-License-Identifier: Apache-2.0
// Data sets in programs: loops with a session, what is captured, and what is said of mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

#include "base/strings.h"
#include "millrace/data.h"
#include "millrace/functions.h"
#include "millrace/ops.h"
#include "millrace/variables.h"
#include "tests/data/element_text.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::TextsOf;
using Outputs = std::vector<Output>;
using Element = std::span<const Output>;

std::string Error(const Dataset& dataset) { return std::string(dataset.status().message()); }
// " (at dataset_test.cc:12)", of the line after the call.
std::string LineBefore(int line) { return StrCat("dataset_test.cc:", line - 1); }

Tensor Floats(const std::vector<float>& values, const Shape& shape) {
  return Tensor::FromValues<float>(values, shape);
}

std::string TempFile(const std::string& name, const std::string& content) {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = StrCat(folder == nullptr ? "/tmp" : folder, "/", name);
  std::ofstream(path) << content;
  return path;
}

// --- In a graph -------------------------------------------------------------------------------

TEST(DatasetTest, TrainsALineFromBatches) {
  // y = 3 x, found by going down the slope.
  const Dataset batches =
      Dataset::FromTensorSlices({Floats({1, 2, 3, 4}, {4, 1}), Floats({3, 6, 9, 12}, {4, 1})})
          .Shuffle(4, {.seed = 1})
          .Batch(2)
          .Repeat(50)
          .Prefetch(2);
  Graph graph;
  const Scope scope = graph.root();
  const DatasetIterator data = MakeIterator(scope, batches);
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  ASSERT_THAT(data.next, SizeIs(2));
  EXPECT_EQ(data.next[0].shape(), PartialShape({-1, 1}));
  const Variable w = MakeVariable(scope, "w", Zeros(scope, {}));
  const Output error = ops::Sub(scope, ops::Mul(scope, data.next[0], w.read), data.next[1]);
  const Output loss = ReduceMean(scope, ops::Square(scope, error));
  const auto slope = Gradients(scope, Outputs{loss}, Outputs{w.read});
  ASSERT_TRUE(slope.ok()) << slope.status();
  const Operation train = AssignAdd(scope, w, ops::Mul(scope, (*slope)[0], -0.02f));
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({w.initializer, data.initializer}).ok());
  int steps = 0;
  Status status;
  while ((status = session->RunTargets({train})).ok()) ++steps;
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange) << status;
  EXPECT_EQ(steps, 100);
  const auto value = session->Eval(w.read);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_NEAR(value->scalar<float>(), 3.0f, 0.01f);
}

TEST(DatasetTest, EveryInitializationIsAnotherEpoch) {
  Graph graph;
  const DatasetIterator data = MakeIterator(graph.root(), Dataset::Range(50).Shuffle(50).Batch(50));
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  std::set<std::string> orders;
  for (int epoch = 0; epoch < 4; ++epoch) {
    ASSERT_TRUE(session->RunTargets({data.initializer}).ok());
    const auto batch = session->Eval(data.next[0]);
    ASSERT_TRUE(batch.ok()) << batch.status();
    orders.insert(TextsOf(Dataset::FromTensors({*batch}))[0]);
    EXPECT_FALSE(session->Eval(data.next[0]).ok());
  }
  EXPECT_THAT(orders, SizeIs(4));
}

TEST(DatasetTest, ACacheGoesOnAfterTheNextInitialization) {
  const std::string path = TempFile("cached.txt", "a\nb\n");
  auto reader = DatasetReader::Create(Dataset::TextLines({path}).Cache());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_THAT(TextsOf(*reader), ElementsAre("string[] a", "string[] b"));
  TempFile("cached.txt", "other\n");
  ASSERT_TRUE(reader->Restart().ok());
  EXPECT_THAT(TextsOf(*reader), ElementsAre("string[] a", "string[] b"));
}

TEST(DatasetTest, MapUsesTheGraphThatItIsPutInto) {
  Graph graph;
  const Scope scope = graph.root();
  const Output k = Placeholder(scope, kInt64, {});
  const Dataset scaled = Dataset::Range(3).Map(
      [&](const Scope& s, Element x) -> Outputs { return {ops::Mul(s, x[0], k)}; });
  ASSERT_TRUE(scaled.status().ok()) << scaled.status();
  const DatasetIterator data = MakeIterator(scope, scaled.Cache());
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  for (const int64_t factor : {10, 100}) {
    const std::vector<Feed> feeds = {{k, Tensor::Scalar(factor)}};
    const std::vector<Operation> start = {data.initializer};
    const auto started = session->Run(feeds, {}, start);
    ASSERT_TRUE(started.ok()) << started.status();
    for (int64_t i = 0; i < 3; ++i) {
      const auto next = session->Eval(data.next[0]);
      ASSERT_TRUE(next.ok()) << next.status();
      EXPECT_EQ(next->scalar<int64_t>(), i * factor);
    }
    EXPECT_FALSE(session->Eval(data.next[0]).ok());
  }
}

TEST(DatasetTest, MapCallsFunctionsOfTheGraph) {
  Graph graph;
  const Scope scope = graph.root();
  const GraphFunction twice = DefineFunction(
      scope, "twice", {{kInt64, {}}},
      [](const Scope& s, Element x) -> Outputs { return {ops::AddV2(s, x[0], x[0])}; });
  ASSERT_TRUE(twice.valid()) << graph.status();
  const Dataset mapped =
      Dataset::Range(3).Map([&](const Scope& s, Element x) -> Outputs { return twice(s, {x[0]}); });
  const DatasetIterator data = MakeIterator(scope, mapped);
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({data.initializer}).ok());
  for (const int64_t want : {0, 2, 4}) {
    const auto value = session->Eval(data.next[0]);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(value->scalar<int64_t>(), want);
  }
}

TEST(DatasetTest, TwoIteratorsOverOneDataSetStandApart) {
  Graph graph;
  const Dataset range = Dataset::Range(3);
  const DatasetIterator a = MakeIterator(graph.root(), range, "a");
  const DatasetIterator b = MakeIterator(graph.root(), range, "b");
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({a.initializer, b.initializer}).ok());
  EXPECT_EQ(session->Eval(a.next[0])->scalar<int64_t>(), 0);
  EXPECT_EQ(session->Eval(a.next[0])->scalar<int64_t>(), 1);
  EXPECT_EQ(session->Eval(b.next[0])->scalar<int64_t>(), 0);
}

TEST(DatasetTest, AnIteratorThatIsNotInitializedSaysSo) {
  Graph graph;
  const DatasetIterator data = MakeIterator(graph.root(), Dataset::Range(3));
  auto session = Session::Create(graph);
  const auto next = session->Eval(data.next[0]);
  EXPECT_EQ(next.status().code(), StatusCode::kFailedPrecondition);
}

// --- What is known beforehand -----------------------------------------------------------------

TEST(DatasetTest, CardinalitiesAreKnownWhereTheyCanBe) {
  const Dataset ten = Dataset::Range(10);
  EXPECT_EQ(ten.Repeat().cardinality(), Dataset::kInfinite);
  EXPECT_EQ(ten.Repeat().Take(3).cardinality(), 3);
  EXPECT_EQ(ten.Repeat(4).Batch(16).cardinality(), 3);
  EXPECT_EQ(ten.Batch(3, {.drop_remainder = true}).cardinality(), 3);
  EXPECT_EQ(ten.Batch(4, {.drop_remainder = true}).Unbatch().cardinality(), 8);
  EXPECT_EQ(ten.Shard(4, 3).cardinality(), 2);
  EXPECT_EQ(Dataset::Zip({ten, ten.Repeat()}).cardinality(), 10);
  EXPECT_EQ(ten.Concatenate(ten).cardinality(), 20);
  EXPECT_EQ(Dataset::TextLines({"nowhere"}).cardinality(), Dataset::kUnknown);
  EXPECT_EQ(Dataset::TextLines({"nowhere"}).AssertCardinality(7).cardinality(), 7);
  EXPECT_EQ(ten.Shuffle(4).Batch(2).DebugString(), "Range(0, 10, 1) > Shuffle(4) > Batch(2)");
}

TEST(DatasetTest, OptionsPassOnToWhatIsMadeOfTheDataSet) {
  const Dataset data = Dataset::Range(4).WithOptions({.auto_shard = AutoShard::kOff}).Batch(2);
  EXPECT_EQ(data.options().auto_shard, AutoShard::kOff);
  EXPECT_THAT(TextsOf(data), ElementsAre("int64[2] 0 1", "int64[2] 2 3"));
}

// --- Files ------------------------------------------------------------------------------------

TEST(DatasetTest, ListsFilesThatMatch) {
  const std::string a = TempFile("list_a.txt", "1\n"), b = TempFile("list_b.txt", "2\n");
  const std::string pattern = a.substr(0, a.size() - 5) + "?.txt";
  const Dataset files = Dataset::ListFiles(pattern, {.shuffle = false});
  EXPECT_THAT(TextsOf(files), ElementsAre("string[] " + a, "string[] " + b));
  EXPECT_THAT(TextsOf(Dataset::ListFiles(pattern)), SizeIs(2));
  const Dataset none = Dataset::ListFiles(a + "nothing*");
  EXPECT_THAT(TextsOf(none)[0], HasSubstr("no file matches"));
}

TEST(DatasetTest, AMissingFileIsAnErrorOfTheElement) {
  const std::vector<std::string> texts = TextsOf(Dataset::TextLines({"/nowhere/x.txt"}));
  ASSERT_THAT(texts, SizeIs(1));
  EXPECT_THAT(texts[0], HasSubstr("/nowhere/x.txt"));
}

TEST(DatasetTest, AMissingFieldOfATableIsAnErrorUnlessItHasADefault) {
  const std::string path = TempFile("table.csv", "1,2\n3,\n");
  const Tensor required(kFloat, {0}), zero = Floats({0}, {1});
  EXPECT_THAT(TextsOf(Dataset::Csv({path}, {required, zero})),
              ElementsAre("float[] 1 | float[] 2", "float[] 3 | float[] 0"));
  const std::vector<std::string> texts = TextsOf(Dataset::Csv({path}, {required, required}));
  ASSERT_THAT(texts, SizeIs(2));
  EXPECT_EQ(texts[0], "float[] 1 | float[] 2");
}

TEST(DatasetTest, ElementsThatFailMayBeLeftOut) {
  const std::string path = TempFile("numbers.txt", "1\nx\n3\n");
  const Dataset numbers =
      Dataset::TextLines({path}).Map([](const Scope& s, Element line) -> Outputs {
        return {ops::StringToNumber(s, line[0], {.out_type = kInt64})};
      });
  EXPECT_THAT(TextsOf(numbers.IgnoreErrors()), ElementsAre("int64[] 1", "int64[] 3"));
  EXPECT_THAT(TextsOf(numbers)[1], HasSubstr("x"));
}

// 840 / (x % 7), which fails for every seventh element, and the element beside it.
std::vector<Output> Divided(const Scope& s, std::span<const Output> x) {
  const Output seven = Constant(s, Tensor::Scalar<int64_t>(7)),
               many = Constant(s, Tensor::Scalar<int64_t>(840));
  return {x[0], ops::FloorDiv(s, many, ops::FloorMod(s, x[0], seven))};
}

// What a reader meets until the end: the first component, or -1 for an error.
std::vector<int64_t> ElementsOf(DatasetReader& reader) {
  std::vector<int64_t> met;
  for (std::vector<Tensor> element;;) {
    const StatusOr<bool> more = reader.Next(&element);
    if (more.ok() && !*more) return met;
    met.push_back(more.ok() ? element[0].scalar<int64_t>() : -1);
  }
}

TEST(DatasetTest, SeveralCallsAtATimeGiveElementsAndErrorsInOrder) {
  // More than may lie ahead, in small and in large elements.
  const auto wide = [](const Scope& s, std::span<const Output> x) -> std::vector<Output> {
    return {x[0], ops::Fill(s, Constant(s, Tensor::FromValues<int64_t>({100000})), x[0])};
  };
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < 1000; ++i) expected.push_back(i % 7 == 0 ? -1 : i);
  for (const int parallel : {1, 2, 8, 200}) {
    SCOPED_TRACE(parallel);
    StatusOr<DatasetReader> reader =
        DatasetReader::Create(Dataset::Range(1000).Map(Divided, {.num_parallel = parallel}));
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(ElementsOf(*reader), expected);
    EXPECT_EQ(ElementsOf(*reader), std::vector<int64_t>());
    ASSERT_TRUE(reader->Restart().ok());
    std::vector<Tensor> element;
    EXPECT_FALSE(reader->Next(&element).ok());  // and leaves the rest
    StatusOr<DatasetReader> large =
        DatasetReader::Create(Dataset::Range(300).Map(wide, {.num_parallel = parallel}));
    ASSERT_TRUE(large.ok()) << large.status();
    const std::vector<int64_t> all = ElementsOf(*large);
    ASSERT_EQ(all.size(), 300u);
    EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  }
}

TEST(DatasetTest, AProgramThatWaitsForItsInputIsToldForWhichStage) {
  const Generator slow = []() -> StatusOr<GeneratorNext> {
    return GeneratorNext(
        [i = int64_t{0}](const GeneratorCall&, std::vector<Tensor>* element) mutable {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          element->push_back(Tensor::Scalar<int64_t>(i++));
          return StatusOr<bool>(true);
        });
  };
  const auto said = [](const Dataset& dataset) {
    ::testing::internal::CaptureStderr();
    StatusOr<DatasetReader> reader = DatasetReader::Create(dataset);
    if (!reader.ok()) return reader.status().ToString();
    std::vector<Tensor> element;
    for (int i = 0; i < 64; ++i) EXPECT_TRUE(reader->Next(&element).ok());
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string line = said(
      Dataset::FromGenerator(slow, {{kInt64, PartialShape({})}}).Map([](const Scope& s, Element x) {
        return Outputs{ops::Neg(s, x[0])};
      }));
  EXPECT_THAT(line, HasSubstr("the program waits for its input: 64 elements of the data set"));
  EXPECT_THAT(line, HasSubstr("GeneratorDataset); Prefetch at the end"));
  EXPECT_EQ(said(Dataset::Range(1000)), "");
}

// --- Mistakes ---------------------------------------------------------------------------------

TEST(DatasetMistakesTest, KeepTheFirstWithItsLineAndTellItToTheGraph) {
  const Dataset broken = Dataset::Range(3).Batch(0).Repeat().Batch(-1);
  const std::string line = LineBefore(__LINE__);
  EXPECT_THAT(Error(broken), HasSubstr("the size of a batch is 0; it must be at least 1"));
  EXPECT_THAT(Error(broken), HasSubstr(line));
  EXPECT_THAT(broken.dtypes(), IsEmpty());
  EXPECT_EQ(broken.cardinality(), Dataset::kUnknown);
  Graph graph;
  EXPECT_TRUE(MakeIterator(graph.root(), broken).next.empty());
  EXPECT_THAT(std::string(graph.status().message()), HasSubstr(line));
  EXPECT_EQ(DatasetReader::Create(broken).status(), broken.status());
}

TEST(DatasetMistakesTest, ADefaultDataSetIsNone) {
  EXPECT_EQ(Dataset().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Dataset().Batch(2).status().code(), StatusCode::kFailedPrecondition);
}

TEST(DatasetMistakesTest, NumbersThatCannotBeAreRefused) {
  const Dataset three = Dataset::Range(3);
  EXPECT_THAT(Error(Dataset::Range(0, 3, 0)), HasSubstr("step"));
  EXPECT_THAT(Error(three.Shuffle(0)), HasSubstr("the buffer of Shuffle has 0 elements"));
  EXPECT_THAT(Error(three.Prefetch(-2)), HasSubstr("the buffer of Prefetch"));
  EXPECT_THAT(Error(three.Shard(2, 2)), HasSubstr("shard 2 of 2"));
  EXPECT_THAT(Error(three.Window(0)), HasSubstr("the size of a window is 0"));
  EXPECT_THAT(Error(three.Window(2, {.stride = 0})), HasSubstr("stride 0"));
  EXPECT_THAT(Error(three.Unbatch()), HasSubstr("component 0 is a scalar"));
  EXPECT_THAT(Error(three.AssertCardinality(-3)), HasSubstr("-3 elements"));
  EXPECT_THAT(Error(Dataset::FixedLength({"f"}, 0)), HasSubstr("records of 0 bytes"));
  EXPECT_THAT(Error(Dataset::TextLines(std::vector<std::string>())), HasSubstr("no files"));
  EXPECT_THAT(Error(Dataset::TextLines({"f"}, {.compression = "ZIP"})), HasSubstr("'ZIP'"));
  EXPECT_THAT(Error(Dataset::Zip({})), HasSubstr("nothing to zip"));
  EXPECT_THAT(Error(three.Concatenate(three.Enumerate())), HasSubstr("different components"));
}

TEST(DatasetMistakesTest, ComponentsHaveAsManyRows) {
  const Dataset data = Dataset::FromTensorSlices({Floats({1, 2, 3}, {3}), Floats({1, 2}, {2})});
  EXPECT_THAT(Error(data), HasSubstr("different numbers of rows: their shapes are [3], [2]"));
  EXPECT_THAT(Error(Dataset::FromTensorSlices({Tensor::Scalar(1.0f)})), HasSubstr("FromTensors"));
  EXPECT_THAT(Error(Dataset::FromTensors({})), HasSubstr("at least one component"));
  EXPECT_THAT(Error(Dataset::FromTensors({Tensor()})), HasSubstr("component 0"));
}

TEST(DatasetMistakesTest, AFunctionThatCannotBeNamesItsLine) {
  int line = 0;
  const Dataset data = Dataset::Range(3).Map([&](const Scope& s, Element x) -> Outputs {
    line = __LINE__ + 1;
    return {ops::MatMul(s, x[0], x[0])};
  });
  EXPECT_THAT(Error(data), HasSubstr(StrCat("dataset_test.cc:", line)));
  EXPECT_THAT(Error(data), HasSubstr("'Map'"));
}

TEST(DatasetMistakesTest, APredicateGivesOneBool) {
  const Dataset data =
      Dataset::Range(3).Filter([](const Scope&, Element x) -> Output { return x[0]; });
  EXPECT_THAT(Error(data), HasSubstr("gives int64 []; it must give one bool"));
}

TEST(DatasetMistakesTest, AnInnerDataSetThatIsNoneIsTold) {
  const Dataset data = Dataset::Range(3).FlatMap([](const Scope&, Element) { return Dataset(); });
  EXPECT_THAT(Error(data), HasSubstr("this is no data set"));
}

TEST(DatasetMistakesTest, ElementsOfOtherShapesMakeNoBatch) {
  const Dataset ragged = Dataset::Range(1, 4).Map([](const Scope& s, Element x) -> Outputs {
    return {ops::Fill(s, ops::Reshape(s, ops::Cast(s, x[0], kInt32), {1}), x[0])};
  });
  const std::vector<std::string> texts = TextsOf(ragged.Batch(2));
  EXPECT_THAT(texts[0], HasSubstr("Cannot batch tensors with different shapes in component 0"));
  EXPECT_THAT(Error(ragged.PaddedBatch(2, {.shapes = {PartialShape({2, 2})}})),
              HasSubstr("which cannot be padded to [2,2]"));
  EXPECT_THAT(Error(ragged.PaddedBatch(2, {.values = {Tensor::Scalar(1.0f)}})),
              HasSubstr("must be a int64 scalar"));
}

TEST(DatasetMistakesTest, AnEndlessDataSetIsNotReadAsAWhole) {
  auto reader = DatasetReader::Create(Dataset::Range(3).Repeat());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->ReadAll(100).status().code(), StatusCode::kResourceExhausted);
}

TEST(DatasetMistakesTest, AnotherGraphsOutputsCannotBeCaptured) {
  Graph other;
  const Output k = Placeholder(other.root(), kInt64, {});
  const Dataset data = Dataset::Range(3).Map(
      [k](const Scope& s, Element x) -> Outputs { return {ops::Mul(s, x[0], k)}; });
  ASSERT_TRUE(data.status().ok()) << data.status();
  Graph graph;
  MakeIterator(graph.root(), data);
  EXPECT_THAT(std::string(graph.status().message()), HasSubstr("belongs to another graph"));
}

}  // namespace
}  // namespace millrace
