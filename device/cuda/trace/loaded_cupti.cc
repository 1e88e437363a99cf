// SPDX-License-Identifier: Apache-2.0
// The CUPTI of this machine, libcupti.so.13.
#include <memory>

#include "device/cuda/driver/shared_library.h"
#include "device/cuda/trace/cupti_calls.h"

namespace millrace {
namespace {

StatusOr<const CuptiCalls*> Load() {
  StatusOr<SharedLibrary> library =
      SharedLibrary::Open("libcupti.so.13", "install CUDA 13's CUPTI (cuda-cupti)");
  if (!library.ok()) return library.status();
  auto calls = std::make_unique<CuptiCalls>();
#define MR_CUPTI_FIND(name, ...)                                               \
  calls->name = reinterpret_cast<decltype(calls->name)>(library->Find(#name)); \
  if (calls->name == nullptr) return library->Lacks(#name);
  MR_CUPTI_CALLS(MR_CUPTI_FIND)
#undef MR_CUPTI_FIND
  return const_cast<const CuptiCalls*>(calls.release());
}

}  // namespace

StatusOr<const CuptiCalls*> LoadedCupti() {
  static const auto* const loaded = new StatusOr<const CuptiCalls*>(Load());
  return *loaded;
}

}  // namespace millrace
