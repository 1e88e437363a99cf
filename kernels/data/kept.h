// SPDX-License-Identifier: Apache-2.0
// What data sets keep from one walk to the next: in the data set itself, or, where its op says
// `_continues`, in the session, so that a data set made anew by a later step goes on.
#ifndef KERNELS_DATA_KEPT_H_
#define KERNELS_DATA_KEPT_H_

#include <functional>
#include <string>

#include "device/resource_manager.h"
#include "kernels/kernel_context.h"
#include "kernels/state/session_tensors.h"

namespace millrace {

inline constexpr char kContinues[] = "_continues";

// The session's `T` of this name, made by `make` the first time. Where there is no session (a
// function that a data set calls), or with `continues` false: a new one each time.
template <typename T>
StatusOr<RefPtr<T>> KeptBySession(KernelContext& ctx, bool continues, const std::string& name,
                                  const std::function<RefPtr<T>()>& make) {
  auto* const session = static_cast<SessionTensors*>(ctx.env().session_state);
  if (!continues || session == nullptr) return make();
  return ctx.resources()->LookupOrCreate<T>(session->PrivateContainer(ctx.resources()), name,
                                            [&]() -> StatusOr<RefPtr<T>> { return make(); });
}

}  // namespace millrace

#endif  // KERNELS_DATA_KEPT_H_
