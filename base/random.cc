// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <sys/random.h>

#include "base/clock.h"

namespace millrace {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53u;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u;  // golden ratio
constexpr uint32_t kWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1
constexpr int kRounds = 10;

uint32_t Low(uint64_t v) { return static_cast<uint32_t>(v); }
uint32_t High(uint64_t v) { return static_cast<uint32_t>(v >> 32); }

}  // namespace

Philox::Philox(uint64_t seed_lo, uint64_t seed_hi)
    : counter_{0, 0, Low(seed_hi), High(seed_hi)}, key_{Low(seed_lo), High(seed_lo)} {}

void Philox::Skip(uint64_t count) {
  const uint64_t low = (static_cast<uint64_t>(counter_[1]) << 32) | counter_[0];
  const uint64_t sum = low + count;
  counter_[0] = Low(sum);
  counter_[1] = High(sum);
  if (sum < low && ++counter_[2] == 0) ++counter_[3];
}

Philox::Result Philox::operator()() {
  Result c = counter_;
  uint32_t key0 = key_[0];
  uint32_t key1 = key_[1];
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * c[0];
    const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * c[2];
    c = {High(product1) ^ c[1] ^ key0, Low(product1), High(product0) ^ c[3] ^ key1, Low(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  Skip(1);
  return c;
}

uint64_t RandomId() {
  uint64_t id = 0;
  while (id == 0) {
    if (getrandom(&id, sizeof(id), 0) != static_cast<ssize_t>(sizeof(id))) {
      // Interrupted by a signal, or no such call: the clock, stirred, is random enough for
      // an id that need only differ from others.
      Philox philox(static_cast<uint64_t>(SteadyNanos()), static_cast<uint64_t>(WallNanos()));
      const Philox::Result words = philox();
      id = (static_cast<uint64_t>(words[1]) << 32) | words[0];
    }
  }
  return id;
}

}  // namespace millrace
