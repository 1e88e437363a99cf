// SPDX-License-Identifier: Apache-2.0
// Data sets of what a function of the program gives: epochs, mistakes, steps that end while the
// function is at work, and graphs that go elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/strings.h"
#include "millrace/data.h"
#include "millrace/ops.h"
#include "tests/data/element_text.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TextsOf;
using Outputs = std::vector<Output>;
using Element = std::span<const Output>;
using std::chrono::milliseconds;

const std::vector<GeneratorComponent> kOneNumber = {{kInt64, PartialShape({})}};

// 0, 1, ..., count - 1; `starts` counts the epochs.
Generator CountTo(int64_t count, std::shared_ptr<std::atomic<int>> starts = nullptr) {
  return [=]() -> StatusOr<GeneratorNext> {
    if (starts != nullptr) ++*starts;
    return GeneratorNext(
        [i = int64_t{0}, count](const GeneratorCall&, std::vector<Tensor>* element) mutable {
          if (i == count) return StatusOr<bool>(false);
          element->push_back(Tensor::Scalar<int64_t>(i++));
          return StatusOr<bool>(true);
        });
  };
}

// Gives what `at` says of call 0, 1, ...
Generator Calls(std::function<StatusOr<bool>(int call, std::vector<Tensor>* element)> at) {
  return [at = std::move(at)]() -> StatusOr<GeneratorNext> {
    return GeneratorNext(
        [at, call = 0](const GeneratorCall&, std::vector<Tensor>* element) mutable {
          return at(call++, element);
        });
  };
}

TEST(GeneratorTest, EveryEpochBeginsTheGeneratorAnew) {
  const auto starts = std::make_shared<std::atomic<int>>(0);
  const Dataset numbers = Dataset::FromGenerator(CountTo(3, starts), kOneNumber);
  ASSERT_TRUE(numbers.status().ok()) << numbers.status();
  EXPECT_EQ(numbers.cardinality(), Dataset::kUnknown);
  EXPECT_EQ(*starts, 0);
  EXPECT_THAT(TextsOf(numbers.Batch(2).Repeat(2)),
              ElementsAre("int64[2] 0 1", "int64[1] 2", "int64[2] 0 1", "int64[1] 2"));
  EXPECT_EQ(*starts, 2);
  auto reader = DatasetReader::Create(numbers);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_THAT(TextsOf(*reader), ElementsAre("int64[] 0", "int64[] 1", "int64[] 2"));
  EXPECT_THAT(TextsOf(*reader), IsEmpty());  // the end stays the end
  ASSERT_TRUE(reader->Restart().ok());
  EXPECT_THAT(TextsOf(*reader), ElementsAre("int64[] 0", "int64[] 1", "int64[] 2"));
}

TEST(GeneratorTest, StagesBehindItWorkAsBehindAnyOther) {
  const Dataset numbers = Dataset::FromGenerator(CountTo(6), kOneNumber);
  const auto squared =
      numbers
          .Map([](const Scope& s, Element x) { return Outputs{ops::Mul(s, x[0], x[0])}; },
               {.num_parallel = 2})
          .Batch(3)
          .Prefetch(1);
  EXPECT_THAT(TextsOf(squared), ElementsAre("int64[3] 0 1 4", "int64[3] 9 16 25"));
  const Dataset pairs = Dataset::Range(2).FlatMap(
      [](const Scope&, Element) { return Dataset::FromGenerator(CountTo(2), kOneNumber); });
  EXPECT_THAT(TextsOf(pairs), ElementsAre("int64[] 0", "int64[] 1", "int64[] 0", "int64[] 1"));
}

TEST(GeneratorTest, AnEmptyGeneratorIsAnEmptyDataSet) {
  EXPECT_THAT(TextsOf(Dataset::FromGenerator(CountTo(0), kOneNumber)), IsEmpty());
}

TEST(GeneratorTest, TheGraphKeepsTheFunction) {
  Graph graph;
  // The data set itself is gone with this line.
  const DatasetIterator data =
      MakeIterator(graph.root(), Dataset::FromGenerator(CountTo(2), kOneNumber));
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({data.initializer}).ok());
  const auto first = session->Eval(data.next[0]);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->scalar<int64_t>(), 0);
}

