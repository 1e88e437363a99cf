// SPDX-License-Identifier: Apache-2.0
// Any bytes that parse as a TensorProto either are refused or give a tensor that survives
// the round trip.
#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "tensor/fuzz_guard.h"
#include "tensor/tensor_proto.h"

namespace millrace {
std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  const std::vector<Tensor> tensors = {
      Tensor::FromValues<float>({1, -2, 0.5f, 4, 5, 6}, Shape({2, 3})),
      Tensor::FromValues<int64_t>({1, -1, int64_t{1} << 60}),
      Tensor::Scalar<bool>(true),
      Tensor::FromValues<std::string>({"a", "", std::string(300, 'x')}),
      Tensor(kDouble, {3, 0}),
      Tensor::FromValues<Half>({Half(1.0f), Half(-2.0f)})};
  for (const Tensor& tensor : tensors) {
    pb::TensorProto proto;
    TensorToProto(tensor, &proto);
    seeds.push_back(proto.SerializeAsString());
    TensorToReadableProto(tensor, &proto);
    seeds.push_back(proto.SerializeAsString());
  }
  // An object, one within another, and none.
  pb::TensorProto proto;
  proto.set_dtype(pb::DT_VARIANT);
  proto.mutable_tensor_shape()->add_dim()->set_size(3);
  proto.add_variant_val()->set_type_name("int");
  pb::VariantTensorDataProto* const list = proto.add_variant_val();
  list->set_type_name("tensorflow::TensorList");
  *list->add_tensors() = proto;
  seeds.push_back(proto.SerializeAsString());
  return seeds;
}
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace millrace;  // NOLINT
  pb::TensorProto proto;
  if (!proto.ParseFromArray(data, static_cast<int>(size)) || StandsForMuch(proto)) return 0;
  const StatusOr<Tensor> tensor = TensorFromProto(proto);
  if (!tensor.ok()) return 0;
  pb::TensorProto written;
  TensorToProto(*tensor, &written);
  StatusOr<Tensor> again = TensorFromProto(written);
  MR_CHECK(again.ok());
  if (tensor->dtype() == kVariant) {
    pb::TensorProto once_more;
    TensorToProto(*again, &once_more);
    MR_CHECK(once_more.SerializeAsString() == written.SerializeAsString());
  } else {
    MR_CHECK(TensorsEqual(*again, *tensor));
  }
  TensorToReadableProto(*tensor, &written);
  again = TensorFromProto(written);
  MR_CHECK(again.ok());
  (void)tensor->DebugString();
  return 0;
}
