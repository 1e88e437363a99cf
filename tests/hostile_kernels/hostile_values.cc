// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile_kernels/hostile_values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/common/dtype_dispatch.h"
#include "tensor/allocator.h"

namespace millrace::testing {
namespace {

constexpr int64_t kMostElements = 4096;

const std::vector<int64_t>& AbsurdIntegers() {
  static const auto* const values = new std::vector<int64_t>{INT64_MAX,
                                                             INT64_MIN,
                                                             INT32_MAX,
                                                             INT32_MIN,
                                                             int64_t{1} << 31,
                                                             int64_t{1} << 32,
                                                             (int64_t{1} << 32) + 1,
                                                             int64_t{1} << 40,
                                                             int64_t{1} << 61,
                                                             int64_t{1} << 62,
                                                             -(int64_t{1} << 32),
                                                             -(int64_t{1} << 40),
                                                             922337203685477581,
                                                             INT64_MAX - 1,
                                                             65536,
                                                             -65536};
  return *values;
}

}  // namespace

HostileValues::HostileValues(uint64_t seed, Allocator* memory) : state_(seed), memory_(memory) {
  const std::vector<int64_t> absurd = {int64_t{1} << 20,  int64_t{1} << 31, int64_t{1} << 32,
                                       int64_t{1} << 34,  int64_t{1} << 40, int64_t{1} << 62,
                                       922337203685477581};
  tame_ = OneIn(3);
  const int64_t count = 1 + Below(3);
  for (int64_t i = 0; i < count; ++i) {
    sizes_.push_back(!tame_ && OneIn(4) ? OneOf(absurd) : Below(6));
  }
}

uint64_t HostileValues::Next() {  // splitmix64
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t HostileValues::Integer() {
  const int64_t kind = Below(16);
  if (kind == 0 && !tame_) return OneOf(AbsurdIntegers());
  if (kind < 4) return OneOf(sizes_);
  if (kind == 4) return -1 - Below(4);
  return Below(5);
}

float HostileValues::Real() {
  static const auto* const values = new std::vector<float>{0.0f,
                                                           -0.0f,
                                                           1.0f,
                                                           -1.0f,
                                                           0.5f,
                                                           2.0f,
                                                           3.5f,
                                                           -2.25f,
                                                           1e-30f,
                                                           1e30f,
                                                           -1e30f,
                                                           255.0f,
                                                           std::numeric_limits<float>::quiet_NaN(),
                                                           std::numeric_limits<float>::infinity(),
                                                           -std::numeric_limits<float>::infinity(),
                                                           4294967296.0f};
  return tame_ ? static_cast<float>(Below(9)) / 2 - 2 : OneOf(*values);
}

std::string HostileValues::Text() {
  static const auto* const values = new std::vector<std::string>{"",
                                                                 "a",
                                                                 "ab",
                                                                 "1",
                                                                 "-1.5",
                                                                 "nan",
                                                                 "1e400",
                                                                 "99999999999999999999",
                                                                 "%d",
                                                                 "{}",
                                                                 "\xff\xfe",
                                                                 "\xe2\x82",
                                                                 std::string("a\0b", 3),
                                                                 "a,b;c d",
                                                                 "AAAA",
                                                                 "====",
                                                                 "_-",
                                                                 "(",
                                                                 "[^",
                                                                 "\\1",
                                                                 std::string(300, 'x'),
                                                                 "1,2,\"3",
                                                                 "SAME",
                                                                 "VALID",
                                                                 "NHWC"};
  return OneOf(*values);
}

int64_t HostileValues::Size() { return OneIn(5) ? Below(4) : OneOf(sizes_); }

Shape HostileValues::NewShape() {
  Dims dims;
  const int64_t rank = OneIn(20) ? Below(10) : Below(5);
  for (int64_t i = 0; i < rank; ++i) dims.push_back(Size());
  Shape shape(dims);
  // Nothing takes no memory, whatever the other sizes: so at last one becomes 0.
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape.is_valid() && shape.num_elements() <= kMostElements) break;
    const int at = static_cast<int>(Below(shape.rank()));
    shape.SetDim(at, shape.is_valid() ? 0 : Below(3));
  }
  if (!shape.is_valid() || shape.num_elements() > kMostElements) return Shape();
  return shape;
}

Shape HostileValues::TensorShape() {
  Shape shape;
  const int64_t kind = shapes_.empty() ? 0 : Below(8);
  if (kind <= 1) {
    shape = NewShape();
  } else {
    shape = OneOf(shapes_);
    if (kind == 2 && shape.rank() > 0) shape.RemoveDim(static_cast<int>(Below(shape.rank())));
    if (kind == 3) shape.InsertDim(static_cast<int>(Below(shape.rank() + 1)), Below(3));
    if (kind == 4 && shape.rank() > 0) shape.SetDim(static_cast<int>(Below(shape.rank())), Size());
    if (kind == 5) shape = Shape({shape.rank()});  // a vector that tells of each axis
    if (!shape.is_valid() || shape.num_elements() > kMostElements) shape = Shape({0});
  }
  shapes_.push_back(shape);
  return shape;
}

PartialShape HostileValues::AnyShape() {
  if (OneIn(6)) return PartialShape();
  if (OneIn(2)) return PartialShape(TensorShape());
  Dims dims;
  const int64_t rank = Below(4);
  for (int64_t i = 0; i < rank; ++i)
    dims.push_back(OneIn(5) ? -1 : std::max<int64_t>(-1, Integer()));
  return PartialShape(dims);
}

Tensor HostileValues::TensorOf(DataType dtype) { return TensorOf(dtype, TensorShape()); }

Tensor HostileValues::TensorOf(DataType dtype, const Shape& shape) {
  StatusOr<Tensor> made = Tensor::Allocate(memory_, dtype, shape);
  if (!made.ok()) return Tensor(dtype, Shape({0}));
  Tensor tensor = *std::move(made);
  const bool rows_are_alike = OneIn(4);  // as indices that name one thing twice
  if (dtype == kString) {
    for (std::string& text : tensor.flat<std::string>()) text = Text();
    return tensor;
  }
  const bool known =
      DispatchType(JoinTypes<NumberTypes, TypeList<bool>>(), dtype, [&]<typename T>() {
        T* const to = tensor.data<T>();
        for (int64_t i = 0; i < tensor.num_elements(); ++i) {
          if (rows_are_alike && i > 0) {
            to[i] = to[0];
          } else if constexpr (std::is_same_v<T, bool>) {
            to[i] = OneIn(2);
          } else if constexpr (std::is_integral_v<T>) {
            to[i] = static_cast<T>(Integer());
          } else if constexpr (kIsComplex<T>) {
            to[i] = T(Real(), Real());
          } else {
            to[i] = static_cast<T>(Real());
          }
        }
      });
  if (!known && IsMemcpyable(dtype)) {
    auto* const bytes = static_cast<uint8_t*>(tensor.raw_data());
    for (std::size_t i = 0; i < tensor.num_bytes(); ++i) bytes[i] = static_cast<uint8_t>(Next());
  }
  return tensor;
}

}  // namespace millrace::testing
