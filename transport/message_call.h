// SPDX-License-Identifier: Apache-2.0
// Calls whose requests and answers are plain messages.
#ifndef TRANSPORT_MESSAGE_CALL_H_
#define TRANSPORT_MESSAGE_CALL_H_

#include <utility>

#include "google/protobuf/message_lite.h"
#include "transport/channel.h"
#include "transport/server_call.h"

namespace millrace {

inline WireWriter ToWire(const google::protobuf::MessageLite& message) {
  WireWriter out;
  out.AppendMessage(message);
  return out;
}

// `use(const Status&, Response&)` gets the answer: an empty one where the status is an error, be it
// that the bytes are not this message.
template <typename Response, typename Use>
void CallMessage(Channel* channel, const char* method, const CallOptions& options,
                 WireWriter request, Use use, const CallTerms& terms = CallTerms()) {
  channel->Call(
      method, options, std::move(request),
      [use = std::move(use)](Status status, WireReader in) {
        Response response;
        if (status.ok()) status = ParseMessage(in, &response);
        use(status, response);
      },
      terms);
}

}  // namespace millrace

#endif  // TRANSPORT_MESSAGE_CALL_H_
