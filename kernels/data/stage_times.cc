// SPDX-License-Identifier: Apache-2.0
#include "kernels/data/stage_times.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/data/pipeline.h"

namespace millrace {
namespace {

using std::chrono::nanoseconds;

// What a stage takes from the one before may be without end (elements that are skipped, gathered,
// or thrown away), so every call asks first whether the step goes on.
class TimedWalk : public DatasetWalk, public SkipsElements {
 public:
  TimedWalk(DatasetWalkPtr walk, std::shared_ptr<StageTimes> times)
      : walk_(std::move(walk)), times_(std::move(times)) {}
  Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
    MR_RETURN_IF_ERROR(CheckAsked(call));
    const int64_t number = times_->Begin();
    if (!StageTimes::IsTimed(number)) return walk_->Next(call, element, end);
    const StageTimes::Clock::time_point start = StageTimes::Clock::now();
    Status status = walk_->Next(call, element, end);
    times_->Add(number, StageTimes::Clock::now() - start);
    return status;
  }
  bool Ready() override { return walk_->Ready(); }
  Status Skip(const DatasetCall& call, int64_t count, int64_t* skipped) override {
    MR_RETURN_IF_ERROR(CheckAsked(call));
    return SkipElements(*walk_, call, count, skipped);
  }

 private:
  const DatasetWalkPtr walk_;
  const std::shared_ptr<StageTimes> times_;
};

struct Slowest {
  const DatasetValue* stage = nullptr;
  nanoseconds own{0};  // without the stages below
};

// A stage that works ahead takes no more than what it waits for, and that is in the stages below.
void Look(const DatasetValue& dataset, std::set<const DatasetValue*>* seen, Slowest* slowest) {
  const StageTimes* const times = TimesOf(dataset);
  if (times == nullptr || !seen->insert(&dataset).second) return;
  nanoseconds own = times->total();
  for (const DatasetPtr& input : InputsOf(dataset)) {
    if (const StageTimes* const below = TimesOf(*input)) own -= below->total();
    Look(*input, seen, slowest);
  }
  if (own > slowest->own) *slowest = {&dataset, own};
}

std::string Duration(nanoseconds time) {
  const double ns = static_cast<double>(time.count());
  if (ns < 1e6) return StrCat(static_cast<int64_t>(ns / 1e3), " us");
  if (ns < 1e9) return StrCat(static_cast<int64_t>(ns / 1e6), " ms");
  return StrCat(static_cast<int64_t>(ns / 1e8) / 10.0, " s");
}

int Percent(nanoseconds part, nanoseconds whole) {
  return static_cast<int>(
      std::min<int64_t>(100, 100 * part.count() / std::max<int64_t>(1, whole.count())));
}

}  // namespace

void StageTimes::Add(int64_t call, Clock::duration taken) {
  const int64_t ns = std::chrono::duration_cast<nanoseconds>(taken).count();
  if (call < kAlways) {
    first_ns_.fetch_add(ns, std::memory_order_relaxed);
    return;
  }
  later_.fetch_add(1, std::memory_order_relaxed);
  later_ns_.fetch_add(ns, std::memory_order_relaxed);
}

nanoseconds StageTimes::total() const {
  const int64_t first = first_ns_.load(std::memory_order_relaxed);
  const int64_t timed = later_.load(std::memory_order_relaxed);
  if (timed == 0) return nanoseconds(first);
  const double mean =
      static_cast<double>(later_ns_.load(std::memory_order_relaxed)) / static_cast<double>(timed);
  return nanoseconds(first + static_cast<int64_t>(mean * static_cast<double>(calls() - kAlways)));
}

DatasetWalkPtr TimeWalk(DatasetWalkPtr walk, std::shared_ptr<StageTimes> times) {
  return std::make_unique<TimedWalk>(std::move(walk), std::move(times));
}

std::string SlowestStage(const DatasetValue& dataset, nanoseconds least) {
  const StageTimes* const times = TimesOf(dataset);
  if (times == nullptr) return "";
  const nanoseconds waited = times->total();
  const nanoseconds elapsed = StageTimes::Clock::now() - times->made();
  if (waited < least || 5 * waited < elapsed) return "";
  Slowest slowest;
  std::set<const DatasetValue*> seen;
  Look(dataset, &seen, &slowest);
  if (slowest.stage == nullptr) return "";
  const DatasetOp& top = *OriginOf(dataset)->op;
  const DatasetOp& op = *OriginOf(*slowest.stage)->op;
  const int64_t calls = std::max<int64_t>(1, TimesOf(*slowest.stage)->calls());
  std::string line =
      StrCat("the program waits for its input: ", times->calls(), " elements of the data set '",
             top.node, "' took ", Percent(waited, elapsed), " % of ", Duration(elapsed),
             ", most of it (", Percent(slowest.own, waited), " %, ", Duration(slowest.own / calls),
             " each time) in '", op.node, "' (", op.name, ")");
  if (op.name == "MapDataset") {
    line += "; its calls can be made several at a time: Map(f, {.num_parallel = kAutotune})";
  } else if (!top.name.starts_with("Prefetch")) {
    line += "; Prefetch at the end makes elements while the program computes";
  }
  return line;
}

}  // namespace millrace
