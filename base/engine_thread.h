// SPDX-License-Identifier: Apache-2.0
// What a thread of the engine knows about the burst of work it is in: what may wait for its
// end, whether other work waits for the thread, and for whose request it is.
#ifndef BASE_ENGINE_THREAD_H_
#define BASE_ENGINE_THREAD_H_

#include <cstdint>

namespace millrace {

// Something that may wait for the end of a burst, such as a write to a socket, so that it is
// done once instead of many times. Whoever defers it keeps it alive until it has run. It is
// queued with one thread at a time.
struct DeferredWork {
  DeferredWork* next = nullptr;
  void (*run)(DeferredWork* self) = nullptr;
};

// Marks a burst of cheap work on this thread. Nests; the end of the outermost one runs what was
// deferred, on this thread, first come first.
class DeferScope {
 public:
  DeferScope() { ++depth_; }
  ~DeferScope() {
    if (depth_ == 1) RunDeferred();
    --depth_;
  }
  DeferScope(const DeferScope&) = delete;
  DeferScope& operator=(const DeferScope&) = delete;

  // False, and nothing kept, outside of a burst: the caller then does the work at once.
  static bool Defer(DeferredWork* work);
  static bool Active() { return depth_ > 0; }
  // Runs what this thread has deferred so far: before it begins something long, or waits.
  static void RunDeferred() {
    if (head_ != nullptr) RunAll();
  }

 private:
  static void RunAll();
  static constinit thread_local int depth_;
  static constinit thread_local DeferredWork* head_;
  static constinit thread_local DeferredWork* tail_;
};

// While other work waits for this thread, what is expensive goes to the pool instead.
class HurryScope {
 public:
  explicit HurryScope(bool hurry) : before_(hurry_) { hurry_ = hurry; }
  ~HurryScope() { hurry_ = before_; }
  HurryScope(const HurryScope&) = delete;
  HurryScope& operator=(const HurryScope&) = delete;

  static bool InHurry() { return hurry_; }

 private:
  static constinit thread_local bool hurry_;
  const bool before_;
};

// The name of the request that this thread works for; 0: none. Of base/log.cc: each line that the
// thread logs has it.
int64_t& RequestOfThread();

// Gives this thread another one while the object lives. Who goes on with the work on another thread
// takes Current() along.
class LogRequest {
 public:
  explicit LogRequest(int64_t id) : slot_(RequestOfThread()), before_(slot_) { slot_ = id; }
  ~LogRequest() { slot_ = before_; }
  LogRequest(const LogRequest&) = delete;
  LogRequest& operator=(const LogRequest&) = delete;

  static int64_t Current() { return RequestOfThread(); }

 private:
  int64_t& slot_;
  const int64_t before_;
};

// Threads beside those of a pool on which the engine may go on with a step: those that read
// from other tasks. Each marks itself once.
void MarkEngineThread();
bool OnEngineThread();

}  // namespace millrace

#endif  // BASE_ENGINE_THREAD_H_
