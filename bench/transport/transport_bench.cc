// SPDX-License-Identifier: Apache-2.0
// transport_bench [MEBIBYTES]: how long a tensor takes from a task to another one of its host, over
// each transport, next to one memcpy of it. Rounds are interleaved, so that a busy machine is busy
// for all; what counts is the ratio of the medians.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/notification.h"
#include "tests/transport_conformance/transports.h"
#include "transport/methods.h"

namespace millrace {
namespace {

constexpr int kRounds = 15, kWarmUp = 3;
constexpr std::chrono::seconds kLimit{60};

struct Row {
  std::string name;
  std::unique_ptr<ServingEnd> server;
  std::unique_ptr<CallingEnd> caller;
  std::vector<int64_t> nanos;
};

// Asks for the tensor; false if it did not come as it is.
bool Receive(Channel* channel, const Tensor& expected) {
  Notification ended;
  bool good = false;
  channel->Call(methods::kWorkerRecvTensor, {DeadlineAfter(kLimit), nullptr}, WireWriter(),
                [&](const Status& status, WireReader in) {
                  uint32_t field, type;
                  WireReader body;
                  if (status.ok() && in.ReadTag(&field, &type) && in.ReadBody(&body)) {
                    const StatusOr<Tensor> tensor = ReadTensor(body);
                    good = tensor.ok() && tensor->num_bytes() == expected.num_bytes();
                  }
                  ended.Notify();
                });
  ended.Wait();  // the call has a deadline
  return good;
}

double MedianMillis(std::vector<int64_t> nanos) {
  std::nth_element(nanos.begin(), nanos.begin() + nanos.size() / 2, nanos.end());
  return static_cast<double>(nanos[nanos.size() / 2]) * 1e-6;
}

int Main(int64_t bytes) {
  Tensor tensor(kUint8, Shape({bytes})), copy(kUint8, Shape({bytes}));
  std::memset(tensor.raw_data(), 1, tensor.num_bytes());
  std::vector<Row> rows(3);
  const char* const names[] = {"grpc", "link", "shared_memory"};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].name = names[i];
    rows[i].server = NewServingEnd(names[i]);
    rows[i].server->methods()->AddMethod(methods::kWorkerRecvTensor, [&tensor](ServerCall* call) {
      WireWriter answer;
      const Status written = answer.AppendTensorField(1, tensor);
      if (!written.ok()) return call->Finish(written);
      call->Finish(std::move(answer));
    });
    rows[i].caller = NewCallingEnd(names[i], rows[i].server->Start());
    if (rows[i].caller->channel() == nullptr) return 1;
  }
  std::vector<int64_t> copies;
  for (int round = 0; round < kRounds + kWarmUp; ++round) {
    int64_t start = SteadyNanos();
    std::memcpy(copy.raw_data(), tensor.raw_data(), tensor.num_bytes());
    if (round >= kWarmUp) copies.push_back(SteadyNanos() - start);
    for (Row& row : rows) {
      start = SteadyNanos();
      if (!Receive(row.caller->channel(), tensor)) {
        std::fprintf(stderr, "no tensor came over %s\n", row.name.c_str());
        return 1;
      }
      if (round >= kWarmUp) row.nanos.push_back(SteadyNanos() - start);
    }
  }
  const double one = MedianMillis(copies);
  std::printf("%lld MiB, median of %d: memcpy %.2f ms\n", static_cast<long long>(bytes >> 20),
              kRounds, one);
  for (const Row& row : rows) {
    const double median = MedianMillis(row.nanos);
    std::printf("%-14s %8.2f ms  %.2f x memcpy\n", row.name.c_str(), median, median / one);
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const long mebibytes = argc > 1 ? std::atol(argv[1]) : 96;
  if (mebibytes < 1 || mebibytes > 256) {
    std::fprintf(stderr, "usage: transport_bench [MEBIBYTES, 1 to 256]\n");
    return 2;
  }
  return millrace::Main(int64_t{mebibytes} << 20);
}
