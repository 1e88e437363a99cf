// SPDX-License-Identifier: Apache-2.0
// One call that a task serves, whatever it came in through.
#ifndef TRANSPORT_SERVER_CALL_H_
#define TRANSPORT_SERVER_CALL_H_

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/calls/call_options.h"
#include "base/calls/caller_host.h"
#include "base/notification.h"
#include "google/protobuf/message_lite.h"
#include "millrace/status.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

namespace millrace {

// Its owner is the server; it is gone once a Finish was called.
class ServerCall {
 public:
  // The request's bytes.
  virtual std::span<const WirePiece> request() = 0;
  WireReader reader() { return WireReader(request()); }
  // InvalidArgument if the request is not this message.
  Status Parse(google::protobuf::MessageLite* message);
  // The caller's deadline, and its cancellation (also when the caller went away).
  virtual CallOptions options() = 0;
  // The task that called ("/job:J/replica:0/task:N"), as its certificate proves; "" if that is not
  // known. As long as the call.
  virtual std::string_view proven_caller() const { return {}; }
  // Who called, if it is a client with a certificate: a text that is the same for all calls with
  // the same key, and nobody else's. "" for all others. As long as the call.
  virtual std::string_view proven_client() const { return {}; }
  // Who called, for logs and nothing else: an address, and what its certificate says.
  virtual std::string caller_text() const { return std::string(proven_caller()); }
  // Where the call comes from, if its connection says so. May be asked for until the call ends.
  virtual CallerHost caller_host() const { return {}; }
  // When the request was read, by SteadyClock.
  virtual Deadline arrival() const = 0;
  // The handler should do nothing after this, where the way that the call came in says so.
  virtual Deadline begin_by() const { return kNoDeadline; }
  // Each call ends by exactly one of these, on any thread.
  virtual void Finish(const Status& status) = 0;  // an error; OK sends an empty message
  virtual void Finish(WireWriter response) = 0;
  void Finish(const google::protobuf::MessageLite& response);

 protected:
  virtual ~ServerCall() = default;
};

// Lets `handler` serve the call. What it throws, which it may as long as it has neither finished
// the call nor handed it on, is the call's answer.
void Serve(const std::function<void(ServerCall*)>& handler, ServerCall* call);

// Of a request, for whoever counts.
int64_t SizeOf(std::span<const WirePiece> pieces);
int64_t NanosSince(Deadline time);

// InvalidArgument if the pieces are not this message.
Status ParseMessage(std::span<const WirePiece> pieces, google::protobuf::MessageLite* message);
// The same for all that remains to be read.
Status ParseMessage(WireReader in, google::protobuf::MessageLite* message);

}  // namespace millrace

#endif  // TRANSPORT_SERVER_CALL_H_
