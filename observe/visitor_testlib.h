// SPDX-License-Identifier: Apache-2.0
// A visitor of pages, well-behaved or not, for tests.
#ifndef OBSERVE_VISITOR_TESTLIB_H_
#define OBSERVE_VISITOR_TESTLIB_H_

#include <chrono>
#include <string>

namespace millrace::testing {

// A connection to a port of 127.0.0.1. Not thread-safe. Every wait is bounded.
class Visitor {
 public:
  explicit Visitor(int port);
  ~Visitor();
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;

  bool connected() const { return fd_ >= 0; }
  // False if the other end takes no more.
  bool Send(const std::string& bytes);
  // Breaks the connection off: the other end is told that nobody reads any more.
  void Reset();
  // Whether something has come by the limit; it is not read.
  bool WaitForAnswer(std::chrono::milliseconds limit = std::chrono::seconds(20));
  // Everything until the other end closes; what there was by the limit.
  std::string ReadAll(std::chrono::milliseconds limit = std::chrono::seconds(20));
  // Whether the other end has closed by the limit; what comes before is dropped.
  bool WaitForEnd(std::chrono::milliseconds limit);

 private:
  int fd_ = -1;
};

struct Answer {
  int status = 0;  // 0: there was none
  std::string head, body;
};
Answer ParseAnswer(const std::string& text);
// One GET; `headers` are whole lines with CRLF.
Answer Get(int port, const std::string& target, const std::string& headers = "");

}  // namespace millrace::testing

#endif  // OBSERVE_VISITOR_TESTLIB_H_
