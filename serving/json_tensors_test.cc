// SPDX-License-Identifier: Apache-2.0
// Tensors to JSON and back, and JSON that is no tensor.
#include "serving/json_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/errors.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

StatusOr<Tensor> FromText(const std::string& text, DataType dtype) {
  const auto json = ParseJson(text);
  return json.ok() ? TensorFromJson(*json, dtype) : json.status();
}

TEST(JsonTensorsTest, EveryTypeComesBackAsItWas) {
  const Tensor tensors[] = {
      Tensor::FromValues<float>({1.5f, -2, 3, 4, 5, 6}, {2, 3}),
      Tensor::Scalar<double>(0.1),
      Tensor::FromValues<int64_t>({INT64_MIN, INT64_MAX}),
      Tensor::FromValues<uint64_t>({UINT64_MAX}),
      Tensor::FromValues<int8_t>({-128, 127}),
      Tensor::FromValues<bool>({true, false}, {2, 1}),
      Tensor::FromValues<std::string>({"a", "\"b\"\n"}),
      Tensor(kFloat, {0}),
      Tensor(kFloat, {2, 0}),
  };
  for (const Tensor& tensor : tensors) {
    const auto json = TensorToJson(tensor);
    ASSERT_TRUE(json.ok()) << json.status();
    const auto back = FromText(JsonText(*json), tensor.dtype());
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(TensorsEqual(*back, tensor)) << JsonText(*json);
  }
}

TEST(JsonTensorsTest, BytesAreBase64) {
  const Tensor bytes = Tensor::FromValues<std::string>({std::string("\xff\0x", 3)});
  const auto json = TensorToJson(bytes, /*as_bytes=*/true);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(JsonText(*json), R"([{"b64":"/wB4"}])");
  const auto back = TensorFromJson(*json, kString);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(TensorsEqual(*back, bytes));
}

TEST(JsonTensorsTest, WhatIsNoTensorOfTheTypeIsRefused) {
  const auto refused = [](const std::string& text, DataType dtype) {
    const Status status = FromText(text, dtype).status();
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << text << ": " << status;
    return std::string(Message(status));
  };
  EXPECT_THAT(refused("[[1, 2], [3]]", kFloat), HasSubstr("lists differ in length"));
  EXPECT_THAT(refused("[[1], 2]", kFloat), HasSubstr("lists differ in length"));
  EXPECT_THAT(refused("[1, [2]]", kFloat), HasSubstr("no value of type float"));
  EXPECT_THAT(refused("\"x\"", kFloat), HasSubstr("\"x\" is no value of type float"));
  EXPECT_THAT(refused("300", kInt8), HasSubstr("300 is no value of type int8"));
  EXPECT_THAT(refused("-1", kUint64), HasSubstr("no value"));
  EXPECT_THAT(refused("18446744073709551615", kInt64), HasSubstr("no value"));
  EXPECT_THAT(refused("1.5", kInt32), HasSubstr("no value"));
  EXPECT_THAT(refused("1", kBool), HasSubstr("no value"));
  EXPECT_THAT(refused("{\"b64\": \"%%\"}", kString), HasSubstr("no value of type string"));
  EXPECT_THAT(refused("[1, 2", kFloat), HasSubstr("no JSON"));
  EXPECT_THAT(refused(std::string(300, '[') + "1" + std::string(300, ']'), kFloat),
              HasSubstr("more than 254 deep"));
  EXPECT_TRUE(errors::IsUnimplemented(FromText("1", kHalf).status()));
}

}  // namespace
}  // namespace millrace
