// SPDX-License-Identifier: Apache-2.0
#include "tests/device_conformance/portable_body.h"

#include <utility>

#include "device/fake/fake_device.h"
#include "kernels/gpu/body.h"

namespace millrace::testing {
namespace {

// The elements where the machine's thread finds them.
Tensor AliasOf(const Tensor& value) {
  if (value.num_elements() == 0 || !value.IsInitialized()) return value;
  return Tensor(value.dtype(), value.shape(), nullptr, FakeAlias(value.raw_data()));
}

class PortableBody final : public gpu::BodyOnMachine {
 public:
  explicit PortableBody(std::unique_ptr<gpu::Body> body) : BodyOnMachine(std::move(body)) {}
  int64_t ScratchBytes(const StreamCall& call) const override {
    return body().ScratchBytes(call, gpu::HostLoops());
  }
  Status Count(const StreamCall& call) const override {
    return body().Count(Aliased(call), gpu::HostLoops(), gpu::Queue());
  }
  Status Run(const StreamCall& call) const override {
    return body().Run(Aliased(call), gpu::HostLoops(), gpu::Queue());
  }

 private:
  static StreamCall Aliased(StreamCall call) {
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      if (call.input_on_device[i]) call.inputs[i] = AliasOf(call.inputs[i]);
    }
    for (Tensor& output : call.outputs) output = AliasOf(output);
    for (StreamCall::Variable& variable : call.variables) {
      variable.value = AliasOf(variable.value);
    }
    call.scratch = AliasOf(call.scratch);
    call.staged = AliasOf(call.staged);
    call.counts = AliasOf(call.counts);
    if (call.drawn != nullptr) call.drawn = static_cast<const uint64_t*>(FakeAlias(call.drawn));
    return call;
  }
};

}  // namespace

std::shared_ptr<StreamBody> MakePortableBody(KernelConstruction& c) {
  const gpu::BodyDef* const def = gpu::FindBody(c);
  if (def == nullptr) return nullptr;
  std::unique_ptr<gpu::Body> body = def->make(c);
  if (body == nullptr) return nullptr;
  return std::make_shared<PortableBody>(std::move(body));
}

}  // namespace millrace::testing