TEST(GeneratorTest, ErrorsOfTheFunctionEndTheStepAndNotTheDataSet) {
  const Dataset numbers =
      Dataset::FromGenerator(Calls([](int call, std::vector<Tensor>* element) -> StatusOr<bool> {
                               if (call == 1)
                                 return Status(StatusCode::kDataLoss, "the camera is off");
                               if (call == 2) throw std::runtime_error("no more film");
                               if (call == 3) return Status(StatusCode::kOutOfRange, "beyond");
                               if (call == 4) return false;
                               element->push_back(Tensor::Scalar<int64_t>(call));
                               return true;
                             }),
                             kOneNumber);
  auto reader = DatasetReader::Create(numbers);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<Tensor> element;
  ASSERT_TRUE(reader->Next(&element).ok());
  const auto next = [&] { return reader->Next(&element).status(); };
  const Status returned = next();
  EXPECT_EQ(returned.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(returned.message()), HasSubstr("the camera is off"));
  EXPECT_THAT(std::string(returned.message()), HasSubstr("generator_test.cc"));
  const Status thrown = next();
  EXPECT_EQ(thrown.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(thrown.message()), HasSubstr("no more film"));
  const Status beyond = next();
  EXPECT_EQ(beyond.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("beyond"));
  const auto end = reader->Next(&element);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_FALSE(*end);
}

TEST(GeneratorTest, ElementsThatAreNotAsDeclaredAreErrorsThatSayHow) {
  const Dataset rows =
      Dataset::FromGenerator(Calls([](int call, std::vector<Tensor>* element) -> StatusOr<bool> {
                               const Shape shape = call == 0 ? Shape({3}) : Shape({2});
                               if (call != 2)
                                 *element = {Tensor(call == 1 ? kInt32 : kFloat, shape)};
                               if (call == 3) element->push_back(Tensor(kFloat, shape));
                               if (call == 4) *element = {Tensor()};
                               return call < 5;
                             }),
                             {{kFloat, PartialShape({2})}});
  auto reader = DatasetReader::Create(rows);
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (const char* says :
       {"component 0 is float[3], not float[2]", "component 0 is int32[2], not float[2]",
        "it gave 0 components, not 1", "it gave 2 components, not 1", "an empty Tensor object"}) {
    std::vector<Tensor> element;
    const Status status = reader->Next(&element).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
}

TEST(GeneratorTest, WhatCannotBeIsSaidWhereItIsMade) {
  const auto error = [](const Dataset& dataset) { return std::string(dataset.status().message()); };
  EXPECT_THAT(error(Dataset::FromGenerator(nullptr, kOneNumber)), HasSubstr("no generator"));
  EXPECT_THAT(error(Dataset::FromGenerator(CountTo(1), {})), HasSubstr("at least one component"));
  EXPECT_THAT(error(Dataset::FromGenerator(CountTo(1), {{}})), HasSubstr("has no type"));
  EXPECT_THAT(error(Dataset::FromGenerator(CountTo(1), {{}})), HasSubstr("generator_test.cc"));
  const auto failing = []() -> StatusOr<GeneratorNext> {
    return Status(StatusCode::kNotFound, "no such tape");
  };
  EXPECT_THAT(TextsOf(Dataset::FromGenerator(failing, kOneNumber)),
              ElementsAre(HasSubstr("no such tape")));
  const auto empty = []() -> StatusOr<GeneratorNext> { return GeneratorNext(); };
  EXPECT_THAT(TextsOf(Dataset::FromGenerator(empty, kOneNumber)),
              ElementsAre(HasSubstr("empty std::function")));
}

// A function that waits until it is let go, or nobody wants its element any more.
struct Gate {
  std::mutex mu;
  std::condition_variable changed;
  bool entered = false, open = false, saw_abandoned = false;

  Generator Numbers() {
    return [this]() -> StatusOr<GeneratorNext> {
      return GeneratorNext(
          [this, i = int64_t{0}](const GeneratorCall& call, std::vector<Tensor>* element) mutable {
            std::unique_lock lock(mu);
            entered = true;
            while (!open && !call.is_abandoned()) changed.wait_for(lock, milliseconds(5));
            saw_abandoned = call.is_abandoned();
            changed.notify_all();
            element->push_back(Tensor::Scalar<int64_t>(i++));
            return StatusOr<bool>(true);
          });
    };
  }
  // Runs steps that end by their deadline until one has come as far as to ask for an element.
  void ExpectLate(Session& session, const Output& next) {
    bool is_there = false;
    for (milliseconds limit(50); !is_there && limit < std::chrono::minutes(1); limit *= 2) {
      const auto late = session.Run({}, {next}, {}, {.timeout = limit});
      EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded) << late.status();
      std::lock_guard lock(mu);
      is_there = entered;
    }
    EXPECT_TRUE(is_there);
  }
  void Open() {
    std::lock_guard lock(mu);
    open = true;
    changed.notify_all();
  }
  bool WaitForAbandoned() {
    std::unique_lock lock(mu);
    return changed.wait_for(lock, std::chrono::seconds(60), [this] { return saw_abandoned; });
  }
};

