// SPDX-License-Identifier: Apache-2.0
// Iterators that are taken to where another one, of another session, was: what comes next is the
// same, whatever the stages before it keep.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/iterator_position.h"
#include "millrace/math.h"
#include "millrace/ops.h"
#include "millrace/preprocessing_layers.h"
#include "millrace/variables.h"
#include "tests/data/element_text.h"

namespace millrace {
namespace {

using testing::TextOf;
using Element = std::span<const Output>;
using Outputs = std::vector<Output>;

// An iterator in a session of its own.
class Program {
 public:
  explicit Program(const Dataset& dataset) {
    const Scope scope = graph_.root();
    iterator_ = MakeIterator(scope, dataset);
    if (!graph_.status().ok()) return;
    position_ = IteratorPosition(scope, iterator_);
    feed_ = Placeholder(scope, kString, PartialShape({-1}));
    set_ = SetIteratorPosition(scope, iterator_, feed_);
    auto session = Session::Create(graph_);
    EXPECT_TRUE(session.ok()) << session.status();
    session_.emplace(*std::move(session));
  }
  const Status& status() const { return graph_.status(); }
  Status Start() { return session_->RunTargets({iterator_.initializer}); }
  StatusOr<Tensor> Position() { return session_->Eval(position_); }
  Status SetPosition(const Tensor& position) {
    return session_->Run({{feed_, position}}, {}, {{set_}}).status();
  }
  // Up to `most` elements; "end" behind the last.
  std::vector<std::string> Read(int most) {
    std::vector<std::string> texts;
    while (static_cast<int>(texts.size()) < most) {
      const auto element = session_->Run({}, iterator_.next, {});
      if (errors::IsOutOfRange(element.status())) {
        texts.emplace_back("end");
        break;
      }
      EXPECT_TRUE(element.ok()) << element.status();
      if (!element.ok()) break;
      texts.push_back(TextOf(*element));
    }
    return texts;
  }

