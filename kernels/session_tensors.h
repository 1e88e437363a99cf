// Tensors that a client left at a worker between steps, by handle.
#ifndef KERNELS_SESSION_TENSORS_H_
#define KERNELS_SESSION_TENSORS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/string_map.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// One per session and worker: StepEnv::session_state points to it. Thread-safe.
class SessionTensors {
 public:
  // Keeps `value` and gives its handle: "<node>;<number>;<device>".
  std::string Add(std::string_view node, std::string_view device, Tensor value);
  // InvalidArgument if there is none with this handle.
  StatusOr<Tensor> Get(std::string_view handle) const;
  Status Delete(std::string_view handle);

 private:
  mutable Mutex mu_;
  int64_t next_ ABSL_GUARDED_BY(mu_) = 0;
  StringMap<Tensor> tensors_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // KERNELS_SESSION_TENSORS_H_
