// SPDX-License-Identifier: Apache-2.0
// Elements of several data sets, and batches by length.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "millrace/data.h"
#include "millrace/ops.h"
#include "tests/data/element_text.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Element = std::span<const Output>;
using Choices = std::vector<int64_t>;

// The one int64 of every element.
std::vector<int64_t> Numbers(const Dataset& dataset, int64_t limit = 1 << 20) {
  auto reader = DatasetReader::Create(dataset);
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return {};
  std::vector<int64_t> numbers;
  std::vector<Tensor> element;
  while (static_cast<int64_t>(numbers.size()) < limit) {
    const StatusOr<bool> has = reader->Next(&element);
    EXPECT_TRUE(has.ok()) << has.status();
    if (!has.ok() || !*has) break;
    numbers.push_back(element[0].scalar<int64_t>());
  }
  return numbers;
}

Dataset Chosen(const Choices& choices) {
  return Dataset::FromTensorSlices(
      {Tensor::FromValues<int64_t>(choices, Shape({static_cast<int64_t>(choices.size())}))});
}

// 0, 1, ...; 10, 11, ...; 20, 21, ...
std::vector<Dataset> Tens(int64_t each) {
  return {Dataset::Range(0, each), Dataset::Range(10, 10 + each), Dataset::Range(20, 20 + each)};
}

TEST(ChooseFromTest, TakesTheNextElementOfTheDataSetThatIsChosen) {
  const Dataset mixed = Dataset::ChooseFrom(Chosen({2, 0, 0, 1, 2}), Tens(3));
  ASSERT_TRUE(mixed.status().ok()) << mixed.status();
  EXPECT_THAT(Numbers(mixed), ElementsAre(20, 0, 1, 10, 21));
}

TEST(ChooseFromTest, EndsWithADataSetOrPassesItOver) {
  const Choices choices = {0, 0, 1, 0, 1};
  EXPECT_THAT(Numbers(Dataset::ChooseFrom(Chosen(choices), Tens(2))), ElementsAre(0, 1, 10));
  EXPECT_THAT(Numbers(Dataset::ChooseFrom(Chosen(choices), Tens(2), {.stop_on_empty = false})),
              ElementsAre(0, 1, 10, 11));
}

TEST(ChooseFromTest, AChoiceOfNoDataSetIsAnErrorOfTheStep) {
  auto reader = DatasetReader::Create(Dataset::ChooseFrom(Chosen({0, 7}), Tens(2)));
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<Tensor> element;
  EXPECT_TRUE(reader->Next(&element).ok());
  const StatusOr<bool> bad = reader->Next(&element);
  EXPECT_EQ(bad.status().code(), StatusCode::kInvalidArgument) << bad.status();
}

TEST(ChooseFromTest, MistakesAreTold) {
  const auto error = [](const Dataset& dataset) { return std::string(dataset.status().message()); };
  const Dataset floats = Dataset::FromTensors({Tensor::Scalar(1.0f)});
  EXPECT_THAT(error(Dataset::ChooseFrom(Chosen({0}), {})), HasSubstr("at least one data set"));
  EXPECT_THAT(error(Dataset::ChooseFrom(floats, Tens(1))), HasSubstr("int64 scalars"));
  EXPECT_THAT(error(Dataset::ChooseFrom(Chosen({0}), {Dataset::Range(3), floats})),
              HasSubstr("data set 1"));
  EXPECT_THAT(error(Dataset::ChooseFrom(Dataset(), Tens(1))), HasSubstr("this is no data set"));
}

TEST(SampleFromTest, DrawsByWeightAndAgainTheSameForASeed) {
  const SampleOptions options = {.weights = {0.5, 0.25, 0.25}, .seed = 7};
  const std::vector<Dataset> endless = {Chosen({0}).Repeat(), Chosen({1}).Repeat(),
                                        Chosen({2}).Repeat()};
  const Dataset mixed = Dataset::SampleFrom(endless, options);
  ASSERT_TRUE(mixed.status().ok()) << mixed.status();
  const std::vector<int64_t> first = Numbers(mixed, 4000);
  ASSERT_EQ(first.size(), 4000u);
  EXPECT_EQ(Numbers(Dataset::SampleFrom(endless, options), 4000), first);
  std::map<int64_t, int> counts;
  for (const int64_t drawn : first) ++counts[drawn];
  // Five standard deviations.
  EXPECT_NEAR(counts[0], 2000, 160);
  EXPECT_NEAR(counts[1], 1000, 140);
  EXPECT_NEAR(counts[2], 1000, 140);
}

