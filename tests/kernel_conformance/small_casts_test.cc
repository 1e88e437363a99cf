// SPDX-License-Identifier: Apache-2.0
// Casts to and from elements of one byte and of four bits. What is expected is what TensorFlow 2.21
// gave for the same inputs: all patterns where there are few, else 20000 that are drawn here, and
// for floats and doubles also what lies half way between two numbers of one byte, with neighbours.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "io/crc32c.h"
#include "kernels/common/dtype_dispatch.h"
#include "tests/kernel_conformance/node_runner.h"

namespace millrace::testing {
namespace {

constexpr int kDrawn = 20000;
constexpr auto kInt4 = static_cast<DataType>(29);
constexpr auto kUint4 = static_cast<DataType>(30);

template <typename T>
Tensor Vector(const std::vector<T>& values) {
  return Tensor::FromValues<T>(values, Shape({static_cast<int64_t>(values.size())}));
}

std::vector<uint64_t> Drawn() {
  std::vector<uint64_t> numbers;
  uint64_t x = 1;
  for (int i = 0; i < kDrawn; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    numbers.push_back(x);
  }
  return numbers;
}

template <typename T, typename F>
void AddTies(std::vector<T>* numbers) {
  for (int i = 0; i < 255; ++i) {
    const auto a = static_cast<T>(float(F::FromBits(static_cast<uint8_t>(i))));
    const auto b = static_cast<T>(float(F::FromBits(static_cast<uint8_t>(i + 1))));
    if (i == 127 || !std::isfinite(a) || !std::isfinite(b)) continue;
    const T half_way = (a + b) / 2;
    const T infinity = std::numeric_limits<T>::infinity();
    numbers->insert(numbers->end(), {half_way, std::nextafter(half_way, -infinity),
                                     std::nextafter(half_way, infinity)});
  }
}

template <typename T, typename Bits>
Tensor Floats() {
  std::vector<T> numbers;
  for (const uint64_t drawn : Drawn()) {
    const auto bits = static_cast<Bits>(drawn >> (64 - 8 * sizeof(Bits)));
    numbers.push_back(std::bit_cast<T>(bits));
  }
  for (const uint64_t drawn : Drawn()) {  // those of moderate size
    const double unit = static_cast<double>(drawn >> 40) / (1 << 24) - 0.5;
    numbers.push_back(static_cast<T>(unit * unit * unit * 8 * 70000));
  }
  AddTies<T, Float8E5m2>(&numbers);
  AddTies<T, Float8E4m3fn>(&numbers);
  numbers.insert(numbers.end(), {464, 464.5, 480, 61440, 61439, 65536, -464, -61440});
  return Vector(numbers);
}

template <typename T>
Tensor Patterns(DataType dtype, int n) {
  std::vector<T> patterns;
  for (int i = 0; i < n; ++i) patterns.push_back(static_cast<T>(i));
  return Vector(patterns).BitcastTo(dtype);
}

Tensor Numbers(DataType dtype) {
  if (dtype == kFloat) return Floats<float, uint32_t>();
  if (dtype == kDouble) return Floats<double, uint64_t>();
  if (dtype == kBool) return Patterns<uint8_t>(dtype, 2);
  if (DataTypeSize(dtype) == 1) return Patterns<uint8_t>(dtype, 256);
  if (DataTypeSize(dtype) == 2) return Patterns<uint16_t>(dtype, 65536);
  if (DataTypeSize(dtype) == 8) return Vector(Drawn()).BitcastTo(dtype);
  std::vector<uint32_t> upper;
  for (const uint64_t drawn : Drawn()) upper.push_back(static_cast<uint32_t>(drawn >> 32));
  return Vector(upper).BitcastTo(dtype);
}

// NaNs may have any sign and payload.
template <typename Bits>
void MakeNansEqual(Tensor* tensor, Bits infinity, Bits nan) {
  auto* const values = static_cast<Bits*>(tensor->raw_data());
  const std::size_t n = tensor->num_bytes() / sizeof(Bits);
  constexpr Bits kSign = Bits(1) << (8 * sizeof(Bits) - 1);
  for (std::size_t i = 0; i < n; ++i) {
    if ((values[i] & ~kSign) > infinity) values[i] = nan;
  }
}

uint32_t Digest(Tensor tensor) {
  const DataType dtype = tensor.dtype();
  if (dtype == kFloat || dtype == kComplex64) {
    MakeNansEqual<uint32_t>(&tensor, 0x7f800000u, 0x7fc00000u);
  } else if (dtype == kDouble || dtype == kComplex128) {
    MakeNansEqual<uint64_t>(&tensor, 0x7ff0000000000000u, 0x7ff8000000000000u);
  } else if (dtype == kBfloat16) {
    MakeNansEqual<uint16_t>(&tensor, 0x7f80, 0x7fc0);
  } else if (dtype == DataType::kFloat8E5m2) {
    auto* const bytes = static_cast<uint8_t*>(tensor.raw_data());
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      if ((bytes[i] & 0x7f) > 0x7c) bytes[i] = 0x7e;
    }
  } else if (dtype == kHalf) {
    MakeNansEqual<uint16_t>(&tensor, 0x7c00, 0x7e00);
  }
  return ExtendCrc32c(0, {static_cast<const char*>(tensor.raw_data()), tensor.num_bytes()});
}

Tensor Cast(const Tensor& tensor, DataType to) {
  pb::NodeDef node;
  node.set_op("Cast");
  (*node.mutable_attr())["SrcT"] = TypeAttr(tensor.dtype());
  (*node.mutable_attr())["DstT"] = TypeAttr(to);
  return RunNode(node, {tensor}, 0);
}

struct Recorded {
  DataType from, to;
  uint32_t digest;  // CRC-32C of the result
};
constexpr Recorded kRecorded[] = {
    {DataType::kFloat8E5m2, DataType::kBool, 0xcccad111},
    {DataType::kFloat8E5m2, DataType::kUint8, 0x200c5836},
    {DataType::kFloat8E5m2, DataType::kUint16, 0x3768ba31},
    {DataType::kFloat8E5m2, DataType::kUint32, 0x57060eff},
    {DataType::kFloat8E5m2, DataType::kUint64, 0x26dc824e},
    {DataType::kFloat8E5m2, DataType::kInt8, 0x200c5836},
    {DataType::kFloat8E5m2, DataType::kInt16, 0x3768ba31},
    {DataType::kFloat8E5m2, DataType::kInt32, 0xfcdecd20},
    {DataType::kFloat8E5m2, DataType::kInt64, 0x26dc824e},
    {DataType::kFloat8E5m2, DataType::kFloat, 0x9989bbf5},
    {DataType::kFloat8E5m2, DataType::kDouble, 0x3c580c71},
    {DataType::kFloat8E5m2, DataType::kComplex64, 0x49f3a063},
    {DataType::kFloat8E5m2, DataType::kComplex128, 0xc7a9361b},
    {DataType::kFloat8E5m2, DataType::kHalf, 0x6e6d4012},
    {DataType::kFloat8E5m2, DataType::kBfloat16, 0x5eadcfc4},
    {DataType::kHalf, DataType::kFloat8E5m2, 0x745e7c61},
    {DataType::kBfloat16, DataType::kFloat8E5m2, 0xf18c6806},
    {DataType::kFloat, DataType::kFloat8E5m2, 0x9d7d45ef},
    {DataType::kDouble, DataType::kFloat8E5m2, 0x3e3cfdbc},
    {DataType::kFloat8E4m3fn, DataType::kBool, 0xcccad111},
    {DataType::kFloat8E4m3fn, DataType::kUint8, 0x33e83869},
    {DataType::kFloat8E4m3fn, DataType::kUint16, 0x33503a82},
    {DataType::kFloat8E4m3fn, DataType::kUint32, 0x86bb0534},
    {DataType::kFloat8E4m3fn, DataType::kUint64, 0x44fa9226},
    {DataType::kFloat8E4m3fn, DataType::kInt8, 0x33e83869},
    {DataType::kFloat8E4m3fn, DataType::kInt16, 0x33503a82},
    {DataType::kFloat8E4m3fn, DataType::kInt32, 0x5afafeb0},
    {DataType::kFloat8E4m3fn, DataType::kInt64, 0x44fa9226},
    {DataType::kFloat8E4m3fn, DataType::kFloat, 0x5cf3155c},
    {DataType::kFloat8E4m3fn, DataType::kDouble, 0x6f4b892b},
    {DataType::kFloat8E4m3fn, DataType::kComplex64, 0x4e119111},
    {DataType::kFloat8E4m3fn, DataType::kComplex128, 0x717480db},
    {DataType::kFloat8E4m3fn, DataType::kHalf, 0x8349c106},
    {DataType::kFloat8E4m3fn, DataType::kBfloat16, 0x6f2cbc0e},
    {DataType::kHalf, DataType::kFloat8E4m3fn, 0xa5e0dacc},
    {DataType::kBfloat16, DataType::kFloat8E4m3fn, 0xf021a6c5},
    {DataType::kFloat, DataType::kFloat8E4m3fn, 0x60fabab2},
    {DataType::kDouble, DataType::kFloat8E4m3fn, 0xbab311db},
    {DataType::kFloat8E5m2, DataType::kFloat8E4m3fn, 0x1222254c},
    {DataType::kFloat8E4m3fn, DataType::kFloat8E5m2, 0xb3211b39},
    {kInt4, DataType::kUint8, 0x32904003},
    {DataType::kUint8, kInt4, 0x99a3f542},
    {kInt4, DataType::kUint16, 0x6a3a88ca},
    {DataType::kUint16, kInt4, 0xf7b08daf},
    {kInt4, DataType::kUint32, 0xe339cafd},
    {DataType::kUint32, kInt4, 0x28c26da7},
    {kInt4, DataType::kUint64, 0x76de8393},
    {DataType::kUint64, kInt4, 0xf055adbc},
    {kInt4, DataType::kInt8, 0x32904003},
    {DataType::kInt8, kInt4, 0x99a3f542},
    {kInt4, DataType::kInt16, 0x6a3a88ca},
    {DataType::kInt16, kInt4, 0xf7b08daf},
    {kInt4, DataType::kInt32, 0xe339cafd},
    {DataType::kInt32, kInt4, 0x28c26da7},
    {kInt4, DataType::kInt64, 0x76de8393},
    {DataType::kInt64, kInt4, 0xf055adbc},
    {kUint4, DataType::kUint8, 0x99a3f542},
    {DataType::kUint8, kUint4, 0x99a3f542},
    {kUint4, DataType::kUint16, 0x41ae3532},
    {DataType::kUint16, kUint4, 0xf7b08daf},
    {kUint4, DataType::kUint32, 0x1b1c04b1},
    {DataType::kUint32, kUint4, 0x28c26da7},
    {kUint4, DataType::kUint64, 0xb0b9a360},
    {DataType::kUint64, kUint4, 0xf055adbc},
    {kUint4, DataType::kInt8, 0x99a3f542},
    {DataType::kInt8, kUint4, 0x99a3f542},
    {kUint4, DataType::kInt16, 0x41ae3532},
    {DataType::kInt16, kUint4, 0xf7b08daf},
    {kUint4, DataType::kInt32, 0x1b1c04b1},
    {DataType::kInt32, kUint4, 0x28c26da7},
    {kUint4, DataType::kInt64, 0xb0b9a360},
    {DataType::kInt64, kUint4, 0xf055adbc},
    {kInt4, kUint4, 0x99a3f542},
    {kUint4, kInt4, 0x99a3f542},
};

TEST(SmallCastsTest, GiveWhatTensorFlowGives) {
  for (const Recorded& recorded : kRecorded) {
    Tensor cast = Cast(Numbers(recorded.from), recorded.to);
    // What is no number has any value there: TensorFlow's differ by where in the tensor they stand.
    if (recorded.to == DataType::kUint32 && IsFloat8(recorded.from)) {
      const Tensor numbers = Cast(Numbers(recorded.from), kFloat);
      for (int64_t i = 0; i < cast.num_elements(); ++i) {
        if (!std::isfinite(numbers.data<float>()[i])) cast.data<uint32_t>()[i] = 0;
      }
    }
    ASSERT_EQ(cast.dtype(), recorded.to);
    EXPECT_EQ(Digest(cast), recorded.digest)
        << DataTypeName(recorded.from) << " to " << DataTypeName(recorded.to);
  }
}

// TensorFlow has no such casts, or none on a CPU.
TEST(SmallCastsTest, AlsoBetweenIntegersAndTheOtherTypesOfOneByte) {
  const Tensor integers = Vector<int64_t>({0, 1, -3, 1000});
  const Tensor narrow = Cast(integers, DataType::kFloat8E4m3fnuz);
  EXPECT_EQ(narrow.DebugString(4), "Tensor<float8_e4m3fnuz [4]: 0 1 -3 nan>");
  EXPECT_EQ(Cast(narrow, DataType::kFloat8E5m2fnuz).DebugString(4),
            "Tensor<float8_e5m2fnuz [4]: 0 1 -3 nan>");
  EXPECT_EQ(Cast(Cast(integers, DataType::kFloat8E4m3b11fnuz), kFloat).DebugString(3),
            "Tensor<float [4]: 0 1 -3 ...>");
  // Rounded once: by way of a float this would be a tie, and go down.
  const Tensor beyond = Vector<Complex128>({{1.125 + 1e-12, 7}});
  EXPECT_EQ(Cast(beyond, DataType::kFloat8E5m2).DebugString(), "Tensor<float8_e5m2 [1]: 1.25>");
}

TEST(SmallCastsTest, IntegersOfFourBitsGoWithIntegersOnly) {
  for (const DataType other : {kFloat, kBool, DataType::kFloat8E5m2}) {
    EXPECT_NONFATAL_FAILURE(Cast(Numbers(kInt4), other), "is not supported");
  }
  EXPECT_NONFATAL_FAILURE(Cast(Vector<float>({1}), kUint4), "is not supported");
}

// As in TensorFlow: the integers that they are stored as.
TEST(SmallCastsTest, QuantizedNumbersAreIntegers) {
  const Tensor bytes = Vector<int8_t>({-128, -1, 5});
  EXPECT_EQ(Cast(bytes.BitcastTo(DataType::kQint8), kFloat).DebugString(),
            "Tensor<float [3]: -128 -1 5>");
  EXPECT_EQ(Cast(bytes.BitcastTo(DataType::kQint8), kInt8).DebugString(), bytes.DebugString());
  EXPECT_EQ(Cast(Vector<float>({3.7f, -2}), DataType::kQint32).DebugString(),
            "Tensor<qint32 [2]: 3 -2>");
}

}  // namespace
}  // namespace millrace::testing
