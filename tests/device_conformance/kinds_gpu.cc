// SPDX-License-Identifier: Apache-2.0
// GPUs. Products and sums have another order there than on the CPU.
#include "millrace/gpu.h"
#include "tests/device_conformance/kinds.h"

namespace millrace::testing {

std::vector<Kind> SessionKinds() {
  return {{"gpu", "GPU", 0, 2}, {"gpu_in_one_thread", "GPU", 0, -1}};
}

std::vector<Kind> TrainingKinds() { return {{"gpu", "GPU", 0, 2, 2e-4}}; }

// A machine may have one GPU only: it is divided.
void Prepare(const Kind&, pb::ConfigProto* config) {
  config->mutable_gpu_options()->set_visible_device_list("0");
  auto* const parts = config->mutable_gpu_options()->mutable_experimental()->add_virtual_devices();
  for (int i = 0; i < 2; ++i) parts->add_memory_limit_mb(4096);
}

std::string Obstacle() {
  static const auto* const obstacle = new std::string([]() -> std::string {
    const auto gpus = FindGpus();
    return gpus.ok() ? "" : std::string(gpus.status().message());
  }());
  return *obstacle;
}

}  // namespace millrace::testing