TEST(GeneratorTest, AStepWhoseTimeIsOverDoesNotWaitAndItsElementIsTheNextOnes) {
  Gate gate;
  {
    Graph graph;
    const DatasetIterator data =
        MakeIterator(graph.root(), Dataset::FromGenerator(gate.Numbers(), kOneNumber));
    auto session = Session::Create(graph);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE(session->RunTargets({data.initializer}).ok());
    gate.ExpectLate(*session, data.next[0]);
    gate.Open();
    for (int64_t i = 0; i < 3; ++i) {
      const auto value = session->Eval(data.next[0]);
      ASSERT_TRUE(value.ok()) << value.status();
      EXPECT_EQ(value->scalar<int64_t>(), i);
    }
  }
}

TEST(GeneratorTest, AFunctionThatWaitsLearnsThatItsIteratorIsGone) {
  // Outlives the session, whose end does not wait for the function.
  static Gate gate;
  {
    Graph graph;
    const DatasetIterator data =
        MakeIterator(graph.root(), Dataset::FromGenerator(gate.Numbers(), kOneNumber));
    auto session = Session::Create(graph);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE(session->RunTargets({data.initializer}).ok());
    gate.ExpectLate(*session, data.next[0]);
  }
  EXPECT_TRUE(gate.WaitForAbandoned());
}

// The status of the first step of a graph with these nodes.
Status StepOf(const std::string& graph_def, const std::string& initializer) {
  Graph graph;
  const Status imported = graph.ImportGraphDef(graph_def);
  if (!imported.ok()) return imported;
  auto session = Session::Create(graph);
  if (!session.ok()) return session.status();
  return session->RunTargets({graph.FindOperation(initializer)});
}

TEST(GeneratorTest, AGraphThatGoesElsewhereSaysWhereTheFunctionIs) {
  std::string bytes, initializer;
  {
    Graph graph;
    const DatasetIterator data =
        MakeIterator(graph.root(), Dataset::FromGenerator(CountTo(1), kOneNumber));
    initializer = data.initializer.name();
    const auto def = graph.ToGraphDef();
    ASSERT_TRUE(def.ok()) << def.status();
    bytes = *def;
    EXPECT_TRUE(StepOf(bytes, initializer).ok());
    const std::string here = "of process ";
    const std::size_t at = bytes.find(here);
    ASSERT_NE(at, std::string::npos);
    std::string foreign = bytes;
    char& digit = foreign[at + here.size()];
    digit = digit == '9' ? '8' : '9';
    const Status elsewhere = StepOf(foreign, initializer);
    EXPECT_EQ(elsewhere.code(), StatusCode::kFailedPrecondition) << elsewhere;
    EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("a function of another process"));
    EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("cannot be sent"));
  }
  const Status gone = StepOf(bytes, initializer);
  EXPECT_EQ(gone.code(), StatusCode::kFailedPrecondition) << gone;
  EXPECT_THAT(std::string(gone.message()), HasSubstr("is gone"));
}

}  // namespace
}  // namespace millrace
