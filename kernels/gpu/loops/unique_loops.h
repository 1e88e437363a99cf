// SPDX-License-Identifier: Apache-2.0
// Distinct elements in the order in which they come first, and rows from several tensors.
#ifndef KERNELS_GPU_LOOPS_UNIQUE_LOOPS_H_
#define KERNELS_GPU_LOOPS_UNIQUE_LOOPS_H_

#include "kernels/gpu/loops/loops.h"
#include "kernels/gpu/loops/segment_loops.h"

namespace millrace::gpu {

// The bits of an element, the same for equal ones: zeros have one sign.
template <typename T>
MR_HD uint64_t BitsOf(T x) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return (x.bits & 0x7fff) == 0 ? 0 : x.bits;
  } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    if (x == 0) return 0;
    std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t> bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return bits;
  } else {
    return static_cast<std::make_unsigned_t<T>>(x);
  }
}

// A NaN equals nothing, itself included.
template <typename T>
MR_HD bool SameValue(T a, T b) {
  return Widen(a) == Widen(b);
}

// 32 bits of each element, in the order so far: the host's numbering if `order` is null.
template <typename T>
struct UniqueKeyEach {
  const T* in;
  const int32_t* order;
  int shift;
  int64_t* keys;
  int32_t* numbers;  // filled if there is no order
  MR_HD void operator()(int64_t i) const {
    if (order == nullptr) numbers[i] = static_cast<int32_t>(i);
    const uint64_t bits = BitsOf(in[order == nullptr ? i : order[i]]);
    keys[i] = static_cast<int64_t>(bits >> shift & 0xffffffffu);
  }
};

// Marks elements, where they lie, that are the first of equal ones. The sort was stable.
template <typename T>
struct UniqueFirstEach {
  const T* in;
  const int32_t* order;
  int64_t* first;
  MR_HD void operator()(int64_t i) const {
    first[order[i]] = i == 0 || !SameValue(in[order[i]], in[order[i - 1]]) ? 1 : 0;
  }
};

template <typename T, typename I>
struct UniqueEach {
  const T* in;
  const int32_t* order;
  const int64_t* numbers;  // of the distinct elements up to each, as they lie
  int64_t n;
  T* values;
  I *places, *counts;

  // The first of the sorted elements whose bits are not below (`above`: are above) those given.
  MR_HD int64_t Bound(uint64_t bits, bool above) const {
    int64_t begin = 0, left = n;
    while (left > 0) {
      const int64_t half = left / 2;
      const uint64_t x = BitsOf(in[order[begin + half]]);
      if (above ? x <= bits : x < bits) {
        begin += half + 1;
        left -= half + 1;
      } else {
        left = half;
      }
    }
    return begin;
  }
  MR_HD void operator()(int64_t i) const {
    const int64_t at = order[i];
    const T x = in[at];
    const bool equals_itself = SameValue(x, x);
    const int64_t first = equals_itself ? Bound(BitsOf(x), false) : i;
    const int64_t place = numbers[order[first]] - 1;
    places[at] = static_cast<I>(place);
    if (first != i) return;
    values[place] = x;
    if (counts != nullptr) {
      counts[place] = static_cast<I>(equals_itself ? Bound(BitsOf(x), true) - i : 1);
    }
  }
};

// In scratch, as SortedRows: keys end as marks, rows as numbers.
template <typename Launcher, typename T>
Outcome CountUnique(Queue queue, const UniqueParams& p, const SortedRows& at) {
  const Launcher launcher(queue);
  const T* const in = static_cast<const T*>(p.in);
  char* const scan_scratch = static_cast<char*>(p.scratch) + p.scratch_bytes - p.chunks * 8;
  const int64_t sort_bytes = scan_scratch - static_cast<char*>(at.rest);
  constexpr int64_t kAllBits = 0xffffffff;
  // As many passes as there are halves, the lower one first. The last one ends in at.order.
  int32_t* from = sizeof(T) == 8 ? at.order : at.first_order;
  int32_t* to = sizeof(T) == 8 ? at.first_order : at.order;
  for (int shift = 0; shift < static_cast<int>(sizeof(T)) * 8; shift += 32) {
    Outcome outcome = launcher.ForEach(
        p.n, UniqueKeyEach<T>{in, shift == 0 ? nullptr : from, shift, at.keys, from});
    if (outcome == nullptr) {
      outcome = launcher.SortPairs(p.n, at.keys, at.rows, from, to, at.rest, sort_bytes, kAllBits);
    }
    if (outcome != nullptr) return outcome;
    int32_t* const sorted = to;
    to = from;
    from = sorted;
  }
  const Outcome outcome = launcher.ForEach(p.n, UniqueFirstEach<T>{in, at.order, at.keys});
  if (outcome != nullptr) return outcome;
  return NumberFlags<Launcher>(queue, at.keys, p.n, p.chunks, scan_scratch, at.rows, p.distinct);
}

template <typename Launcher>
Outcome RunUnique(Queue queue, const UniqueParams& p) {
  using Numbers = Types<float, double, Half, BFloat16, int64_t, int32_t>;
  if (p.n >= (int64_t{1} << 31)) return "more than 2^31 elements to find the distinct ones of";
  const SortedRows at(p.scratch, p.n);
  return Dispatch(Numbers(), p.type, [&]<typename T>() -> Outcome {
    if (p.values == nullptr) return CountUnique<Launcher, T>(queue, p, at);
    return Dispatch(Types<int32_t, int64_t>(), p.index_type, [&]<typename I>() {
      return Launcher(queue).ForEach(
          p.n, UniqueEach<T, I>{static_cast<const T*>(p.in), at.order, at.rows, p.n,
                                static_cast<T*>(p.values), static_cast<I*>(p.places),
                                static_cast<I*>(p.counts)});
    });
  });
}

template <typename T>
struct CollectEach {
  CollectParams p;
  MR_HD void operator()(int64_t i) const {
    const int64_t row = i / p.inner, k = i - row * p.inner;
    const int32_t source = p.sources[2 * row];
    T* const out = static_cast<T*>(p.out) + i;
    if (source < 0) {
      if (p.first == 0) *out = T{};
    } else if (source >= p.first && source < p.first + p.given) {
      *out = static_cast<const T*>(p.from[source - p.first])[p.sources[2 * row + 1] * p.inner + k];
    }
  }
};

template <typename Launcher>
Outcome RunCollect(Queue queue, const CollectParams& p) {
  return DispatchSize(p.size, [&]<typename T>() {
    return Launcher(queue).ForEach(p.count * p.inner, CollectEach<T>{p});
  });
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_UNIQUE_LOOPS_H_
