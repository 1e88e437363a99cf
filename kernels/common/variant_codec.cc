// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/variant_codec.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

// A list of many tensors of which each is "so many zeros" is not what anybody means.
constexpr int64_t kMaxFilledBytes = int64_t{256} << 20;
// Objects within objects: parsers of messages follow a hundred levels, two for each.
constexpr int kMaxDepth = 40;
// What tensor/tensor_proto.cc writes for an object that it does not know: a kernel's own.
constexpr std::string_view kStaysInProcess = "millrace::StaysInProcess";

struct Codec {
  Mutex mu;
  std::map<std::string, ObjectDecoder, std::less<>> decoders ABSL_GUARDED_BY(mu);
  ObjectEncoder encoder ABSL_GUARDED_BY(mu) = nullptr;
};

Codec& TheCodec() {
  static auto* const codec = new Codec;
  return *codec;
}

ObjectDecoder FindDecoder(std::string_view type_name) {
  Codec& codec = TheCodec();
  MutexLock lock(&codec.mu);
  const auto it = codec.decoders.find(type_name);
  return it == codec.decoders.end() ? nullptr : it->second;
}

ObjectEncoder FindEncoder() {
  Codec& codec = TheCodec();
  MutexLock lock(&codec.mu);
  return codec.encoder;
}

// What a message for one tensor or object takes in memory, whatever it holds, about.
constexpr std::size_t kMessageBytes = 512;

// What a tensor takes in a message, about.
std::size_t EncodedBytes(const Tensor& tensor) {
  if (tensor.dtype() != kString) return tensor.num_bytes();
  std::size_t bytes = 0;
  for (const std::string& text : tensor.flat<std::string>()) bytes += text.size() + 1;
  return bytes;
}

}  // namespace

void AddObjectDecoder(std::string_view type_name, ObjectDecoder decoder) {
  Codec& codec = TheCodec();
  MutexLock lock(&codec.mu);
  codec.decoders.insert_or_assign(std::string(type_name), decoder);
}

void SetObjectEncoder(ObjectEncoder encoder) {
  Codec& codec = TheCodec();
  MutexLock lock(&codec.mu);
  codec.encoder = encoder;
}

StatusOr<Tensor> ObjectDecoding::TensorWithin(const pb::TensorProto& proto) {
  if (proto.tensor_content().empty()) {
    // Before memory is taken. Shapes that cannot be are refused below.
    auto bytes = static_cast<int64_t>(DataTypeSize(static_cast<DataType>(proto.dtype())));
    for (const auto& dim : proto.tensor_shape().dim()) {
      if (dim.size() < 0 || __builtin_mul_overflow(bytes, dim.size(), &bytes)) {
        bytes = kMaxFilledBytes;
        break;
      }
    }
    filled_bytes_ += std::min(bytes, kMaxFilledBytes);
    if (filled_bytes_ >= kMaxFilledBytes) {
      return errors::ResourceExhausted("the tensors of a variant are too large to be filled ",
                                       "from lists");
    }
  }
  MR_ASSIGN_OR_RETURN(const Tensor tensor, TensorFromProto(proto));
  return Objects(tensor);
}

StatusOr<Tensor> ObjectDecoding::Objects(const Tensor& tensor) {
  if (tensor.dtype() != kVariant) return tensor;
  pb::TensorProto proto;
  TensorToProto(tensor, &proto);
  const auto needs_decoding = [](const pb::VariantTensorDataProto& object) {
    return !object.type_name().empty() && object.type_name() != kStaysInProcess;
  };
  const auto& objects = proto.variant_val();
  if (std::none_of(objects.begin(), objects.end(), needs_decoding)) return tensor;
  if (depth_ >= kMaxDepth) {
    return errors::ResourceExhausted("variants within variants, more than ", kMaxDepth, " deep");
  }
  ++depth_;
  MR_ASSIGN_OR_RETURN(Tensor decoded, Tensor::Allocate(kVariant, tensor.shape()));
  for (int i = 0; i < objects.size(); ++i) {
    if (!needs_decoding(objects[i])) {
      decoded.data<Variant>()[i] = tensor.data<Variant>()[i];
      continue;
    }
    const ObjectDecoder decoder = FindDecoder(objects[i].type_name());
    if (decoder == nullptr) {
      return errors::InvalidArgument("Could not decode variant with type_name: \"",
                                     objects[i].type_name(), "\"");
    }
    MR_ASSIGN_OR_RETURN(decoded.data<Variant>()[i], decoder(objects[i], *this));
  }
  --depth_;
  return decoded;
}

bool ObjectEncoding::Take(std::size_t bytes) {
  if (bytes_left_ >= 0) bytes_left_ -= static_cast<int64_t>(bytes + kMessageBytes);
  return bytes_left_ >= 0;
}

bool ObjectEncoding::AddObject(const RefCounted& object, pb::VariantTensorDataProto* proto) {
  const ObjectEncoder encoder = FindEncoder();
  if (encoder == nullptr || depth_ >= kMaxDepth || !Take(0)) return false;
  ++depth_;
  const bool encoded = encoder(object, *this, proto);
  --depth_;
  return encoded;
}

bool ObjectEncoding::AddTensor(const Tensor& tensor, pb::TensorProto* proto) {
  if (!Take(EncodedBytes(tensor))) return false;
  if (tensor.dtype() != kVariant) {
    TensorToProto(tensor, proto);
    return true;
  }
  proto->set_dtype(static_cast<pb::DataType>(kVariant));
  ShapeToProto(tensor.shape(), proto->mutable_tensor_shape());
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const RefCounted* const object = tensor.data<Variant>()[i].get();
    pb::VariantTensorDataProto* const to = proto->add_variant_val();
    if (object != nullptr && !AddObject(*object, to)) return false;
  }
  return true;
}

StatusOr<Tensor> DecodedObjects(const Tensor& tensor) { return ObjectDecoding().Objects(tensor); }

StatusOr<Tensor> EncodedObjects(const Tensor& tensor) {
  if (tensor.dtype() != kVariant) return tensor;
  pb::TensorProto proto;
  proto.set_dtype(static_cast<pb::DataType>(kVariant));
  ShapeToProto(tensor.shape(), proto.mutable_tensor_shape());
  std::vector<int64_t> left;
  ObjectEncoding encoding;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const RefCounted* const object = tensor.data<Variant>()[i].get();
    pb::VariantTensorDataProto* const to = proto.add_variant_val();
    if (object == nullptr || encoding.AddObject(*object, to)) continue;
    if (encoding.too_large()) {
      return errors::ResourceExhausted(
          "the objects of a variant of shape ", tensor.shape().DebugString(),
          " are too large for a message or a file: a tensor is written wherever it is held, and "
          "all together may take 1 GiB");
    }
    to->Clear();
    left.push_back(i);
  }
  MR_ASSIGN_OR_RETURN(Tensor encoded, TensorFromProto(proto));
  for (const int64_t i : left) encoded.data<Variant>()[i] = tensor.data<Variant>()[i];
  return encoded;
}

}  // namespace millrace
