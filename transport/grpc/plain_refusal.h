// SPDX-License-Identifier: Apache-2.0
// An answer for callers without TLS where there is TLS only: they would not learn why they are
// not served, and wait out their deadlines.
#ifndef TRANSPORT_GRPC_PLAIN_REFUSAL_H_
#define TRANSPORT_GRPC_PLAIN_REFUSAL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

// The server's half of an HTTP/2 connection on which every call ends with Unauthenticated and a
// text. Looks at the frames' headers alone, and keeps at most one of those. Not thread-safe.
class PlainRefusal {
 public:
  explicit PlainRefusal(std::string_view text);

  // Takes what the caller sent, from its first byte on, in any pieces, and appends what it is to be
  // sent. False: this is no HTTP/2, and the connection is to be closed.
  bool Take(std::string_view bytes, std::string* answer);

 private:
  bool TakePreface(std::string_view* bytes, std::string* answer);

  std::string headers_;      // of every answer, as HPACK
  std::size_t greeted_ = 0;  // bytes of the preface that have come
  std::string frame_;        // the beginning of a frame, until its header is whole
  std::size_t skipped_ = 0;  // of its content: bytes still to come
};

// What every client says first.
inline constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

}  // namespace millrace

#endif  // TRANSPORT_GRPC_PLAIN_REFUSAL_H_
