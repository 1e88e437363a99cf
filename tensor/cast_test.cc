// SPDX-License-Identifier: Apache-2.0
// Constants that are written as one type where another is expected.
#include "tensor/cast.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(CastTensorTest, FloatsOfOneByteAreTheNearest) {
  const Tensor floats = Tensor::FromValues<float>({0.5f, 1000.0f, 3.3f});
  const StatusOr<Tensor> cast = CastTensor(floats, DataType::kFloat8E4m3fn);
  ASSERT_TRUE(cast.ok()) << cast.status();
  EXPECT_EQ(cast->DebugString(), "Tensor<float8_e4m3fn [3]: 0.5 nan 3.25>");
  const StatusOr<Tensor> back = CastTensor(*cast, kInt32);
  EXPECT_EQ(back.status().code(), StatusCode::kInvalidArgument) << "0.5 is no integer";
  EXPECT_EQ(CastTensor(Tensor::Scalar(int64_t{3}), DataType::kFloat8E5m2)->DebugString(),
            "Tensor<float8_e5m2 []: 3>");
}

}  // namespace
}  // namespace millrace
