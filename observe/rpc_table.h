// SPDX-License-Identifier: Apache-2.0
// The calls that a task serves, by method.
#ifndef OBSERVE_RPC_TABLE_H_
#define OBSERVE_RPC_TABLE_H_

#include <deque>
#include <string>
#include <utility>

#include "observe/metrics.h"

namespace millrace {

// Thread-safe.
struct MethodStats {
  std::string method;   // "/tensorflow.WorkerService/RunGraph"
  std::string carrier;  // "grpc" or "link"
  Counter begun, ended, errors;
  Counter request_bytes, response_bytes;
  Histogram latency;  // from the request's arrival to the answer

  void Begin(int64_t bytes) {
    begun.Add();
    request_bytes.Add(bytes);
  }
  void End(bool ok, int64_t bytes, int64_t nanos) {
    ended.Add();
    if (!ok) errors.Add();
    response_bytes.Add(bytes);
    latency.Add(nanos);
  }
};

// Filled before calls come in; then thread-safe. Addresses stay.
class RpcTable {
 public:
  MethodStats* Add(std::string method, std::string carrier) {
    MethodStats& stats = methods_.emplace_back();
    stats.method = std::move(method);
    stats.carrier = std::move(carrier);
    return &stats;
  }
  const std::deque<MethodStats>& methods() const { return methods_; }

 private:
  std::deque<MethodStats> methods_;
};

}  // namespace millrace

#endif  // OBSERVE_RPC_TABLE_H_