TEST(SampleFromTest, GivesEveryElementUnlessItStopsEarly) {
  std::vector<int64_t> all = Numbers(Dataset::SampleFrom(Tens(5), {.seed = 3}));
  for (int64_t begin : {0, 10, 20}) {
    std::vector<int64_t> own;
    for (const int64_t n : all) {
      if (n >= begin && n < begin + 10) own.push_back(n);
    }
    EXPECT_THAT(own, ElementsAre(begin, begin + 1, begin + 2, begin + 3, begin + 4));
  }
  EXPECT_EQ(Dataset::SampleFrom(Tens(5), {.seed = 3}).cardinality(), 15);
  const auto stopped = Numbers(Dataset::SampleFrom(Tens(5), {.seed = 3, .stop_on_empty = true}));
  EXPECT_LT(stopped.size(), 15u);
  EXPECT_GE(stopped.size(), 5u);
}

TEST(SampleFromTest, AWeightOfZeroLeavesADataSetOut) {
  EXPECT_THAT(Numbers(Dataset::SampleFrom(Tens(2), {.weights = {0, 1, 0}})), ElementsAre(10, 11));
  const auto error = [](std::vector<double> weights) {
    return std::string(
        Dataset::SampleFrom(Tens(2), {.weights = std::move(weights)}).status().message());
  };
  EXPECT_THAT(error({1, 2}), HasSubstr("2 weights for 3 data sets"));
  EXPECT_THAT(error({1, -1, 1}), HasSubstr("a weight of SampleFrom is -1"));
  EXPECT_THAT(error({0, 0, 0}), HasSubstr("are 0"));
}

// Vectors of zeros of these lengths, with their numbers.
Dataset OfLengths(const std::vector<int64_t>& lengths) {
  return Chosen(lengths).Enumerate().Map([](const Scope& scope, Element element) {
    const Output shape =
        ops::Reshape(scope, element[1], Tensor::FromValues<int32_t>({1}, Shape({1})));
    const Output zeros = ops::Fill(scope, shape, 0.0f);
    return std::vector<Output>{element[0], zeros};
  });
}

Output LengthOf(const Scope& scope, Element element) { return ops::Size(scope, element[1]); }

TEST(BucketByLengthTest, BatchesHoldElementsOfSimilarLength) {
  const Dataset buckets =
      OfLengths({1, 5, 2, 6, 9, 3, 7, 5, 4}).BucketByLength(LengthOf, {4, 8}, {3, 2, 1});
  ASSERT_TRUE(buckets.status().ok()) << buckets.status();
  ASSERT_EQ(buckets.shapes().size(), 2u);
  EXPECT_EQ(buckets.shapes()[0], PartialShape({-1}));
  auto reader = DatasetReader::Create(buckets);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto all = reader->ReadAll();
  ASSERT_TRUE(all.ok()) << all.status();
  std::vector<std::string> texts;
  for (const auto& batch : *all) {
    texts.push_back(testing::TextOf(batch[0]) + " x " + std::to_string(batch[1].dim(1)));
  }
  EXPECT_THAT(texts, ElementsAre("int64[2] 1 3 x 6", "int64[1] 4 x 9", "int64[3] 0 2 5 x 3",
                                 "int64[2] 6 7 x 7", "int64[1] 8 x 4"));
}

TEST(BucketByLengthTest, RemaindersAreDroppedAndMistakesTold) {
  const Dataset lengths = OfLengths({1, 5, 2, 6, 9});
  const auto rows = [&](const Dataset& dataset) {
    auto reader = DatasetReader::Create(dataset);
    return reader.ok() ? reader->ReadAll()->size() : std::size_t{0};
  };
  EXPECT_EQ(rows(lengths.BucketByLength(LengthOf, {4, 8}, {2, 2, 2}, {.drop_remainder = true})),
            2u);
  EXPECT_EQ(rows(lengths.BucketByLength(LengthOf, {4, 8}, {2, 2, 2})), 3u);
  const auto error = [](const Dataset& dataset) { return std::string(dataset.status().message()); };
  EXPECT_THAT(error(lengths.BucketByLength(LengthOf, {4, 8}, {1, 2})), HasSubstr("2 batch sizes"));
  EXPECT_THAT(error(lengths.BucketByLength(LengthOf, {8, 4}, {1, 2, 3})), HasSubstr("ascend"));
  EXPECT_THAT(error(lengths.BucketByLength(LengthOf, {4}, {0, 2})), HasSubstr("at least 1"));
  EXPECT_THAT(error(lengths.BucketByLength(LengthOf, {4}, {1, 2}, {.drop_remainder = true})),
              HasSubstr("one batch size"));
  const auto zeros = [](const Scope&, Element element) { return element[1]; };
  EXPECT_THAT(error(lengths.BucketByLength(zeros, {4}, {1, 2})), HasSubstr("one int32 or int64"));
}

}  // namespace
}  // namespace millrace
