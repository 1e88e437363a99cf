// SPDX-License-Identifier: Apache-2.0
// Elements of variants in graphs, messages and files, in TensorFlow's form
// (VariantTensorDataProto): a name of the type, bytes, and tensors, which may be of type variant
// again. What tensor_proto.h reads are objects that keep this form; kernels that take tensors from
// elsewhere, or give them away, pass them through here.
#ifndef KERNELS_COMMON_VARIANT_CODEC_H_
#define KERNELS_COMMON_VARIANT_CODEC_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

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
struct PlainValue : public RefCounted {
  PlainValue(std::string name, Tensor tensor)
      : type_name(std::move(name)), value(std::move(tensor)) {}

  const std::string type_name;
  const Tensor value;
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
// False if the object, or one in it, has no such form, or if it lies in more than `depth` others
// may be.
using ObjectEncoder = bool (*)(const RefCounted& object, int depth,
                               pb::VariantTensorDataProto* proto);

// For objects with this name of their type, from now on in the whole process; the same again
// changes nothing. Any thread.
void AddObjectDecoder(std::string_view type_name, ObjectDecoder decoder);
// For all objects.
void SetObjectEncoder(ObjectEncoder encoder);

// For the encoder: a tensor that an object holds. False as the encoder's.
bool TensorWithinToProto(const Tensor& tensor, int depth, pb::TensorProto* proto);

// A tensor from elsewhere, its objects decoded: itself if there are none to decode. InvalidArgument
// if a type is not known or an object is damaged. Any thread.
StatusOr<Tensor> DecodedObjects(const Tensor& tensor);
// The reverse. Objects without such a form are left: tensor_proto.h says so to whoever reads the
// message.
StatusOr<Tensor> EncodedObjects(const Tensor& tensor);

}  // namespace millrace

#endif  // KERNELS_COMMON_VARIANT_CODEC_H_
