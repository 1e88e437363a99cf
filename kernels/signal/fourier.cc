// SPDX-License-Identifier: Apache-2.0
#include "kernels/signal/fourier.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace millrace {
namespace {

// From here on a prime factor p, which costs O(p) for each number, is dearer than a convolution.
constexpr int64_t kLargestRadix = 31;

// 4 first: it costs less than 2 twice.
std::vector<int64_t> RadicesOf(int64_t n) {
  std::vector<int64_t> radices;
  while (n % 4 == 0) radices.push_back(4), n /= 4;
  for (int64_t p = 2; p <= kLargestRadix && n > 1; ++p) {
    while (n % p == 0) radices.push_back(p), n /= p;
  }
  if (n > 1) radices.clear();
  return radices;
}

// e^(-2 pi i k / n), of angles in the first eighth of the circle, where sine and cosine are exact
// to the last bit or nearly so.
template <typename Number>
Number Root(int64_t k, int64_t n) {
  // The angle in eighths: k = eighth * n / 8 + rest, in units of 1 / 8 of k.
  const auto eights = static_cast<unsigned __int128>(k) * 8;
  const auto eighth = static_cast<int>(eights / static_cast<unsigned __int128>(n));
  const auto rest = static_cast<int64_t>(eights - static_cast<unsigned __int128>(eighth) *
                                                      static_cast<uint64_t>(n));
  const int64_t within = eighth % 2 == 0 ? rest : n - rest;
  const double angle =
      std::numbers::pi / 4 * (static_cast<double>(within) / static_cast<double>(n));
  double c = std::cos(angle), s = std::sin(angle);
  if (eighth % 4 == 1 || eighth % 4 == 2) std::swap(c, s);
  if (eighth >= 2 && eighth < 6) c = -c;
  if (eighth >= 4) s = -s;
  using T = decltype(Number::re);
  return {static_cast<T>(c), static_cast<T>(-s)};
}

template <typename N>
inline N Times(const N& a, const N& b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <typename N>
inline N Plus(const N& a, const N& b) {
  return {a.re + b.re, a.im + b.im};
}
template <typename N>
inline N Minus(const N& a, const N& b) {
  return {a.re - b.re, a.im - b.im};
}

// One pass: `count` transforms of length `radix`, whose inputs lie count * stride numbers apart;
// `stride` of them share roots. What the next pass reads as one transform goes to lie together.
template <typename N>
struct Pass {
  const N* in;
  N* out;
  const N* roots;  // of the whole length
  int64_t radix, count, stride;

  const N& Root(int64_t position, int64_t k) const { return roots[position * k * stride]; }

  void Two() const {
    for (int64_t p = 0; p < count; ++p) {
      const N w = Root(p, 1);
      const N *a = in + p * stride, *b = a + count * stride;
      N *y = out + 2 * p * stride, *z = y + stride;
      for (int64_t q = 0; q < stride; ++q) {
        const N sum = Plus(a[q], b[q]), difference = Minus(a[q], b[q]);
        y[q] = sum;
        z[q] = Times(difference, w);
      }
    }
  }

  void Four() const {
    for (int64_t p = 0; p < count; ++p) {
      const N w1 = Root(p, 1), w2 = Root(p, 2), w3 = Root(p, 3);
      const N *a = in + p * stride, *b = a + count * stride, *c = b + count * stride,
              *d = c + count * stride;
      N *y0 = out + 4 * p * stride, *y1 = y0 + stride, *y2 = y1 + stride, *y3 = y2 + stride;
      for (int64_t q = 0; q < stride; ++q) {
        const N ac = Plus(a[q], c[q]), a_c = Minus(a[q], c[q]);
        const N bd = Plus(b[q], d[q]), b_d = Minus(b[q], d[q]);
        const N turned = {b_d.im, -b_d.re};  // times -i
        y0[q] = Plus(ac, bd);
        y1[q] = Times(Plus(a_c, turned), w1);
        y2[q] = Times(Minus(ac, bd), w2);
        y3[q] = Times(Minus(a_c, turned), w3);
      }
    }
  }

  // Any radix up to kLargestRadix. `length`: of the whole transform.
  void Any(int64_t length) const {
    N inner[kLargestRadix];  // e^(-2 pi i k / radix)
    for (int64_t k = 0; k < radix; ++k) inner[k] = roots[k * (length / radix)];
    N sums[kLargestRadix];
    for (int64_t p = 0; p < count; ++p) {
      for (int64_t q = 0; q < stride; ++q) {
        const N* const x = in + p * stride + q;
        for (int64_t k = 0; k < radix; ++k) {
          N sum = x[0];
          for (int64_t j = 1, turn = k; j < radix; ++j) {
            sum = Plus(sum, Times(x[j * count * stride], inner[turn]));
            turn += k;
            if (turn >= radix) turn -= radix;
          }
          sums[k] = sum;
        }
        for (int64_t k = 0; k < radix; ++k) {
          out[(radix * p + k) * stride + q] = Times(sums[k], Root(p, k));
        }
      }
    }
  }
};

}  // namespace

// Bluestein (1970): jk = (j^2 + k^2 - (k - j)^2) / 2 makes the transform a convolution with a
// chirp, for which a length with small factors does.
template <typename T>
struct FourierPlan<T>::Chirp {
  explicit Chirp(int64_t n) : plan(LengthFor(n)) {
    factors.resize(static_cast<std::size_t>(n));
    spectrum.assign(static_cast<std::size_t>(plan.size()), {0, 0});
    // j^2 modulo 2n, by way of (j + 1)^2 = j^2 + 2j + 1.
    int64_t square = 0;
    for (int64_t j = 0; j < n; ++j) {
      factors[j] = Root<Number>(square, 2 * n);
      const Number conjugate = {factors[j].re, -factors[j].im};
      spectrum[j] = conjugate;
      if (j > 0) spectrum[plan.size() - j] = conjugate;
      square = (square + 2 * j + 1) % (2 * n);
    }
    std::vector<Number> work(static_cast<std::size_t>(plan.size()));
    plan.Forward(spectrum.data(), work.data());
    for (Number& s : spectrum) s = {s.re / T(plan.size()), s.im / T(plan.size())};
  }

