// SPDX-License-Identifier: Apache-2.0
// The channel of a task that has several: each call takes the fastest one that is up.
#ifndef TRANSPORT_CHANNEL_PICKER_H_
#define TRANSPORT_CHANNEL_PICKER_H_

#include <string>
#include <string_view>
#include <vector>

#include "transport/channel.h"

namespace millrace {

// Thread-safe.
class ChannelPicker final : public Channel {
 public:
  // For calls of `task`: over the first of `fast` that has a connection which carries the method,
  // else over `always`. Nulls in `fast` are left out. All must outlive the picker's calls.
  ChannelPicker(std::string task, std::vector<const Connections*> fast, Channel* always);

  void Call(const char* method, const CallOptions& options, WireWriter request, Done done,
            const CallTerms& terms = CallTerms()) override;
  void Notify(const char* method, const CallOptions& options, WireWriter message,
              std::function<void(Status)> told) override;
  // Of all its channels.
  bool waits() const override;
  void FailWaiting(const Status& why) override;

 private:
  RefPtr<ConnectedChannel> Find(std::string_view method) const;

  const std::string task_;
  std::vector<const Connections*> fast_;  // constant
  Channel* const always_;
};

}  // namespace millrace

#endif  // TRANSPORT_CHANNEL_PICKER_H_
