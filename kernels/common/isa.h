// SPDX-License-Identifier: Apache-2.0
// One loop compiled for several instruction sets, of which the best that the processor has is
// taken at run time: the program itself starts on any x86-64.
#ifndef KERNELS_COMMON_ISA_H_
#define KERNELS_COMMON_ISA_H_

#define MR_ALWAYS_INLINE inline __attribute__((always_inline))

#if defined(__x86_64__)
#define MR_TARGET_AVX2 __attribute__((target("avx2,fma")))
#if defined(__clang__)
#define MR_TARGET_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma")))
#else
#define MR_TARGET_AVX512 \
  __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma,prefer-vector-width=512")))
#endif
#else
#define MR_TARGET_AVX2
#define MR_TARGET_AVX512
#endif

namespace millrace {

enum class Isa { kBase, kAvx2, kAvx512 };

// What this processor has.
inline Isa BestIsa() {
#if defined(__x86_64__)
  static const Isa best = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
      return Isa::kAvx512;
    }
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? Isa::kAvx2
                                                                           : Isa::kBase;
  }();
  return best;
#else
  return Isa::kBase;
#endif
}

// The versions of F::Run, a static function that is MR_ALWAYS_INLINE and hands no vectors in
// or out. What it calls is compiled with it only where it is inlined too.
template <typename F, typename Signature = decltype(F::Run)>
struct IsaVersions;
template <typename F, typename R, typename... A>
struct IsaVersions<F, R(A...)> {
  using Pointer = R (*)(A...);
  static R Base(A... a) { return F::Run(a...); }
  MR_TARGET_AVX2 static R Avx2(A... a) { return F::Run(a...); }
  MR_TARGET_AVX512 static R Avx512(A... a) { return F::Run(a...); }
  static Pointer For(Isa isa) {
    return isa == Isa::kAvx512 ? &Avx512 : isa == Isa::kAvx2 ? &Avx2 : &Base;
  }
};

// F::Run for this processor.
template <typename F>
typename IsaVersions<F>::Pointer BestVersion() {
  return IsaVersions<F>::For(BestIsa());
}

}  // namespace millrace

#endif  // KERNELS_COMMON_ISA_H_
