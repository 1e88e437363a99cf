// SPDX-License-Identifier: Apache-2.0
// What an accelerator does behind the host's back: streams of operations, events between them,
// and the account of what one step has under way. docs/adding_a_device.md has the rules.
#ifndef DEVICE_STREAM_H_
#define DEVICE_STREAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "device/device.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "tensor/allocator.h"

namespace millrace {

class Accelerator;

// What one step has under way on the accelerators of its task, and what became of it. Everything
// that is enqueued belongs to such an account. Thread-safe.
class DeviceWork final : public RefCounted {
 public:
  using Done = std::function<void(Status)>;

  DeviceWork() = default;

  // Told at most once, on a host thread of the device that failed, and never after `done` of
  // WhenIdle. Before anything is enqueued.
  void SetOnError(std::function<void(const Status&)> on_error);

  // True once an operation has failed: what follows it computes from garbage and is skipped.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // The first error, with node and device in its text; OK if there is none.
  Status error() const;
  // "{{node x}} on /job:.../device:FAKE:0 and 3 more operations"; "" if there is nothing.
  std::string Pending() const;

  // To be called once, when the host enqueues nothing more. `done` gets the first error when
  // everything has run, on a host thread of the device, or before this returns; or Cancelled,
  // with what is pending, once the work was given up.
  void WhenIdle(Done done);
  // Ends the wait at once. What was enqueued still runs: it owns what it touches.
  void GiveUp();

  // For streams: an operation was enqueued; it has run, with this outcome.
  int64_t Begin(const Accelerator* device, std::string_view node);
  void End(int64_t operation, Accelerator* device, const Status& status);

 private:
  struct Operation {
    const Accelerator* device;
    std::string node;
  };
  std::string PendingLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What to call, once it is time; null before.
  std::function<void()> TakeDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellError();

  std::atomic<bool> failed_{false};
  mutable Mutex mu_;
  int64_t next_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, Operation> pending_ ABSL_GUARDED_BY(mu_);
  Status error_ ABSL_GUARDED_BY(mu_);
  std::function<void(const Status&)> on_error_ ABSL_GUARDED_BY(mu_);
  bool telling_ ABSL_GUARDED_BY(mu_) = false;  // of the error, on another thread
  bool given_up_ ABSL_GUARDED_BY(mu_) = false;
  Done done_ ABSL_GUARDED_BY(mu_);
};

// A place in a stream that others can wait for.
class Event : public RefCounted {
 public:
  virtual bool HasHappened() const = 0;
};

// Operations of a device that run one after the other, in the order in which they were enqueued,
// while the host goes on. Thread-safe: two threads that enqueue agree on the order themselves.
class Stream {
 public:
  // An operation. A simulated device calls `run` when its turn comes; one with a queue in its
  // driver calls it at once, to issue what is to run. It must not touch the step.
  struct Operation {
    RefPtr<DeviceWork> work;
    std::string_view node;  // copied
    std::function<Status()> run;
    // Runs although an earlier operation of the work has failed: it keeps state in order.
    bool even_after_error = false;
  };

  virtual ~Stream() = default;
  virtual void Enqueue(Operation operation) = 0;
  // Copies bytes between any two places that are host memory or memory of an accelerator of
  // this process. Both must stay valid until it has run, or be freed in stream order.
  virtual void EnqueueCopy(RefPtr<DeviceWork> work, std::string_view node, void* to,
                           const void* from, std::size_t bytes, bool even_after_error = false) = 0;
  // Happens when everything enqueued so far has run.
  virtual RefPtr<Event> Record() = 0;
  // What is enqueued from now on runs after the event, which may be of another device.
  virtual void Wait(RefPtr<Event> event) = 0;
  // Calls `fn` on a host thread of the device when everything enqueued so far has run, with the
  // first error of the work up to then. What `fn` owns is freed there.
  virtual void EnqueueCallback(RefPtr<DeviceWork> work, std::string_view node,
                               std::function<void(const Status&)> fn) = 0;
};

enum class StreamKind { kCompute, kCopyIn, kCopyOut, kPeer };
inline constexpr int kNumStreamKinds = 4;

// The machine behind one or several Device objects (sessions with state of their own have one
// each). Memory is freed in the order of the compute stream: a block that the host frees may be
// handed out again at once, because who gets it may touch it only in the compute stream, or after
// an event recorded there since. Other streams hold a share of what they touch. Thread-safe.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual const std::string& name() const = 0;  // of the device
  virtual Stream* stream(StreamKind kind) = 0;
  virtual Allocator* allocator() = 0;
  // Host memory that copies are quickest from and to.
  virtual Allocator* staging_allocator() = 0;
  // Runs `fn` on a host thread of the device.
  virtual void Post(std::function<void()> fn) = 0;
};

// The Device of an accelerator.
class AcceleratorDevice : public Device {
 public:
  MemorySpace memory_space() const final { return MemorySpace::kDevice; }
  virtual Accelerator* accelerator() const = 0;

 protected:
  using Device::Device;
};

// The streams behind a device whose kernels return before they have run; null for a CPU.
inline Accelerator* AcceleratorOf(const Device* device) {
  if (device->memory_space() != MemorySpace::kDevice) return nullptr;
  return static_cast<const AcceleratorDevice*>(device)->accelerator();
}

// Whose memory `address` lies in; null for host memory.
Accelerator* AcceleratorOf(const void* address);
// For accelerators: [begin, begin + size) is theirs from now on; it is not any more.
void AddDeviceMemory(const void* begin, std::size_t size, Accelerator* accelerator);
void RemoveDeviceMemory(const void* begin);

}  // namespace millrace

#endif  // DEVICE_STREAM_H_
