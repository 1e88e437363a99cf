// SPDX-License-Identifier: Apache-2.0
// Waiting, without a thread, for several asynchronous calls.
#ifndef SESSION_ASYNC_JOIN_H_
#define SESSION_ASYNC_JOIN_H_

#include <functional>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "base/notification.h"
#include "millrace/status.h"

namespace millrace {

// Calls `done` with the first error (else OK) once Done was called `count` times; at once, on
// the caller's thread, for 0. Thread-safe; the last call runs `done`.
class AsyncJoin {
 public:
  using Callback = std::function<void(Status)>;

  static std::shared_ptr<AsyncJoin> Make(int count, Callback done) {
    auto join = std::make_shared<AsyncJoin>(count, std::move(done));
    if (count == 0) join->done_(OkStatus());
    return join;
  }
  AsyncJoin(int count, Callback done) : pending_(count), done_(std::move(done)) {}

  void Done(Status status) {
    Callback done;
    Status first;
    {
      MutexLock lock(&mu_);
      if (first_error_.ok()) first_error_ = std::move(status);
      if (--pending_ > 0) return;
      done = std::move(done_);
      first = first_error_;
    }
    done(std::move(first));
  }

 private:
  Mutex mu_;
  int pending_ ABSL_GUARDED_BY(mu_);
  Status first_error_ ABSL_GUARDED_BY(mu_);
  Callback done_;
};

// Makes one asynchronous call and waits for its end, which its deadline or cancellation
// guarantee: Await([&](auto done) { master->CloseSessionAsync(options, handle, done); }).
template <typename Call>
Status Await(Call&& call) {
  Notification ended;
  Status result;
  call([&](Status status) {
    result = std::move(status);
    ended.Notify();
  });
  ended.Wait();
  return result;
}

}  // namespace millrace

#endif  // SESSION_ASYNC_JOIN_H_
