// GPUs. Products and sums have another order there than on the CPU.
#include "millrace/gpu.h"
#include "tests/device_conformance/kinds.h"

namespace millrace::testing {

std::vector<Kind> SessionKinds() {
  return {{"gpu", "GPU", 0, 2}, {"gpu_in_one_thread", "GPU", 0, -1}};
}

std::vector<Kind> TrainingKinds() { return {{"gpu", "GPU", 0, 2, 2e-4}}; }

std::string Obstacle() {
  static const auto* const obstacle = new std::string([]() -> std::string {
    const auto gpus = FindGpus();
    return gpus.ok() ? "" : std::string(gpus.status().message());
  }());
  return *obstacle;
}

}  // namespace millrace::testing
