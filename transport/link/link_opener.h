// SPDX-License-Identifier: Apache-2.0
// Opens a link to one task when somebody is about to have steps there.
#ifndef TRANSPORT_LINK_LINK_OPENER_H_
#define TRANSPORT_LINK_LINK_OPENER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "base/calls/call_options.h"
#include "base/mutex.h"
#include "proto/link.pb.h"
#include "transport/channel.h"
#include "transport/link/link_hub.h"

namespace millrace {

// Thread-safe. Who has no link is asked for one at most every 30 s, and a server of another
// make once.
class LinkOpener {
 public:
  // `hub` (null: there are no links) and `channel`, over which the task is asked, must outlive the
  // opener.
  LinkOpener(std::string task, LinkHub* hub, Channel* channel);
  ~LinkOpener() { CloseAndWait(); }
  LinkOpener(const LinkOpener&) = delete;
  LinkOpener& operator=(const LinkOpener&) = delete;

  // Goes on with `then` once there is a link to the task, or it is certain that there is none for
  // now: at the latest by the deadline of `options`, or after kLimit.
  void Ensure(const CallOptions& options, std::function<void()> then);

  // Waits for links that are being opened: no `then` runs afterwards but those of calls to
  // `channel` that have not ended. Idempotent.
  void CloseAndWait();

 private:
  static constexpr std::chrono::seconds kLimit{2};
  static constexpr int64_t kAskAgainNanos = 30'000'000'000;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  void Open(Deadline deadline, const pb::OfferLinkResponse& offer, std::function<void()> then);
  bool Enter();
  void Leave();

  const std::string task_;
  LinkHub* const hub_;
  Channel* const channel_;
  std::atomic<int64_t> ask_again_{0};  // when, by SteadyNanos

  // Links that are being opened: the timer's thread, and the hub's, may be about to call.
  Mutex mu_;
  CondVar none_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace

#endif  // TRANSPORT_LINK_LINK_OPENER_H_
