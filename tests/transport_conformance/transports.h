// SPDX-License-Identifier: Apache-2.0
// The transports that conformance tests run over: each as an end that serves and one that calls,
// in one process or in two.
#ifndef TESTS_TRANSPORT_CONFORMANCE_TRANSPORTS_H_
#define TESTS_TRANSPORT_CONFORMANCE_TRANSPORTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "transport/channel.h"
#include "transport/method_server.h"

namespace millrace {

inline constexpr char kServingTask[] = "/job:ps/replica:0/task:0";

class ServingEnd {
 public:
  virtual ~ServingEnd() = default;
  virtual MethodServer* methods() = 0;
  // After the methods were added. What a caller needs to know, as one line of text.
  virtual std::string Start() = 0;
  // Ends what is being served and takes no more calls.
  virtual void Stop() = 0;
  // Of memory that callers may map.
  virtual int64_t shared_bytes() const { return 0; }
};

class CallingEnd {
 public:
  virtual ~CallingEnd() = default;
  // Null if no connection could be made.
  virtual Channel* channel() = 0;
};

// A row of the table: "grpc", "link" or "shared_memory" (a link whose large tensors are mapped).
std::unique_ptr<ServingEnd> NewServingEnd(const std::string& transport);
std::unique_ptr<CallingEnd> NewCallingEnd(const std::string& transport, const std::string& address);

}  // namespace millrace

#endif  // TESTS_TRANSPORT_CONFORMANCE_TRANSPORTS_H_
