// SPDX-License-Identifier: Apache-2.0
// Where exceptions end. Our own errors are values; what the standard library throws when it is
// asked for more than there is (memory, threads, lengths) becomes one at the borders: around a
// kernel, a handler of a request, a task of a pool. Code in between lets it pass.
#ifndef BASE_EXCEPTIONS_H_
#define BASE_EXCEPTIONS_H_

#include <new>
#include <string>
#include <utility>

#include "millrace/status.h"

namespace millrace {

// Memory that is not there, thrown by what has no status to return; what() says for what it was.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(Status status) : status_(std::move(status)), what_(status_.message()) {}
  const char* what() const noexcept override { return what_.c_str(); }
  const Status& status() const { return status_; }

 private:
  Status status_;
  std::string what_;
};

// Within a catch block: the status of the exception. ResourceExhausted if memory, a length or a
// thread could not be had, the own status of an OutOfMemory; Internal for all others.
Status CaughtStatus();

// The status (or StatusOr) that `work` returns, or that of what it throws.
template <typename Work>
auto Guarded(Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (...) {
    return CaughtStatus();
  }
}

}  // namespace millrace

#endif  // BASE_EXCEPTIONS_H_
