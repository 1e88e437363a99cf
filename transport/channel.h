// SPDX-License-Identifier: Apache-2.0
// A way to call one other task, whatever carries the bytes.
#ifndef TRANSPORT_CHANNEL_H_
#define TRANSPORT_CHANNEL_H_

#include <functional>
#include <string_view>

#include "base/calls/call_options.h"
#include "base/notification.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

namespace millrace {

// How a call shall be made, where a transport has the choice.
struct CallTerms {
  bool waits_if_down = false;   // keeps trying until the deadline instead of Unavailable at once
  bool begins_nothing = false;  // what follows from its answer is short, and waits for nothing
  // The peer does not begin the call later, if it can tell: only a transport whose two ends have
  // the same clock says so.
  Deadline begin_by = kNoDeadline;
};

// Thread-safe. Methods are those of transport/methods.h, or any "/package.Service/Method"; they
// must be literals.
class Channel {
 public:
  // The answer of an OK call: its bytes are gone after the callback, but tensors read from them
  // may share them for longer.
  using Done = std::function<void(Status status, WireReader response)>;

  // Ends by `done`, once, on any thread, also this one. It gets the peer's status, or:
  // DeadlineExceeded naming the peer; Cancelled, marked as derived, if options.cancellation was
  // cancelled; Unavailable, naming the peer, if it cannot be reached or the connection broke.
  // Errors of a method that HasEffects are marked as maybe applied unless it is certain that the
  // call never left. Nothing is tried again.
  virtual void Call(const char* method, const CallOptions& options, WireWriter request, Done done,
                    const CallTerms& terms = CallTerms()) = 0;

  // A call whose answer says nothing. `told` may be called as soon as the message is on its way,
  // with OK: nobody can do more about it.
  virtual void Notify(const char* method, const CallOptions& options, WireWriter message,
                      std::function<void(Status)> told) = 0;

  // Whether calls wait for the peer that are no questions for a sign of life.
  virtual bool waits() const = 0;
  // The peer is lost: ends those calls with `why`, and with what each was for.
  virtual void FailWaiting(const Status& why) = 0;

 protected:
  virtual ~Channel() = default;
};

// A channel over a connection that is there or is not, and that lives as long as somebody holds it.
class ConnectedChannel : public RefCounted, public Channel {
 public:
  virtual bool Carries(std::string_view method) const = 0;
};

// The connections of one transport. Thread-safe.
class Connections {
 public:
  // The one to `task`; null if there is none that works.
  virtual RefPtr<ConnectedChannel> FindChannel(std::string_view task) const = 0;

 protected:
  virtual ~Connections() = default;
};

}  // namespace millrace

#endif  // TRANSPORT_CHANNEL_H_
