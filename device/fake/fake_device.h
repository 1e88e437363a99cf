// SPDX-License-Identifier: Apache-2.0
// An accelerator simulated on a thread of this process: streams that run behind the host's back,
// and memory that host code cannot touch. It computes what the CPU's kernels compute; it is there
// to prove everything around the kernels of a real one.
#ifndef DEVICE_FAKE_FAKE_DEVICE_H_
#define DEVICE_FAKE_FAKE_DEVICE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "device/device_factory.h"
#include "device/stream.h"

namespace millrace {

// Devices "/device:FAKE:N".
const DeviceFactory* FakeDeviceFactory();

// Of the machines that are opened from then on.
struct FakeDeviceOptions {
  int64_t memory_limit = int64_t{1} << 30;  // bytes; reserved as addresses, taken as they are used
  // Not 0: the streams run in a random order, each operation after a random delay up to
  // `max_delay`, and new memory is filled with garbage in the order of the compute stream.
  uint64_t jitter_seed = 0;
  std::chrono::microseconds max_delay{200};
};
void SetFakeDeviceOptions(const FakeDeviceOptions& options);

// One machine, and what a test may do to it. Tensors hold addresses of a mapping that nobody may
// read or write, so that a host access faults; the same memory is mapped a second time at an
// address that only the machine's thread uses. Thread-safe.
class FakeMachine : public Accelerator {
 public:
  // The machine behind the latest device of that name; null if there is none.
  static std::shared_ptr<FakeMachine> Find(std::string_view device_name);

  // Operations of the node (all nodes for "") wait until the gate opens; their stream with them.
  virtual void CloseGate(std::string_view node) = 0;
  virtual void OpenGate(std::string_view node) = 0;
  // Waits until an operation stands at a closed gate; false after 30 s.
  virtual bool WaitUntilSomethingStands() = 0;
  // The next operations of the node (of any for "") fail with this.
  virtual void FailNext(std::string_view node, const Status& status, int times = 1) = 0;
  virtual void FailNextCopies(const Status& status, int times = 1) = 0;
  virtual void FailNextAllocations(int times = 1) = 0;
  // The next recordings of activities are refused with this.
  virtual void FailNextRecordings(const Status& status, int times = 1) = 0;
  // Before each operation, from now on.
  virtual void SetDelay(std::chrono::microseconds delay) = 0;
  // Until everything that was enqueued has run; DeadlineExceeded after that long.
  virtual Status Synchronize(std::chrono::milliseconds limit) = 0;
  // How many operations, copies not counted, have run.
  virtual int64_t num_operations() const = 0;
  // A CPU device whose resources are nobody's, for the kernels that operations run.
  virtual Device* twin() = 0;
};

// Where the machine's thread finds what lies at `address`; the address itself for host memory.
// For its own operations only.
void* FakeAlias(const void* address);

}  // namespace millrace

#endif  // DEVICE_FAKE_FAKE_DEVICE_H_
