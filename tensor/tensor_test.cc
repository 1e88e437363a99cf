// SPDX-License-Identifier: Apache-2.0
#include "millrace/tensor.h"

#include <gtest/gtest.h>

#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/exceptions.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

TEST(TensorTest, DefaultIsNotInitialized) {
  EXPECT_FALSE(Tensor().IsInitialized());
  EXPECT_EQ(Tensor().DebugString(), "Tensor<not initialized>");
  EXPECT_TRUE(Tensor(kFloat, Shape({0})).IsInitialized()) << "nothing to store";
}

TEST(TensorTest, HoldsValuesInRowMajorOrder) {
  const Tensor t = Tensor::FromValues<float>({1, 2, 3, 4, 5, 6}, Shape({2, 3}));
  EXPECT_EQ(t.dtype(), kFloat);
  EXPECT_EQ(t.num_bytes(), 24u);
  EXPECT_EQ(t.flat<float>()[4], 5.0f);
  EXPECT_EQ(t.DebugString(3), "Tensor<float [2,3]: 1 2 3 ...>");
  EXPECT_EQ(Tensor::Scalar(int64_t{7}).scalar<int64_t>(), 7);
}

TEST(TensorTest, BuffersAreAligned) {
  for (const int64_t n : {1, 3, 100, 1 << 20}) {
    const Tensor t(kUint8, Shape({n}));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw_data()) % kTensorAlignment, 0u);
  }
}

TEST(TensorTest, StringsAndHandlesStartEmpty) {
  const Tensor strings(kString, Shape({3}));
  for (const std::string& s : strings.flat<std::string>()) EXPECT_EQ(s, "");
  const Tensor handles(kResource, Shape({2}));
  for (const ResourceHandle& h : handles.flat<ResourceHandle>()) EXPECT_EQ(h.name, "");
  EXPECT_EQ(Tensor::String("a\n").DebugString(), "Tensor<string []: \"a\\n\">");
}

TEST(TensorTest, CopiesShareTheBufferAndClonesDoNot) {
  Tensor a = Tensor::FromValues<int32_t>({1, 2});
  EXPECT_TRUE(a.OwnsBufferAlone());
  const Tensor b = a;
  EXPECT_FALSE(a.OwnsBufferAlone());
  const Tensor c = a.Clone();
  a.data<int32_t>()[0] = 9;
  EXPECT_EQ(b.flat<int32_t>()[0], 9);
  EXPECT_EQ(c.flat<int32_t>()[0], 1);
  const Tensor s = Tensor::FromValues<std::string>({"x", "y"});
  EXPECT_TRUE(TensorsEqual(s, s.Clone()));
}

TEST(TensorTest, NoTensorHasAShapeThatWraps) {
  const Shape wraps({922337203685477581, 20});  // 4 elements, modulo 2^64
  for (const DataType dtype : {kUint8, kFloat, kString, kVariant}) {
    const Status status = Tensor::Allocate(HostAllocator(), dtype, wraps).status();
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
    EXPECT_NE(Message(status).find("[922337203685477581,20]"), std::string::npos) << status;
  }
  EXPECT_THROW(Tensor(kUint8, wraps), std::bad_alloc);
  EXPECT_TRUE(errors::IsInvalidArgument(Tensor(kFloat, Shape({4})).Reshaped(wraps).status()));
  EXPECT_TRUE(
      errors::IsInvalidArgument(Tensor(kFloat, Shape({0}))
                                    .Reshaped(Shape({0, int64_t{1} << 32, int64_t{1} << 32}))
                                    .status()));
}

TEST(TensorTest, MemoryThatIsNotThereIsAStatusOrAnException) {
  const Shape large({int64_t{1} << 61});
  EXPECT_TRUE(
      errors::IsResourceExhausted(Tensor::Allocate(HostAllocator(), kFloat, large).status()));
  const Status status = Guarded([&]() -> Status {
    Tensor tensor(kUint8, large);
    return OkStatus();
  });
  EXPECT_TRUE(errors::IsResourceExhausted(status)) << status;
  EXPECT_NE(Message(status).find("[2305843009213693952]"), std::string::npos) << status;
}