  // A power of two, which holds 2n - 1 numbers.
  static int64_t LengthFor(int64_t n) {
    int64_t length = 1;
    while (length < 2 * n - 1) length *= 2;
    return length;
  }

  const FourierPlan<T> plan;
  std::vector<Number> factors;   // e^(-pi i j^2 / n)
  std::vector<Number> spectrum;  // of their conjugates, divided by the length
};

template <typename T>
FourierPlan<T>::FourierPlan(int64_t n) : n_(n), radices_(RadicesOf(n)) {
  if (n > 1 && radices_.empty()) {
    chirp_ = std::make_unique<Chirp>(n);
    return;
  }
  roots_.resize(static_cast<std::size_t>(n));
  for (int64_t k = 0; k < n; ++k) roots_[k] = Root<Number>(k, n);
}

template <typename T>
FourierPlan<T>::~FourierPlan() = default;

template <typename T>
int64_t FourierPlan<T>::work_size() const {
  return chirp_ == nullptr ? n_ : 2 * chirp_->plan.size();
}

template <typename T>
void FourierPlan<T>::Forward(Number* x, Number* work) const {
  Number *in = x, *out = work;
  int64_t count = n_, stride = 1;
  for (const int64_t radix : radices_) {
    count /= radix;
    const Pass<Number> pass{in, out, roots_.data(), radix, count, stride};
    if (radix == 4) {
      pass.Four();
    } else if (radix == 2) {
      pass.Two();
    } else {
      pass.Any(n_);
    }
    stride *= radix;
    std::swap(in, out);
  }
  if (in != x) std::copy_n(in, n_, x);
}

template <typename T>
void FourierPlan<T>::ForwardChirp(Number* x, Number* work) const {
  const Chirp& chirp = *chirp_;
  const int64_t length = chirp.plan.size();
  Number *const signal = work, *const rest = work + length;
  for (int64_t j = 0; j < n_; ++j) signal[j] = Times(x[j], chirp.factors[j]);
  std::fill(signal + n_, signal + length, Number{0, 0});
  chirp.plan.Forward(signal, rest);
  // The conjugate's forward transform is the conjugate of the inverse one.
  for (int64_t k = 0; k < length; ++k) {
    const Number product = Times(signal[k], chirp.spectrum[k]);
    signal[k] = {product.re, -product.im};
  }
  chirp.plan.Forward(signal, rest);
  for (int64_t k = 0; k < n_; ++k) {
    x[k] = Times(Number{signal[k].re, -signal[k].im}, chirp.factors[k]);
  }
}

template <typename T>
void FourierPlan<T>::Transform(std::complex<T>* x, std::complex<T>* work, bool inverse) const {
  // An array of complex numbers is one of pairs, by the standard.
  auto* const numbers = reinterpret_cast<Number*>(x);
  auto* const scratch = reinterpret_cast<Number*>(work);
  const auto conjugate = [&] {
    for (int64_t k = 0; k < n_; ++k) numbers[k].im = -numbers[k].im;
  };
  if (inverse) conjugate();
  chirp_ == nullptr ? Forward(numbers, scratch) : ForwardChirp(numbers, scratch);
  if (inverse) conjugate();
}

template class FourierPlan<float>;
template class FourierPlan<double>;

}  // namespace millrace