 private:
  Graph graph_;
  DatasetIterator iterator_;
  Output position_, feed_;
  Operation set_;
  std::optional<Session> session_;
};

struct Pipeline {
  const char* name;
  std::function<Dataset()> make;
};

std::string Lines() {
  static const std::string path = [] {
    const std::string file = ::testing::TempDir() + "/lines.txt";
    std::ofstream out(file);
    for (int i = 0; i < 9; ++i) out << "line " << i << "\n";
    return file;
  }();
  return path;
}

Outputs Doubled(const Scope& s, Element e) { return {ops::Mul(s, e[0], e[0])}; }
Dataset Inner(const Scope& s, Element e) { return Dataset::FromOutputs({e[0]}).Repeat(2); }

const Pipeline kPipelines[] = {
    {"Range", [] { return Dataset::Range(7); }},
    {"Slices", [] { return Dataset::FromTensorSlices({Tensor::FromValues<int64_t>({4, 8, 15})}); }},
    {"Lines", [] { return Dataset::TextLines({Lines()}); }},
    {"Batch", [] { return Dataset::Range(8).Batch(3); }},
    {"BatchWithoutTheRest", [] { return Dataset::Range(8).Batch(3, {.drop_remainder = true}); }},
    {"Unbatch", [] { return Dataset::Range(8).Batch(3).Unbatch(); }},
    {"Shuffle", [] { return Dataset::Range(9).Shuffle(4, {.seed = 3}); }},
    {"ShuffleWithoutASeed", [] { return Dataset::Range(9).Shuffle(9); }},
    {"ShuffleOnce",
     [] { return Dataset::Range(9).Shuffle(9, {.reshuffle_each_iteration = false}); }},
    {"ShuffleRepeat", [] { return Dataset::Range(4).Shuffle(3).Repeat(3); }},
    {"RepeatForEver", [] { return Dataset::Range(3).Shuffle(3).Batch(2).Repeat(); }},
    {"RepeatShuffle", [] { return Dataset::Range(4).Repeat(3).Shuffle(5); }},
    {"ShuffleBatchRepeat", [] { return Dataset::Range(5).Shuffle(5).Batch(2).Repeat(2); }},
    {"Map", [] { return Dataset::Range(6).Shuffle(6).Map(Doubled); }},
    {"ParallelMap", [] { return Dataset::Range(6).Shuffle(6).Map(Doubled, {.num_parallel = 3}); }},
    {"Filter",
     [] {
       return Dataset::Range(9).Filter(
           [](const Scope& s, Element e) { return ops::Greater(s, e[0], int64_t{3}); });
     }},
    {"FlatMap", [] { return Dataset::Range(4).Shuffle(4).FlatMap(Inner); }},
    {"Interleave",
     [] {
       return Dataset::Range(4).Shuffle(4).Interleave(Inner,
                                                      {.cycle_length = 2, .num_parallel = 2});
     }},
    {"TakeSkip", [] { return Dataset::Range(9).Shuffle(9).Skip(2).Take(5); }},
    {"Shard", [] { return Dataset::Range(9).Shuffle(9).Shard(2, 1); }},
    {"Window", [] { return Dataset::Range(9).Shuffle(9).Window(3, {.shift = 2}); }},
    {"Enumerate", [] { return Dataset::Range(5).Shuffle(5).Enumerate(); }},
    {"Zip",
     [] { return Dataset::Zip({Dataset::Range(5).Shuffle(5), Dataset::Range(5).Shuffle(5)}); }},
    {"Concatenate",
     [] { return Dataset::Range(3).Shuffle(3).Concatenate(Dataset::Range(3).Shuffle(3)); }},
    {"Cache", [] { return Dataset::Range(5).Cache(); }},
    {"ShuffleCache", [] { return Dataset::Range(5).Shuffle(5).Cache(); }},
    {"CacheShuffle", [] { return Dataset::Range(5).Cache().Shuffle(5); }},
    {"ShuffleCacheShuffleRepeat",
     [] { return Dataset::Range(5).Shuffle(5).Cache().Shuffle(3).Repeat(2); }},
    {"ImageFolder",
     [] {
       return OpenImageFolder("tests/goldens/data/image_folder",
                              {.height = 1, .width = 1, .batch_size = 2, .seed = 3})
           ->training;
     }},
    {"Prefetch", [] { return Dataset::Range(9).Shuffle(9).Batch(2).Prefetch(2); }},
    {"IgnoreErrors", [] { return Dataset::Range(5).Shuffle(5).IgnoreErrors(); }},
};

constexpr int kMost = 16;  // elements of a walk that are looked at

class IteratorPositionTest : public ::testing::TestWithParam<Pipeline> {};

// In the first and in the second walk, before every element.
TEST_P(IteratorPositionTest, WhatComesNextIsTheSame) {
  const Dataset dataset = GetParam().make();
  int positions = 0;
  for (int walk = 0; walk < 2; ++walk) {
    for (int read = 0; read <= kMost; ++read, ++positions) {
      Program original(dataset), other(dataset);
      ASSERT_TRUE(original.status().ok()) << original.status();
      for (int i = 0; i < walk; ++i) {
        ASSERT_TRUE(original.Start().ok());
        original.Read(kMost);
      }
      ASSERT_TRUE(original.Start().ok());
      const std::size_t before = original.Read(read).size();
      const auto position = original.Position();
      ASSERT_TRUE(position.ok()) << position.status();
      ASSERT_TRUE(other.Start().ok());
      other.Read(2);  // is forgotten
      const Status set = other.SetPosition(*position);
      ASSERT_TRUE(set.ok()) << set;
      EXPECT_EQ(other.Read(kMost), original.Read(kMost)) << "walk " << walk << ", after " << read;
      // And so is the walk after it.
      ASSERT_TRUE(original.Start().ok());
      ASSERT_TRUE(other.Start().ok());
      EXPECT_EQ(other.Read(kMost), original.Read(kMost))
          << "the walk after walk " << walk << ", " << read;
      if (before < static_cast<std::size_t>(read)) break;
    }
  }
  EXPECT_GT(positions, 4);
}

INSTANTIATE_TEST_SUITE_P(Stages, IteratorPositionTest, ::testing::ValuesIn(kPipelines),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(IteratorPositionErrorsTest, BeforeTheFirstWalkThereIsNone) {
  Program program(Dataset::Range(3));
  EXPECT_TRUE(errors::IsFailedPrecondition(program.Position().status()))
      << program.Position().status();
  EXPECT_TRUE(
      errors::IsFailedPrecondition(program.SetPosition(Tensor::FromValues<std::string>({}))));
}

TEST(IteratorPositionErrorsTest, OneOfAnotherPipelineIsRefused) {
  Program shuffled(Dataset::Range(3).Shuffle(3)), plain(Dataset::Range(3));
  ASSERT_TRUE(shuffled.Start().ok());
  ASSERT_TRUE(plain.Start().ok());
  const auto position = shuffled.Position();
  ASSERT_TRUE(position.ok()) << position.status();
  EXPECT_TRUE(errors::IsInvalidArgument(plain.SetPosition(*position)))
      << plain.SetPosition(*position);
  Tensor text(kString, Shape({2}));
  EXPECT_TRUE(errors::IsInvalidArgument(plain.SetPosition(text)));
  EXPECT_EQ(plain.Read(9).size(), 4u) << "an error changes nothing";
}

TEST(IteratorPositionErrorsTest, DataThatHaveBecomeFewerAreSaid) {
  Program longer(Dataset::Range(9)), shorter(Dataset::Range(4));
  ASSERT_TRUE(longer.Start().ok());
  ASSERT_TRUE(shorter.Start().ok());
  longer.Read(6);
  const auto position = longer.Position();
  ASSERT_TRUE(position.ok()) << position.status();
  const Status set = shorter.SetPosition(*position);
  EXPECT_TRUE(errors::IsDataLoss(set)) << set;
}

}  // namespace
}  // namespace millrace