TEST(TensorTest, ReshapeKeepsTheElementsAndTheirNumber) {
  const Tensor t = Tensor::FromValues<int32_t>({1, 2, 3, 4});
  const StatusOr<Tensor> reshaped = t.Reshaped(Shape({2, 2}));
  ASSERT_TRUE(reshaped.ok());
  EXPECT_EQ(reshaped->raw_data(), t.raw_data());
  EXPECT_TRUE(errors::IsInvalidArgument(t.Reshaped(Shape({3})).status()));
}

TEST(TensorTest, SliceTakesRows) {
  const Tensor t = Tensor::FromValues<int32_t>({1, 2, 3, 4, 5, 6}, Shape({3, 2}));
  const Tensor rows = t.Slice(1, 3);
  EXPECT_EQ(rows.shape(), Shape({2, 2}));
  EXPECT_EQ(rows.flat<int32_t>()[0], 3);
  EXPECT_EQ(rows.buffer(), t.buffer());
  EXPECT_EQ(t.Slice(2, 2).num_elements(), 0);
}

TEST(TensorTest, BitcastKeepsTheBytes) {
  const Tensor t = Tensor::Scalar(1.0f);
  EXPECT_EQ(t.BitcastTo(kUint32).scalar<uint32_t>(), 0x3f800000u);
}

TEST(TensorTest, EqualityIsOfTypeShapeAndBytes) {
  const Tensor a = Tensor::FromValues<float>({1, 2});
  EXPECT_TRUE(TensorsEqual(a, Tensor::FromValues<float>({1, 2})));
  EXPECT_FALSE(TensorsEqual(a, Tensor::FromValues<float>({1, 3})));
  EXPECT_FALSE(TensorsEqual(a, Tensor::FromValues<double>({1, 2})));
  EXPECT_FALSE(TensorsEqual(a, *a.Reshaped(Shape({2, 1}))));
  EXPECT_TRUE(TensorsEqual(Tensor(), Tensor()));
  ResourceHandle handle;
  handle.name = "v";
  EXPECT_TRUE(TensorsEqual(Tensor::Scalar(handle), Tensor::Scalar(handle)));
  EXPECT_FALSE(TensorsEqual(Tensor::Scalar(handle), Tensor::Scalar(ResourceHandle())));
}

TEST(TensorTest, VariantsShareTheirObjects) {
  class Object : public RefCounted {};
  using Element = RefPtr<RefCounted>;
  Tensor a(kVariant, Shape({2}));
  static_cast<Element*>(a.raw_data())[1] = MakeRef<Object>();
  const Tensor b = a.Clone();
  EXPECT_TRUE(TensorsEqual(a, b));
  EXPECT_NE(a.raw_data(), b.raw_data());
  EXPECT_EQ(a.DebugString(), "Tensor<variant [2]: <empty> <object>>");
  static_cast<Element*>(a.raw_data())[1] = MakeRef<Object>();
  EXPECT_FALSE(TensorsEqual(a, b));
}

TEST(TensorTest, AllocateReportsWhatCannotBe) {
  const Shape huge({int64_t{1} << 60});
  EXPECT_TRUE(
      errors::IsResourceExhausted(Tensor::Allocate(HostAllocator(), kDouble, huge).status()));
  EXPECT_TRUE(
      errors::IsResourceExhausted(Tensor::Allocate(HostAllocator(), kString, huge).status()));
  EXPECT_TRUE(errors::IsInvalidArgument(
      Tensor::Allocate(HostAllocator(), MakeRefType(kFloat), Shape()).status()));
}

// What a checked call says; its line is `line`.
template <typename Call>
void ExpectMisuse(const Call& call, int line, std::string_view text) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown: " << text;
  } catch (const BadTensorAccess& e) {
    EXPECT_NE(std::string_view(e.what()).find(text), std::string_view::npos) << e.what();
    const std::string place = "(at tensor_test.cc:" + std::to_string(line) + ")";
    EXPECT_NE(std::string_view(e.what()).find(place), std::string_view::npos) << e.what();
  }
}

