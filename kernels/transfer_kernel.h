// SPDX-License-Identifier: Apache-2.0
// What sends and receives have in common.
#ifndef KERNELS_TRANSFER_KERNEL_H_
#define KERNELS_TRANSFER_KERNEL_H_

#include <string>
#include <string_view>

#include "base/errors.h"
#include "base/strings.h"
#include "kernels/kernel_context.h"
#include "ops/early_receive.h"
#include "rendezvous/rendezvous.h"

namespace millrace {

// Everything of the key but frame and iteration is known when the kernel is made.
class TransferKernel : public Kernel {
 public:
  explicit TransferKernel(KernelConstruction& c)
      : Kernel(c), is_early_(c.attrs().GetOr<bool>(kEarlyReceive, false)) {
    RendezvousKey key;
    key.src_device = c.attr<std::string>("send_device");
    key.src_incarnation = static_cast<uint64_t>(c.attr<int64_t>("send_device_incarnation"));
    key.dst_device = c.attr<std::string>("recv_device");
    key.edge_name = c.attr<std::string>("tensor_name");
    root_key_ = key.ToString();
    prefix_ = root_key_.substr(0, root_key_.rfind(';') + 1);
  }
  bool IsExpensive() const override { return false; }

  // The key outside of loops.
  const std::string& root_key() const { return root_key_; }
  // Of a receive from another task: whether its value comes before this task has sent anything.
  bool is_early() const { return is_early_; }

 protected:
  // The key of this execution; `buffer` holds it if it had to be written.
  std::string_view Key(const KernelContext& ctx, std::string* buffer) const {
    if (ctx.frame_id() == 0 && ctx.iteration() == 0) return root_key_;
    *buffer = StrCat(prefix_, ctx.frame_id(), ":", ctx.iteration());
    return *buffer;
  }
  Status NoRendezvous() const {
    return errors::Internal("the step has no rendezvous, which ", def().name(), " needs");
  }

 private:
  const bool is_early_;
  std::string root_key_, prefix_;
};

}  // namespace millrace

#endif  // KERNELS_TRANSFER_KERNEL_H_
