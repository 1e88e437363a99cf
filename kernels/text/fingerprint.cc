// SPDX-License-Identifier: Apache-2.0
#include "kernels/text/fingerprint.h"

#include <bit>
#include <cstring>
#include <utility>

namespace millrace {
namespace {

// The constants of FarmHash.
constexpr uint64_t kA = 0xc3a5c85c97cb3127ull;
constexpr uint64_t kB = 0xb492b66fbe98f273ull;
constexpr uint64_t kC = 0x9ae16a3b2f90404full;

uint64_t Load64(const char* p) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
uint64_t Load32(const char* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
uint64_t Right(uint64_t value, int bits) { return std::rotr(value, bits); }
uint64_t Fold(uint64_t value) { return value ^ (value >> 47); }

uint64_t Mix(uint64_t u, uint64_t v, uint64_t multiplier) {
  const uint64_t a = Fold((u ^ v) * multiplier);
  return Fold((v ^ a) * multiplier) * multiplier;
}

uint64_t UpTo16(const char* s, std::size_t n) {
  const uint64_t multiplier = kC + n * 2;
  if (n >= 8) {
    const uint64_t a = Load64(s) + kC, b = Load64(s + n - 8);
    return Mix(Right(b, 37) * multiplier + a, (Right(a, 25) + b) * multiplier, multiplier);
  }
  if (n >= 4) return Mix(n + (Load32(s) << 3), Load32(s + n - 4), multiplier);
  if (n == 0) return kC;
  const auto at = [s](std::size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(s[i])); };
  const uint32_t y = at(0) + (at(n >> 1) << 8);
  const uint32_t z = static_cast<uint32_t>(n) + (at(n - 1) << 2);
  return Fold(y * kC ^ z * kA) * kC;
}

uint64_t UpTo32(const char* s, std::size_t n) {
  const uint64_t multiplier = kC + n * 2;
  const uint64_t a = Load64(s) * kB, b = Load64(s + 8);
  const uint64_t c = Load64(s + n - 8) * multiplier, d = Load64(s + n - 16) * kC;
  return Mix(Right(a + b, 43) + Right(c, 30) + d, a + Right(b + kC, 18) + c, multiplier);
}

uint64_t UpTo64(const char* s, std::size_t n) {
  const uint64_t multiplier = kC + n * 2;
  const uint64_t a = Load64(s) * kC, b = Load64(s + 8);
  const uint64_t c = Load64(s + n - 8) * multiplier, d = Load64(s + n - 16) * kC;
  const uint64_t y = Right(a + b, 43) + Right(c, 30) + d;
  const uint64_t z = Mix(y, a + Right(b + kC, 18) + c, multiplier);
  const uint64_t e = Load64(s + 16) * multiplier, f = Load64(s + 24);
  const uint64_t g = (y + Load64(s + n - 32)) * multiplier;
  const uint64_t h = (z + Load64(s + n - 24)) * multiplier;
  return Mix(Right(e + f, 43) + Right(g, 30) + h, e + Right(f + a, 18) + g, multiplier);
}

using Pair = std::pair<uint64_t, uint64_t>;

Pair Weak32(const char* s, uint64_t a, uint64_t b) {
  const uint64_t w = Load64(s), x = Load64(s + 8), y = Load64(s + 16), z = Load64(s + 24);
  a += w;
  b = Right(b + a + z, 21);
  const uint64_t c = a;
  a += x + y;
  b += Right(a, 44);
  return {a + z, b + c};
}

uint64_t Long(const char* s, std::size_t n) {
  constexpr uint64_t kSeed = 81;
  uint64_t x = kSeed, y = kSeed * kB + 113, z = Fold(y * kC + 113) * kC;
  Pair v{0, 0}, w{0, 0};
  x = x * kC + Load64(s);
  const char* const end = s + ((n - 1) / 64) * 64;
  const char* const last = end + ((n - 1) & 63) - 63;
  do {
    x = Right(x + y + v.first + Load64(s + 8), 37) * kB;
    y = Right(y + v.second + Load64(s + 48), 42) * kB;
    x ^= w.second;
    y += v.first + Load64(s + 40);
    z = Right(z + w.first, 33) * kB;
    v = Weak32(s, v.second * kB, x + w.first);
    w = Weak32(s + 32, z + w.second, y + Load64(s + 16));
    std::swap(z, x);
    s += 64;
  } while (s != end);
  const uint64_t multiplier = kB + ((z & 0xff) << 1);
  s = last;
  w.first += (n - 1) & 63;
  v.first += w.first;
  w.first += v.first;
  x = Right(x + y + v.first + Load64(s + 8), 37) * multiplier;
  y = Right(y + v.second + Load64(s + 48), 42) * multiplier;
  x ^= w.second * 9;
  y += v.first * 9 + Load64(s + 40);
  z = Right(z + w.first, 33) * multiplier;
  v = Weak32(s, v.second * multiplier, x + w.first);
  w = Weak32(s + 32, z + w.second, y + Load64(s + 16));
  std::swap(z, x);
  return Mix(Mix(v.first, w.first, multiplier) + Fold(y) * kA + z,
             Mix(v.second, w.second, multiplier) + x, multiplier);
}

}  // namespace

uint64_t Fingerprint64(std::string_view text) {
  const std::size_t n = text.size();
  if (n <= 16) return UpTo16(text.data(), n);
  if (n <= 32) return UpTo32(text.data(), n);
  if (n <= 64) return UpTo64(text.data(), n);
  return Long(text.data(), n);
}

uint64_t SipHash(uint64_t key0, uint64_t key1, std::string_view text) {
  uint64_t v0 = key0 ^ 0x736f6d6570736575ull, v1 = key1 ^ 0x646f72616e646f6dull;
  uint64_t v2 = key0 ^ 0x6c7967656e657261ull, v3 = key1 ^ 0x7465646279746573ull;
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  };
  const auto absorb = [&](uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  };
  const uint64_t length = text.size();
  for (; text.size() >= 8; text.remove_prefix(8)) absorb(Load64(text.data()));
  uint64_t last = length << 56;
  for (std::size_t i = 0; i < text.size(); ++i) {
    last |= static_cast<uint64_t>(static_cast<uint8_t>(text[i])) << (8 * i);
  }
  absorb(last);
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace millrace
