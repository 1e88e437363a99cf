#include "runtime/gpu.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

constexpr char kType[] = "GPU";

struct Defaults {
  Mutex mu;
  GpuOptions options ABSL_GUARDED_BY(mu);
};

Defaults& TheDefaults() {
  static auto* const defaults = new Defaults;
  return *defaults;
}

std::atomic<const GpuSupport*> for_test{nullptr};

const GpuSupport& Support() {
  const GpuSupport* const support = for_test.load(std::memory_order_acquire);
  return support == nullptr ? BuiltInGpuSupport() : *support;
}

AcceleratorOptions FromDefaults(const GpuOptions& options) {
  return {options.memory_fraction, options.allow_growth, options.visible, {}};
}

}  // namespace

void RegisterGpuKernels(const OpRegistry& ops, KernelRegistry& registry) {
  Support().register_kernels(ops, registry);
}

void SetGpuSupportForTest(const GpuSupport* support) {
  for_test.store(support, std::memory_order_release);
}

Status SetGpuOptions(const GpuOptions& options) {
  if (options.count < -1) {
    return errors::InvalidArgument("a process can have 0 GPUs or more, or -1 for all, not ",
                                   options.count);
  }
  if (!(options.memory_fraction >= 0 && options.memory_fraction <= 1)) {
    return errors::InvalidArgument("the fraction of a GPU's memory must be from 0 to 1, not ",
                                   options.memory_fraction);
  }
  if (options.count > 0) {
    MR_ASSIGN_OR_RETURN(const int there, Support().count(FromDefaults(options)));
    if (there < options.count) {
      return errors::NotFound("there are ", there, " GPUs, not ", options.count);
    }
  }
  Defaults& defaults = TheDefaults();
  MutexLock lock(&defaults.mu);
  defaults.options = options;
  return OkStatus();
}

Status AddGpus(const pb::ConfigProto& config, DeviceFactories* factories,
               std::map<std::string, int>* counts) {
  GpuOptions defaults;
  {
    MutexLock lock(&TheDefaults().mu);
    defaults = TheDefaults().options;
  }
  const auto given = counts->find(kType);
  const int wanted = given == counts->end() ? defaults.count : given->second;
  if (given != counts->end() && (wanted < 0 || wanted > 1024)) {
    return errors::InvalidArgument("device_count[\"GPU\"] must be from 0 to 1024, not ", wanted);
  }
  (*counts)[kType] = 0;
  if (wanted == 0) return OkStatus();
  AcceleratorOptions options;
  MR_ASSIGN_OR_RETURN(options, AcceleratorOptionsFrom(config.gpu_options()));
  if (options == AcceleratorOptions()) options = FromDefaults(defaults);
  const StatusOr<int> there = Support().count(options);
  if (!there.ok()) {
    return errors::IsInvalidArgument(there.status()) ? there.status() : OkStatus();
  }
  const int count = wanted < 0 ? *there : std::min(wanted, *there);
  if (count == 0) return OkStatus();
  (*counts)[kType] = count;
  factories->push_back(Support().factory(options));
  return OkStatus();
}

}  // namespace millrace
