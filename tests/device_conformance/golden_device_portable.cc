// The simulated accelerator with what GPUs compute: the very loops that nvcc compiles, run by the
// machine's thread.
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "device/fake/fake_device.h"
#include "kernels/fake/fake_kernels.h"
#include "kernels/gpu/body.h"
#include "tests/device_conformance/golden_device.h"

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
  Status Run(const StreamCall& given) const override {
    StreamCall call = given;
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      if (call.input_on_device[i]) call.inputs[i] = AliasOf(call.inputs[i]);
    }
    for (Tensor& output : call.outputs) output = AliasOf(output);
    for (StreamCall::Variable& variable : call.variables) {
      variable.value = AliasOf(variable.value);
    }
    call.scratch = AliasOf(call.scratch);
    call.staged = AliasOf(call.staged);
    return body_->Run(call, gpu::HostLoops(), gpu::Queue());
  }

 private:
  const std::unique_ptr<gpu::Body> body_;
};

Mutex made_mu;
// Ops that bodies were made for.
std::set<std::string>& Made() {
  static auto* const made = new std::set<std::string>;
  return *made;
}

std::shared_ptr<StreamBody> MakePortable(KernelConstruction& c) {
  const gpu::BodyDef* const def = gpu::FindBody(c);
  if (def == nullptr) return nullptr;
  std::unique_ptr<gpu::Body> body = def->make(c);
  if (body == nullptr) return nullptr;
  MutexLock lock(&made_mu);
  Made().insert(def->op);
  return std::make_shared<PortableBody>(std::move(body));
}

}  // namespace

std::string GoldenDeviceType() { return "FAKE"; }

std::string PrepareGoldenDevice() {
  SetFakeBodies(&MakePortable);
  return "";
}

std::set<std::string> OpsWithoutACase(const std::set<std::string>& passed) {
  const std::set<std::string> exempt = OpsWithoutGoldens();
  MutexLock lock(&made_mu);
  std::set<std::string> missing;
  for (const gpu::BodyDef& body : gpu::AllBodies()) {
    if (exempt.contains(body.op)) continue;
    if (!passed.contains(body.op) || !Made().contains(body.op)) missing.insert(body.op);
  }
  return missing;
}

bool OverlooksErrorsInData() { return true; }

}  // namespace millrace::testing
