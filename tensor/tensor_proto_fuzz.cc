// Any bytes that parse as a TensorProto either are refused or give a tensor that survives
// the round trip.
#include <cstdint>

#include "base/log.h"
#include "tensor/tensor_proto.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace millrace;  // NOLINT
  // A list may stand for a far larger tensor; without a bound on it the fuzzer only finds
  // slowness.
  constexpr int64_t kMaxElements = 1 << 16;
  pb::TensorProto proto;
  if (!proto.ParseFromArray(data, static_cast<int>(size))) return 0;
  int64_t elements = 1;
  for (const auto& dim : proto.tensor_shape().dim()) {
    if (dim.size() > 0 && __builtin_mul_overflow(elements, dim.size(), &elements)) return 0;
  }
  if (proto.tensor_content().empty() && elements > kMaxElements) return 0;
  const StatusOr<Tensor> tensor = TensorFromProto(proto);
  if (!tensor.ok()) return 0;
  pb::TensorProto written;
  TensorToProto(*tensor, &written);
  StatusOr<Tensor> again = TensorFromProto(written);
  MR_CHECK(again.ok());
  MR_CHECK(TensorsEqual(*again, *tensor));
  TensorToReadableProto(*tensor, &written);
  again = TensorFromProto(written);
  MR_CHECK(again.ok());
  (void)tensor->DebugString();
  return 0;
}
