// SPDX-License-Identifier: Apache-2.0
// Fused loops that run on accelerators, as grids of threads.
#ifndef JIT_GRID_LOOP_H_
#define JIT_GRID_LOOP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "device/stream.h"
#include "jit/component_api.h"
#include "millrace/status.h"

namespace millrace::jit {

// What the compiler made of a fused program for grids.
struct GridImage {
  std::string ptx;                       // of the machine's architecture, or
  MrJitGridFunction function = nullptr;  // what one thread of a simulated machine does
  int lanes = 0;                         // neighbours that a thread works on at once
  int num_inputs = 0, num_outputs = 0;
  bool reduces = false;
};

// As for MrJitGridFunction.
struct GridSizes {
  int64_t n = 0;  // > 0
  int64_t period = 0;
  int64_t row = 0;
};

// One that is ready on a machine. Thread-safe.
class GridLoop {
 public:
  virtual ~GridLoop() = default;
  // Issues it, within the `run` of an operation of the machine's compute stream. `in` and `out`
  // are device addresses.
  virtual Status Launch(const void* const* in, void* const* out, const GridSizes& sizes) const = 0;
};

// How a type of accelerator takes such loops. Thread-safe, as long-lived as the process.
class GridBackend {
 public:
  virtual ~GridBackend() = default;
  // The architecture of the machine's PTX ("sm_90"); "" for one that runs the host's code.
  // Unimplemented, with why, for a machine that takes none.
  virtual StatusOr<std::string> ArchOf(const Accelerator* machine) const = 0;
  // Makes it ready; may take long. Called by the compiling thread.
  virtual StatusOr<std::unique_ptr<GridLoop>> Load(Accelerator* machine,
                                                   const GridImage& image) const = 0;
};

// A loop of a kernel, which somebody may be compiling. Thread-safe.
class GridSlot {
 public:
  GridSlot(const GridBackend* backend, Accelerator* machine)
      : backend_(backend), machine_(machine) {}

  const GridBackend& backend() const { return *backend_; }
  const Accelerator* machine() const { return machine_; }
  // Null until it is there, and if it never will be.
  std::shared_ptr<const GridLoop> loop() const {
    return state_.load(std::memory_order_acquire) == State::kReady ? loop_ : nullptr;
  }
  // Whether it is there, or never will be: loop() gives the same from then on.
  bool IsSettled() const { return state_.load(std::memory_order_acquire) != State::kPending; }
  // For the compiling thread. OK also if nobody wants it any more.
  Status Load(const GridImage& image) {
    MutexLock lock(&mu_);
    if (closed_) return OkStatus();
    StatusOr<std::unique_ptr<GridLoop>> loop = backend_->Load(machine_, image);
    if (!loop.ok()) return loop.status();
    loop_ = *std::move(loop);
    state_.store(State::kReady, std::memory_order_release);
    return OkStatus();
  }
  // There will never be one: nothing is compiled, or this could not be.
  void GiveUp() { state_.store(State::kNever, std::memory_order_release); }
  // The machine may go when this has returned, and whoever has a share of the loop. loop() may
  // not be called any more.
  void Close() {
    MutexLock lock(&mu_);
    closed_ = true;
    loop_.reset();
  }

 private:
  enum class State : uint8_t { kPending, kReady, kNever };

  const GridBackend* const backend_;
  Accelerator* const machine_;
  Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<const GridLoop> loop_;  // constant once it is ready
  std::atomic<State> state_{State::kPending};
};

}  // namespace millrace::jit

#endif  // JIT_GRID_LOOP_H_
