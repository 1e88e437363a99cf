// SPDX-License-Identifier: Apache-2.0
// The only codec between Tensor and the wire's TensorProto, in both its forms: the message,
// and the message's bytes written around the tensor's buffer without copying it.
#ifndef TENSOR_TENSOR_PROTO_H_
#define TENSOR_TENSOR_PROTO_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "proto/tensor.pb.h"
#include "proto/tensor_shape.pb.h"

namespace millrace {

// Accepts every form a TensorFlow peer writes: tensor_content, typed lists (short lists
// repeat their last value, an empty one means zeros). InvalidArgument "Cannot parse tensor
// from proto" with the reason otherwise. Sizes are checked before memory is taken.
StatusOr<Tensor> TensorFromProto(const pb::TensorProto& proto);

// tensor_content for plain types and strings (lengths, then bytes), messages for handles.
void TensorToProto(const Tensor& tensor, pb::TensorProto* proto);
// As Python clients write small tensors: typed lists (used in text dumps of Const).
void TensorToReadableProto(const Tensor& tensor, pb::TensorProto* proto);

PartialShape ShapeFromProto(const pb::TensorShapeProto& proto);
void ShapeToProto(const PartialShape& shape, pb::TensorShapeProto* proto);

// The serialized TensorProto of a memcpyable tensor is `prefix` followed by the tensor's
// bytes (tensor_content comes last, as TensorFlow writes it). Appends the prefix: field
// headers up to and including the length of the content. The whole length is
// prefix + num_bytes(). Precondition: IsMemcpyable(tensor.dtype()).
void AppendTensorProtoPrefix(const Tensor& tensor, std::string* prefix);

// What a decoder learns before the content: enough to allocate the destination. See
// distributed_runtime/grpc for the reader over slices.
struct TensorHeader {
  DataType dtype = DataType::kInvalid;
  Shape shape;
  std::size_t content_bytes = 0;
};

// The OrderedCode-free form of strings used by tensor_content and checkpoints: varint
// lengths, then the bytes. InvalidArgument if lengths and bytes disagree.
void EncodeStrings(const Tensor& tensor, std::string* out);
Status DecodeStrings(std::string_view bytes, Tensor* tensor);

}  // namespace millrace

#endif  // TENSOR_TENSOR_PROTO_H_
