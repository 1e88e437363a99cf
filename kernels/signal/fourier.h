// SPDX-License-Identifier: Apache-2.0
// Discrete Fourier transforms of any length: mixed radices (Stockham's order, which needs no
// reversal of digits), and Bluestein's convolution where a prime factor is large. O(n log n)
// always.
#ifndef KERNELS_SIGNAL_FOURIER_H_
#define KERNELS_SIGNAL_FOURIER_H_

#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

namespace millrace {

// All that a transform of one length needs. Thread-safe: constant after construction.
template <typename T>
class FourierPlan {
 public:
  // n >= 1. Takes memory for O(n) numbers; throws std::bad_alloc if there is none.
  explicit FourierPlan(int64_t n);
  FourierPlan(const FourierPlan&) = delete;
  FourierPlan& operator=(const FourierPlan&) = delete;
  ~FourierPlan();

  int64_t size() const { return n_; }
  // Numbers of working memory that Transform needs.
  int64_t work_size() const;
  // y[k] = sum over j of x[j] e^(-2 pi i j k / n), or e^(+...) if `inverse`, without a factor 1/n.
  // In place.
  void Transform(std::complex<T>* x, std::complex<T>* work, bool inverse) const;

 private:
  struct Number {
    T re, im;
  };
  struct Chirp;

  // In place, without the factor.
  void Forward(Number* x, Number* work) const;
  void ForwardChirp(Number* x, Number* work) const;

  const int64_t n_;
  std::vector<int64_t> radices_;
  std::vector<Number> roots_;     // e^(-2 pi i k / n), k in [0, n)
  std::unique_ptr<Chirp> chirp_;  // where a prime factor is large; then the other two are empty
};

extern template class FourierPlan<float>;
extern template class FourierPlan<double>;

}  // namespace millrace

#endif  // KERNELS_SIGNAL_FOURIER_H_
