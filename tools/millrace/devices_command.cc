// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/devices_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "base/errors.h"
#include "millrace/gpu.h"

namespace millrace {
namespace {

int ListDevices(bool require_gpu) {
  std::printf("CPU:0  %u threads\n", std::thread::hardware_concurrency());
  const StatusOr<std::vector<GpuInfo>> gpus = FindGpus();
  if (!gpus.ok()) {
    std::printf("no GPU: %s\n", std::string(Message(gpus.status())).c_str());
    return require_gpu ? 1 : 0;
  }
  for (std::size_t i = 0; i < gpus->size(); ++i) {
    const GpuInfo& gpu = (*gpus)[i];
    std::printf("GPU:%zu  %s, %.1f GiB\n", i, gpu.description.c_str(),
                static_cast<double>(gpu.memory) / (1 << 30));
  }
  return 0;
}

}  // namespace

void AddDevicesCommand(CLI::App* app, std::function<int()>* chosen) {
  auto require_gpu = std::make_shared<bool>(false);
  CLI::App* const command = app->add_subcommand(
      "devices", "list the devices of this machine, or what is missing for its GPUs");
  command->add_flag("--require_gpu", *require_gpu, "exit with 1 if there is no GPU");
  command->callback(
      [require_gpu, chosen] { *chosen = [require_gpu] { return ListDevices(*require_gpu); }; });
}

}  // namespace millrace
