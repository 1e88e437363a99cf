// SPDX-License-Identifier: Apache-2.0
// Elements of variants in graphs, messages and files, in TensorFlow's form
// (VariantTensorDataProto): a name of the type, bytes, and tensors, which may be of type variant
// again. What tensor_proto.h reads are objects that keep this form; kernels that take tensors from
// elsewhere, or give them away, pass them through here.
#ifndef KERNELS_COMMON_VARIANT_CODEC_H_
#define KERNELS_COMMON_VARIANT_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/common/nesting.h"
#include "kernels/common/variant.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "proto/tensor.pb.h"

namespace millrace {

// Where an iterator of a data set stands. TensorFlow's own are called otherwise, and are made of
// what its classes keep.
inline constexpr char kIteratorPositionType[] = "millrace::IteratorPosition";

// A variant that is a tensor: "tensorflow::Tensor", kIteratorPositionType, or a scalar of type
// "int", "float", "bool" or "double". Constant.
struct PlainValue : public RefCounted, public HoldsObjects {
  PlainValue(std::string name, Tensor tensor)
      : type_name(std::move(name)), value(std::move(tensor)), within(NestingWithin(value)) {}

  int nesting() const override { return within + 1; }

  const std::string type_name;
  const Tensor value;
  const int within;  // the nesting of the tensor
};

// What is decoded at once: keeps objects within objects, and what short messages can stand for,
// within bounds.
class ObjectDecoding {
 public:
  // A tensor that an object holds, its elements decoded too. ResourceExhausted if there is too
  // much.
  StatusOr<Tensor> TensorWithin(const pb::TensorProto& proto);
  // The objects of a variant tensor; any other tensor as it is.
  StatusOr<Tensor> Objects(const Tensor& tensor);

 private:
  int depth_ = 0;
  int64_t filled_bytes_ = 0;  // of tensors whose elements are not all in the message
};

// InvalidArgument for what is not such an object.
using ObjectDecoder = StatusOr<Variant> (*)(const pb::VariantTensorDataProto& proto,
                                            ObjectDecoding& decoding);
// What is encoded at once: keeps objects within objects within bounds, and what is written again
// for every place where it is held.
class ObjectEncoding {
 public:
  // A tensor that an object holds. False as the encoder's.
  bool AddTensor(const Tensor& tensor, pb::TensorProto* proto);
  // False as the encoder's.
  bool AddObject(const RefCounted& object, pb::VariantTensorDataProto* proto);
  // Whether so much was there that what was written is not all.
  bool too_large() const { return bytes_left_ < 0; }

 private:
  bool Take(std::size_t bytes);

  int depth_ = 0;
  int64_t bytes_left_ = int64_t{1} << 30;
};

// False if the object, or one in it, has no such form, or if it lies in too many others, or if
// there is too much.
using ObjectEncoder = bool (*)(const RefCounted& object, ObjectEncoding& encoding,
                               pb::VariantTensorDataProto* proto);

// For objects with this name of their type, from now on in the whole process; the same again
// changes nothing. Any thread.
void AddObjectDecoder(std::string_view type_name, ObjectDecoder decoder);
// For all objects.
void SetObjectEncoder(ObjectEncoder encoder);

// A tensor from elsewhere, its objects decoded: itself if there are none to decode. InvalidArgument
// if a type is not known or an object is damaged. Any thread.
StatusOr<Tensor> DecodedObjects(const Tensor& tensor);
// The reverse. Objects without such a form are left: tensor_proto.h says so to whoever reads the
// message. ResourceExhausted if they hold too much: a tensor is written wherever it is held.
StatusOr<Tensor> EncodedObjects(const Tensor& tensor);

}  // namespace millrace

#endif  // KERNELS_COMMON_VARIANT_CODEC_H_
