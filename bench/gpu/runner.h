// SPDX-License-Identifier: Apache-2.0
// Runs workloads in a session of a cluster of their own.
#ifndef BENCH_GPU_RUNNER_H_
#define BENCH_GPU_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/gpu/workloads.h"
#include "session/client_session.h"
#include "session/master_interface.h"

namespace millrace::bench {

class Runner {
 public:
  // Initialised, with three steps run and, if the workload fuses, its loops compiled. The error of
  // the graph, the cluster or a step; FailedPrecondition if a result is not a finite number.
  static StatusOr<std::unique_ptr<Runner>> Start(std::unique_ptr<Workload> workload,
                                                 const std::string& device_type);

  const Workload& workload() const { return *workload_; }
  Status Step();
  // What the workload computes now, without a step; FailedPrecondition if a number is not finite.
  StatusOr<std::vector<Tensor>> Results();
  struct Cost {
    double milliseconds = 0;          // from call to return, which waits for the device
    double host_microseconds = 0;     // that the calling thread, which launches, computed
    double process_microseconds = 0;  // that all threads did: also those that look for the end
  };
  // The mean of steps that take about `seconds` together, five at the least.
  StatusOr<Cost> Measure(double seconds);

 private:
  Runner() = default;

  std::unique_ptr<Workload> workload_;
  std::shared_ptr<MasterInterface> master_;
  std::unique_ptr<ClientSession> session_;
  int64_t callable_ = 0;
};

}  // namespace millrace::bench

#endif  // BENCH_GPU_RUNNER_H_
