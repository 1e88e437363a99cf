#include "tests/device_conformance/portable_body.h"

#include <utility>
#include <vector>

#include "device/fake/fake_device.h"
#include "kernels/gpu/body.h"

namespace millrace::testing {
namespace {

// The elements where the machine's thread finds them.
Tensor AliasOf(const Tensor& value) {
  if (value.num_elements() == 0 || !value.IsInitialized()) return value;
  return Tensor(value.dtype(), value.shape(), nullptr, FakeAlias(value.raw_data()));
}

class PortableBody final : public StreamBody {
 public:
  explicit PortableBody(std::unique_ptr<gpu::Body> body) : body_(std::move(body)) {}
  int64_t ScratchBytes(const StreamCall& call) const override {
    return body_->ScratchBytes(call, gpu::HostLoops());
  }
  StatusOr<Tensor> Stage(const StreamCall& call) const override { return body_->Stage(call); }
  int64_t ReportBytes() const override { return body_->ReportBytes(); }
  Status Judge(const Tensor& report) const override { return body_->Judge(report); }
  bool stages() const override { return body_->stages(); }
  int64_t num_counts() const override { return body_->num_counts(); }
  Status Count(const StreamCall& call) const override {
    return body_->Count(Aliased(call), gpu::HostLoops(), gpu::Queue());
  }
  StatusOr<std::vector<Shape>> CountedShapes(const StreamCall& call) const override {
    return body_->CountedShapes(call);
  }
  Status Run(const StreamCall& call) const override {
    return body_->Run(Aliased(call), gpu::HostLoops(), gpu::Queue());
  }
  RecordedState recorded_state() const override { return body_->recorded_state(); }
  uint64_t Draw(const StreamCall& call) const override { return body_->Draw(call); }

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

  const std::unique_ptr<gpu::Body> body_;
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
