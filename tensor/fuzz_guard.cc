// SPDX-License-Identifier: Apache-2.0
#include "tensor/fuzz_guard.h"

#include <cstdint>
#include <vector>

#include "proto/tensor.pb.h"

namespace millrace {
namespace {

constexpr int64_t kMaxElements = 1 << 16;

bool TensorStandsForMuch(const pb::TensorProto& proto) {
  int64_t elements = 1;
  for (const auto& dim : proto.tensor_shape().dim()) {
    if (dim.size() > 0 && __builtin_mul_overflow(elements, dim.size(), &elements)) return true;
  }
  return proto.tensor_content().empty() && elements > kMaxElements;
}

}  // namespace

bool StandsForMuch(const google::protobuf::Message& message) {
  if (const auto* tensor = dynamic_cast<const pb::TensorProto*>(&message)) {
    if (TensorStandsForMuch(*tensor)) return true;
  }
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection* const reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      if (StandsForMuch(reflection->GetMessage(message, field))) return true;
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      if (StandsForMuch(reflection->GetRepeatedMessage(message, field, i))) return true;
    }
  }
  return false;
}

}  // namespace millrace
