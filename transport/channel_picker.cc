// SPDX-License-Identifier: Apache-2.0
#include "transport/channel_picker.h"

#include <utility>

namespace millrace {

ChannelPicker::ChannelPicker(std::string task, std::vector<const Connections*> fast,
                             Channel* always)
    : task_(std::move(task)), fast_(std::move(fast)), always_(always) {
  std::erase(fast_, nullptr);
}

RefPtr<ConnectedChannel> ChannelPicker::Find(std::string_view method) const {
  for (const Connections* connections : fast_) {
    RefPtr<ConnectedChannel> channel = connections->FindChannel(task_);
    if (channel && channel->Carries(method)) return channel;
  }
  return nullptr;
}

void ChannelPicker::Call(const char* method, const CallOptions& options, WireWriter request,
                         Done done, const CallTerms& terms) {
  const RefPtr<ConnectedChannel> fast = Find(method);
  Channel* const channel = fast ? fast.get() : always_;
  channel->Call(method, options, std::move(request), std::move(done), terms);
}

void ChannelPicker::Notify(const char* method, const CallOptions& options, WireWriter message,
                           std::function<void(Status)> told) {
  const RefPtr<ConnectedChannel> fast = Find(method);
  Channel* const channel = fast ? fast.get() : always_;
  channel->Notify(method, options, std::move(message), std::move(told));
}

bool ChannelPicker::waits() const {
  for (const Connections* connections : fast_) {
    const RefPtr<ConnectedChannel> channel = connections->FindChannel(task_);
    if (channel && channel->waits()) return true;
  }
  return always_->waits();
}

void ChannelPicker::FailWaiting(const Status& why) {
  always_->FailWaiting(why);
  for (const Connections* connections : fast_) {
    if (const RefPtr<ConnectedChannel> channel = connections->FindChannel(task_)) {
      channel->FailWaiting(why);
    }
  }
}

}  // namespace millrace
