// SPDX-License-Identifier: Apache-2.0
// Strategies by name, for a flag.
#include "base/errors.h"
#include "millrace/strategy.h"

namespace millrace {

StatusOr<std::shared_ptr<Strategy>> MakeStrategy(std::string_view name,
                                                 const StrategyOptions& options) {
  if (options.communication.bytes_per_pack < 0) {
    return errors::InvalidArgument("CommunicationOptions.bytes_per_pack must not be negative, and ",
                                   "is ", options.communication.bytes_per_pack);
  }
  if (options.deterministic && name != "mirrored" && name != "multi_worker_mirrored") {
    return errors::InvalidArgument("StrategyOptions.deterministic is for mirrored and ",
                                   "multi_worker_mirrored, not for '", name, "'");
  }
  if (options.deterministic && options.communication.compression != GradientCompression::kNone) {
    return errors::InvalidArgument(
        "StrategyOptions.deterministic gives the bits of one worker, which gradients rounded by ",
        "CommunicationOptions.compression do not have: leave one of the two out");
  }
  if (name == "default" || name.empty()) return DefaultStrategy();
  if (name == "one_device") return OneDeviceStrategy(options);
  if (name == "mirrored") return MirroredStrategy(options);
  if (name == "central_storage") return CentralStorageStrategy(options);
  if (name == "multi_worker_mirrored") return MultiWorkerMirroredStrategy(options);
  if (name == "parameter_server") return ParameterServerStrategy(options);
  constexpr const char* kNames =
      "default, one_device, mirrored, central_storage, multi_worker_mirrored, parameter_server";
  if (name == "tpu") {
    return errors::Unimplemented(
        "there is no strategy tpu: it needs a device that a PJRT plug-in of the TPU provides, and ",
        "none is built in; choose one of ", kNames);
  }
  return errors::InvalidArgument("there is no strategy '", name, "': choose one of ", kNames);
}

}  // namespace millrace
