// A build without CUDA.
#include "base/errors.h"
#include "runtime/gpu.h"

namespace millrace {
namespace {

Status NoCuda() {
  return errors::Unimplemented("this program was built without CUDA: build it with --config=cuda");
}

}  // namespace

StatusOr<std::vector<GpuInfo>> FindGpus() { return NoCuda(); }
StatusOr<int> CountGpus(const AcceleratorOptions&) { return NoCuda(); }
const DeviceFactory* GpuDeviceFactory(const AcceleratorOptions&) { return nullptr; }
void RegisterGpuKernels(const OpRegistry&, KernelRegistry&) {}

}  // namespace millrace
