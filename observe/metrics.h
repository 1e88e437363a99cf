// SPDX-License-Identifier: Apache-2.0
// Numbers that the engine counts while it runs, and others read.
#ifndef OBSERVE_METRICS_H_
#define OBSERVE_METRICS_H_

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace millrace {

// A number that only grows. Thread-safe; an addition is one relaxed instruction and orders nothing.
class Counter {
 public:
  void Add(int64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// How many durations fell into which range: the n-th bucket ends with 2^n microseconds.
// Thread-safe; takes no lock and no memory. A reader that comes in the middle of an addition may
// see one number of it without the others.
class Histogram {
 public:
  static constexpr int kNumBounds = 28;  // 1 us to 134 s

  void Add(int64_t nanos) {
    const auto micros = static_cast<uint64_t>(nanos < 0 ? 0 : (nanos + 999) / 1000);
    const int bucket = micros <= 1 ? 0 : std::bit_width(micros - 1);
    buckets_[static_cast<std::size_t>(bucket < kNumBounds ? bucket : kNumBounds)].Add();
    total_nanos_.Add(nanos);
  }

  // The seconds that the bucket ends with.
  static double BoundOf(int bucket) { return static_cast<double>(int64_t{1} << bucket) * 1e-6; }

  // The counts at one time; the last one is of what is beyond all bounds.
  struct Snapshot {
    std::array<int64_t, kNumBounds + 1> buckets{};
    int64_t count = 0;
    double total_seconds = 0;

    // The bound of the bucket that holds the `share`-th part of the durations; 0 without any.
    double Quantile(double share) const {
      const double wanted = share * static_cast<double>(count);
      int64_t below = 0;
      for (int i = 0; i < kNumBounds && count > 0; ++i) {
        below += buckets[static_cast<std::size_t>(i)];
        if (static_cast<double>(below) >= wanted) return BoundOf(i);
      }
      return count > 0 ? BoundOf(kNumBounds) : 0;
    }
  };
  Snapshot Read() const {
    Snapshot snapshot;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      snapshot.buckets[i] = buckets_[i].value();
      snapshot.count += snapshot.buckets[i];
    }
    snapshot.total_seconds = static_cast<double>(total_nanos_.value()) * 1e-9;
    return snapshot;
  }

 private:
  std::array<Counter, kNumBounds + 1> buckets_;
  Counter total_nanos_;
};

}  // namespace millrace

#endif  // OBSERVE_METRICS_H_
