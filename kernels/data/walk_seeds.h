// SPDX-License-Identifier: Apache-2.0
// The seeds of data sets that are walked in another way each time, as TensorFlow draws them.
#ifndef KERNELS_DATA_WALK_SEEDS_H_
#define KERNELS_DATA_WALK_SEEDS_H_

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/strings.h"
#include "device/resource_manager.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/kernel_context.h"

namespace millrace {

// Single words of a generator that gives four at a time.
class Words {
 public:
  Words() = default;
  Words(uint64_t seed, uint64_t seed2) : random_(seed, seed2) {}
  // Behind the first `drawn` of them.
  Words(uint64_t seed, uint64_t seed2, uint64_t drawn) : Words(seed, seed2) {
    const uint64_t size = block_.size();
    random_.Skip(drawn / size);
    for (uint64_t i = 0; i < drawn % size; ++i) (*this)();
  }
  uint32_t operator()() {
    if (used_ == block_.size()) {
      block_ = random_();
      used_ = 0;
    }
    return block_[used_++];
  }

 private:
  Philox random_;
  Philox::Result block_{};
  std::size_t used_ = std::tuple_size_v<Philox::Result>;
};

// The seeds of one walk after the other: drawn from a generator, or always the same.
// Thread-safe.
class WalkSeeds : public Resource {
 public:
  WalkSeeds(uint64_t seed, uint64_t seed2, bool reshuffle)
      : reshuffle_(reshuffle), seed_(seed), seed2_(seed2), draws_(seed, seed2) {}
  Words NewWalk() {
    const auto [seed, seed2] = NewSeeds();
    return Words(seed, seed2);
  }
  std::pair<uint64_t, uint64_t> NewSeeds() {
    MutexLock lock(&mu_);
    if (!reshuffle_) return {seed_, seed2_};
    const uint64_t seed = draws_();
    drawn_ += 2;
    return {seed, draws_()};
  }
  std::string Save() const {
    MutexLock lock(&mu_);
    return StrCat(seed_, " ", seed2_, " ", drawn_);
  }
  Status Restore(std::string_view state) {
    uint64_t seed = 0, seed2 = 0, drawn = 0;
    const char* at = state.data();
    const char* const end = at + state.size();
    for (uint64_t* number : {&seed, &seed2, &drawn}) {
      if (at != end && *at == ' ') ++at;
      const auto [next, error] = std::from_chars(at, end, *number);
      if (error != std::errc()) {
        return errors::InvalidArgument("'", state, "' is not what a shuffled data set keeps");
      }
      at = next;
    }
    MutexLock lock(&mu_);
    seed_ = seed;
    seed2_ = seed2;
    drawn_ = drawn;
    draws_ = Words(seed, seed2, drawn);
    return OkStatus();
  }
  std::string DebugString() const override { return "Seeds of a shuffled data set"; }

 private:
  const bool reshuffle_;
  mutable Mutex mu_;
  uint64_t seed_ ABSL_GUARDED_BY(mu_), seed2_ ABSL_GUARDED_BY(mu_);
  uint64_t drawn_ ABSL_GUARDED_BY(mu_) = 0;  // words of `draws_`
  Words draws_ ABSL_GUARDED_BY(mu_);
};

// The generator that input i is a handle of, or null: of DummySeedGenerator's handle, which names
// none.
inline RefPtr<WalkSeeds> SeedsOfInput(KernelContext& ctx, int i) {
  StatusOr<RefPtr<WalkSeeds>> found = LookupHandle<WalkSeeds>(ctx, i);
  return found.ok() ? *std::move(found) : nullptr;
}

// Seeds of 0 stand for random ones.
inline RefPtr<WalkSeeds> MakeWalkSeeds(int64_t seed, int64_t seed2, bool reshuffle) {
  if (seed == 0 && seed2 == 0) return MakeRef<WalkSeeds>(RandomId(), RandomId(), reshuffle);
  return MakeRef<WalkSeeds>(static_cast<uint64_t>(seed), static_cast<uint64_t>(seed2), reshuffle);
}

}  // namespace millrace

#endif  // KERNELS_DATA_WALK_SEEDS_H_
