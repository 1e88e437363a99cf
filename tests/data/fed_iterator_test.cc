// SPDX-License-Identifier: Apache-2.0
// Iterators that read one data set after the other, and which data sets have the form for it.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "millrace/iterator_position.h"
#include "millrace/math.h"
#include "millrace/ops.h"
#include "millrace/variables.h"
#include "tests/data/element_text.h"

namespace millrace {
namespace {

using testing::TextOf;
using Element = std::span<const Output>;
using Outputs = std::vector<Output>;

// So many numbers from `first` on.
Dataset Numbers(int64_t first, int64_t count) {
  Tensor numbers(kInt64, Shape({count}));
  for (int64_t i = 0; i < count; ++i) numbers.data<int64_t>()[i] = first + i;
  return Dataset::FromTensorSlices({numbers});
}

ElementFunction Plus(int64_t number) {
  return
      [number](const Scope& s, Element x) -> Outputs { return {ops::Add(s, x[0], Input(number))}; };
}

// "" if the data set can only be read by an iterator of its own.
std::string FormTextOf(const Dataset& dataset) {
  const StatusOr<DatasetForm> form = FormOf(dataset);
  if (!form.ok()) {
    EXPECT_EQ(form.status().code(), StatusCode::kUnimplemented) << form.status();
    return "";
  }
  EXPECT_FALSE(form->text.empty());
  return form->text;
}

TEST(FedIteratorTest, OneFormIsThatOfOtherTensorsAndNumbersOfRows) {
  const auto made = [](int64_t first, int64_t count) {
    return Numbers(first, count).Shuffle(3, {.seed = 2}).Map(Plus(1)).Batch(2).Prefetch(1);
  };
  const std::string text = FormTextOf(made(0, 5));
  EXPECT_NE(text, "");
  EXPECT_EQ(text, FormTextOf(made(100, 50)));
  const StatusOr<DatasetForm> form = FormOf(made(7, 2));
  ASSERT_TRUE(form.ok()) << form.status();
  ASSERT_EQ(form->tensors.size(), 1u);
  EXPECT_EQ(TextOf(form->tensors[0]), "int64[2] 7 8");
  EXPECT_TRUE(form->has_seeds);
}

TEST(FedIteratorTest, StagesAndWhatFunctionsHaveAreOfTheForm) {
  const std::string text = FormTextOf(Numbers(0, 5).Map(Plus(1)).Batch(2));
  EXPECT_NE(text, FormTextOf(Numbers(0, 5).Map(Plus(2)).Batch(2)));
  EXPECT_NE(text, FormTextOf(Numbers(0, 5).Map(Plus(1)).Batch(3)));
  EXPECT_NE(text, FormTextOf(Numbers(0, 5).Batch(2)));
  EXPECT_NE(text, FormTextOf(Dataset::Range(5).Map(Plus(1)).Batch(2)));
}

TEST(FedIteratorTest, WhatKeepsSomethingOrUsesAGraphHasNoForm) {
  Graph graph;
  const Output one = Constant(graph.root(), Tensor::Scalar<int64_t>(1));
  const auto plus_one = [&](const Scope& s, Element x) -> Outputs {
    return {ops::Add(s, x[0], one)};
  };
  const Dataset rows = Numbers(0, 5);
  EXPECT_NE(FormTextOf(rows.Shuffle(2)), "");
  EXPECT_EQ(FormTextOf(rows.Cache()), "");
  EXPECT_EQ(FormTextOf(rows.Shuffle(2).Shuffle(2, {.seed = 1})), "");
  EXPECT_EQ(FormTextOf(rows.Shuffle(2, {.reshuffle_each_iteration = false})), "");
  EXPECT_EQ(FormTextOf(Dataset::SampleFrom({rows, rows})), "");
  EXPECT_EQ(FormTextOf(rows.Map(plus_one)), "");
  EXPECT_EQ(FormTextOf(Dataset::FromOutputs({one})), "");
  EXPECT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_FALSE(FormOf(rows.Batch(0)).ok());
}

TEST(FedIteratorTest, ReadsOneDataSetAfterTheOther) {
  const auto made = [](int64_t first, int64_t count) {
    return Numbers(first, count).Map(Plus(10)).Batch(2);
  };
  Graph graph;
  const FedIterator fed = MakeFedIterator(graph.root(), made(0, 3));
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  ASSERT_EQ(fed.feeds.size(), 1u);
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_FALSE(session->RunTargets({fed.iterator.initializer}).ok()) << "it was fed nothing";
  for (const int64_t count : {3, 1, 6}) {
    const Dataset dataset = made(100 * count, count);
    const StatusOr<DatasetForm> form = FormOf(dataset);
    ASSERT_TRUE(form.ok()) << form.status();
    ASSERT_TRUE(
        session->Run({{fed.feeds[0], form->tensors[0]}}, {}, {fed.iterator.initializer}).ok());
    auto reader = DatasetReader::Create(dataset);
    ASSERT_TRUE(reader.ok()) << reader.status();
    std::vector<Tensor> expected;
    for (;;) {
      const StatusOr<bool> more = reader->Next(&expected);
      ASSERT_TRUE(more.ok()) << more.status();
      const auto element = session->Run({}, fed.iterator.next, {});
      if (!*more) {
        EXPECT_TRUE(errors::IsOutOfRange(element.status())) << element.status();
        break;
      }
      ASSERT_TRUE(element.ok()) << element.status();
      EXPECT_EQ(TextOf(*element), TextOf(expected));
    }
  }
}

}  // namespace
}  // namespace millrace
