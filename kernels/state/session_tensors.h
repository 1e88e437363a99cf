// SPDX-License-Identifier: Apache-2.0
// What a session keeps at a worker between steps: tensors that a client left, by handle, and
// resources that no other session finds.
#ifndef KERNELS_STATE_SESSION_TENSORS_H_
#define KERNELS_STATE_SESSION_TENSORS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/string_map.h"
#include "device/resource_manager.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// One per session and worker: StepEnv::session_state points to it. Thread-safe.
class SessionTensors {
 public:
  // `owner`: the task of the session's master, `name`: the session's handle; "" if not known.
  explicit SessionTensors(std::string owner = "", std::string name = "");
  SessionTensors(const SessionTensors&) = delete;
  SessionTensors& operator=(const SessionTensors&) = delete;

  const std::string& owner() const { return owner_; }
  const std::string& name() const { return name_; }
  // Of no other session of this process; later ones have larger numbers. Positive.
  int64_t number() const { return number_; }

  // The container for what is this session's alone. What `resources` keeps in it is forgotten by
  // ForgetPrivate.
  const std::string& PrivateContainer(ResourceManager* resources);
  // When the session is closed: the managers are still there, which they need not be when the last
  // step lets go of this object.
  void ForgetPrivate();

  // Keeps `value` and gives its handle: "<node>;<number>;<device>".
  std::string Add(std::string_view node, std::string_view device, Tensor value);
  // InvalidArgument if there is none with this handle.
  StatusOr<Tensor> Get(std::string_view handle) const;
  Status Delete(std::string_view handle);

 private:
  const std::string owner_;
  const std::string container_;
  mutable Mutex mu_;
  int64_t next_ ABSL_GUARDED_BY(mu_) = 0;
  StringMap<Tensor> tensors_ ABSL_GUARDED_BY(mu_);
  std::vector<ResourceManager*> managers_ ABSL_GUARDED_BY(mu_);
  const std::string name_;
  const int64_t number_;
};

}  // namespace millrace

#endif  // KERNELS_STATE_SESSION_TENSORS_H_
