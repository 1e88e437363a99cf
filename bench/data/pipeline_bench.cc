// SPDX-License-Identifier: Apache-2.0
// What an element costs on its way through a pipeline: nanoseconds for each element of a range that
// is mapped and batched. tf_pipeline.py times the same of tf.data.
//
//   bazel-bin/bench/data/pipeline_bench [ELEMENTS]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/strings.h"
#include "millrace/data.h"
#include "millrace/ops.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<Output> Same(const Scope& s, std::span<const Output> x) {
  return {ops::Identity(s, x[0])};
}

Status Time(const char* name, const Dataset& dataset, int64_t elements) {
  StatusOr<DatasetReader> reader = DatasetReader::Create(dataset);
  if (!reader.ok()) return reader.status();
  double best = 1e30;
  for (int round = 0; round < 3; ++round) {
    if (Status status = reader->Restart(); !status.ok()) return status;
    const auto start = Clock::now();
    std::vector<Tensor> element;
    for (;;) {
      const StatusOr<bool> more = reader->Next(&element);
      if (!more.ok()) return more.status();
      if (!*more) break;
    }
    const std::chrono::duration<double, std::nano> taken = Clock::now() - start;
    best = std::min(best, taken.count() / static_cast<double>(elements));
  }
  std::printf("%-28s %8.0f ns per element\n", name, best);
  return OkStatus();
}

Status Run(int64_t n) {
  const Dataset range = Dataset::Range(n);
  const std::pair<const char*, Dataset> cases[] = {
      {"range", range},
      {"range, batch", range.Batch(100)},
      {"range, map, batch", range.Map(Same).Batch(100)},
      {"range, parallel map, batch", range.Map(Same, {.num_parallel = 2}).Batch(100)},
      {"range, shuffle, batch", range.Shuffle(1000, {.seed = 1}).Batch(100)},
      {"range, batch, prefetch", range.Batch(100).Prefetch(2)},
  };
  for (const auto& [name, dataset] : cases) {
    if (Status status = Time(name, dataset, n); !status.ok()) return status;
  }
  return OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const int64_t n = argc > 1 ? std::atoll(argv[1]) : 100'000;
  const millrace::Status status = millrace::Run(n);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