TEST(TensorTest, MisuseSaysWhatIsWrongInWhichLine) {
  Tensor t = Tensor::FromValues<float>({1, 2, 3});
  const Tensor& same = t;
  ExpectMisuse([&] { t.data<double>(); }, __LINE__,
               "data<double>(): the elements are float, not double (tensor of float [3])");
  ExpectMisuse([&] { same.data<int64_t>(); }, __LINE__, "data<int64>(): the elements are float");
  ExpectMisuse([&] { t.flat<int32_t>(); }, __LINE__, "data<int32>(): the elements are float");
  ExpectMisuse([&] { same.flat<std::string>(); }, __LINE__, "not string");
  ExpectMisuse([&] { Tensor().flat<float>(); }, __LINE__, "has no value yet");
  ExpectMisuse([&] { t.scalar<float>(); }, __LINE__,
               "scalar(): a tensor of float [3] has 3 elements, not one");
  ExpectMisuse([&] { t.Slice(1, 2).scalar<int32_t>(); }, __LINE__, "the elements are float");
  ExpectMisuse([&] { t.Slice(2, 9); }, __LINE__,
               "Slice(): rows 2 to 9 of a tensor of float [3]: not within its first axis");
  ExpectMisuse([&] { t.Slice(2, 1); }, __LINE__, "not within its first axis");
  ExpectMisuse([&] { Tensor::Scalar(1).Slice(0, 1); }, __LINE__, "a scalar has no rows");
  ExpectMisuse([&] { Tensor::FromValues<float>({1, 2, 3}, Shape({2, 2})); }, __LINE__,
               "FromValues(): 3 values for a tensor of float [2,2], which has 4 elements");
  ExpectMisuse([&] { t.BitcastTo(kDouble); }, __LINE__, "are no bytes of double");
}

TEST(TensorTest, AShapeThatCannotBeSaysSoWithTheLine) {
  const int line = __LINE__ + 2;
  try {
    Tensor(kFloat, {-1, 3});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::bad_alloc& e) {
    EXPECT_NE(std::string_view(e.what()).find("negative size -1"), std::string_view::npos)
        << e.what();
    EXPECT_NE(std::string_view(e.what()).find("tensor_test.cc:" + std::to_string(line)),
              std::string_view::npos)
        << e.what();
  }
  EXPECT_TRUE(errors::IsInvalidArgument(Tensor::Allocate(kFloat, Shape({-1, 3})).status()));
  EXPECT_TRUE(errors::IsResourceExhausted(
      Tensor::Allocate(kFloat, Shape({int64_t{1} << 40, 1 << 20})).status()));
}

TEST(TensorTest, WhatComesFromOutsideIsAskedForWithAStatus) {
  const Tensor t = Tensor::FromValues<float>({1, 2, 3});
  EXPECT_EQ((*t.TryFlat<float>())[2], 3);
  EXPECT_EQ(*t.Slice(1, 2).TryScalar<float>(), 2);
  EXPECT_EQ(t.TrySlice(1, 3)->num_elements(), 2);
  EXPECT_TRUE(errors::IsInvalidArgument(t.TryFlat<double>().status()));
  EXPECT_TRUE(errors::IsInvalidArgument(t.TryScalar<float>().status()));
  EXPECT_TRUE(errors::IsInvalidArgument(t.TryScalar<int32_t>().status()));
  EXPECT_TRUE(errors::IsInvalidArgument(t.TrySlice(2, 9).status()));
  EXPECT_TRUE(errors::IsInvalidArgument(Tensor().TryFlat<float>().status()));
  const std::vector<float> three = {1, 2, 3};
  EXPECT_TRUE(
      errors::IsInvalidArgument(Tensor::TryFromValues<float>(three, Shape({2, 2})).status()));
  EXPECT_TRUE(TensorsEqual(*Tensor::TryFromValues<float>(three, Shape({3})), t));
}

}  // namespace
}  // namespace millrace
