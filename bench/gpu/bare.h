// SPDX-License-Identifier: Apache-2.0
// What a GPU does without any engine: the yardstick of launches and of memory traffic. Calls the
// driver, so that no toolkit is needed to build it.
#ifndef BENCH_GPU_BARE_H_
#define BENCH_GPU_BARE_H_

#include <memory>

#include "device/cuda/driver/cuda_driver.h"
#include "millrace/status.h"

namespace millrace::bench {

// PTX of "add": out[i] = x[i] + y[i] for 1,024 floats in four blocks of 256.
extern const char kBareAddPtx[];

// Uses the primary context of GPU 0, current in the thread that made it.
class Bare {
 public:
  // NotFound if there is no driver or no GPU, with what to do.
  static StatusOr<std::unique_ptr<Bare>> Start(CudaDriver* driver);
  ~Bare();

  // Milliseconds of one launch of a graph of that many additions, one after the other, and of
  // waiting for it. The mean of as many as take `seconds`.
  StatusOr<double> GraphOfAdditions(int additions, double seconds);
  // The same additions launched one by one.
  StatusOr<double> Additions(int additions, double seconds);
  // Milliseconds of copying that much device memory to device memory.
  StatusOr<double> CopyOnDevice(std::size_t bytes, double seconds);
  // Bytes of the GPU that are taken, by everybody.
  StatusOr<int64_t> MemoryInUse();

 private:
  explicit Bare(CudaDriver* driver) : driver_(driver) {}
  Status Prepare();
  Status IssueAdditions(int additions);

  CudaDriver* const driver_;
  bool has_context_ = false;
  void *stream_ = nullptr, *module_ = nullptr, *add_ = nullptr;
  void* buffers_[3] = {nullptr, nullptr, nullptr};
};

}  // namespace millrace::bench

#endif  // BENCH_GPU_BARE_H_
