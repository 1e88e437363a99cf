// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

constexpr char kType[] = "GPU";
constexpr int kMostGpus = 1024;

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

bool IsFraction(double value) { return value >= 0 && value <= 1; }

// "1,0": numbers with commas between them, none twice. Which there are is for the driver to say.
Status CheckVisible(std::string_view field, const std::string& list) {
  if (list.empty()) return OkStatus();
  std::set<int64_t> seen;
  for (const std::string_view text : StrSplit(list, ',')) {
    int64_t gpu = -1;
    if (!ParseInt64(text, &gpu) || gpu < 0) {
      return errors::InvalidArgument(field, " must be numbers of GPUs, as in \"1,0\"; in \"", list,
                                     "\" is \"", text, "\"");
    }
    if (!seen.insert(gpu).second) {
      return errors::InvalidArgument(field, " names GPU ", gpu, " twice: \"", list, "\"");
    }
  }
  return OkStatus();
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

Status ToConfig(const GpuFields& fields, pb::ConfigProto* config) {
  if (fields.num_gpu_devices < -1 || fields.num_gpu_devices > kMostGpus) {
    return errors::InvalidArgument("num_gpu_devices must be from 0 to ", kMostGpus,
                                   ", or -1 for as many as the process uses, not ",
                                   fields.num_gpu_devices);
  }
  if (!IsFraction(fields.gpu_memory_fraction)) {
    return errors::InvalidArgument(
        "gpu_memory_fraction must be from 0 to 1, where 0 is what is free, not ",
        fields.gpu_memory_fraction);
  }
  MR_RETURN_IF_ERROR(CheckVisible("visible_gpus", fields.visible_gpus));
  if (fields.num_gpu_devices >= 0) {
    (*config->mutable_device_count())[kType] = fields.num_gpu_devices;
  }
  if (fields == GpuFields{.num_gpu_devices = fields.num_gpu_devices}) return OkStatus();
  pb::GPUOptions& gpus = *config->mutable_gpu_options();
  gpus.set_per_process_gpu_memory_fraction(fields.gpu_memory_fraction);
  gpus.set_allow_growth(fields.gpu_allow_growth);
  gpus.set_visible_device_list(fields.visible_gpus);
  return OkStatus();
}

Status SetGpuOptions(const GpuOptions& options) {
  if (options.count < -1) {
    return errors::InvalidArgument("a process can have 0 GPUs or more, or -1 for all, not ",
                                   options.count);
  }
  if (!IsFraction(options.memory_fraction)) {
    return errors::InvalidArgument("the fraction of a GPU's memory must be from 0 to 1, not ",
                                   options.memory_fraction);
  }
  MR_RETURN_IF_ERROR(CheckVisible("GpuOptions.visible", options.visible));
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
  if (given != counts->end() && (wanted < 0 || wanted > kMostGpus)) {
    return errors::InvalidArgument("device_count[\"GPU\"] must be from 0 to ", kMostGpus, ", not ",
                                   wanted);
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
