// SPDX-License-Identifier: Apache-2.0
// Fourier transforms.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// Over the last kRank axes, whose sizes stay.
template <int kRank>
Status FftShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(0, kRank));
  c.set_output(0, std::move(shape));
  return OkStatus();
}

// Of or to real numbers; input 1 says how many of these there are along each axis. Of the last
// axis of what is transformed half is kept, which tells the rest.
Status RealFftShape(InferenceContext& c, int rank, bool forward) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(0, rank));
  MR_ASSIGN_OR_RETURN(const PartialShape length, c.WithRank(1, 1));
  if (length.dim(0) >= 0 && length.dim(0) != rank) {
    return errors::InvalidArgument("Dimension must be ", rank, " but is ", length.dim(0));
  }
  Dims sizes;
  const bool known = ConstantInts(c, 1, &sizes) && static_cast<int>(sizes.size()) == rank;
  if (!shape.has_rank()) return UnknownShape(c);
  for (int i = 0; i < rank; ++i) {
    int64_t size = known ? sizes[i] : -1;
    if (size < -1) {
      return errors::InvalidArgument("fft_length[", i, "] must be >= 0, but got: ", size);
    }
    if (forward && i == rank - 1 && size > 0) size = size / 2 + 1;
    shape.SetDim(shape.rank() - rank + i, size);
  }
  c.set_output(0, std::move(shape));
  return OkStatus();
}
template <int kRank>
Status FromRealShape(InferenceContext& c) {
  return RealFftShape(c, kRank, true);
}
template <int kRank>
Status ToRealShape(InferenceContext& c) {
  return RealFftShape(c, kRank, false);
}

constexpr char kComplex[] = "Tcomplex: {complex64, complex128} = complex64";
constexpr char kRealAndComplex[] =
    "Treal: {float, double} = float; Tcomplex: {complex64, complex128} = complex64";

constexpr OpSpec kOps[] = {
    {"FFT", "input: Tcomplex", "output: Tcomplex", kComplex, FftShape<1>},
    {"FFT2D", "input: Tcomplex", "output: Tcomplex", kComplex, FftShape<2>},
    {"FFT3D", "input: Tcomplex", "output: Tcomplex", kComplex, FftShape<3>},
    {"IFFT", "input: Tcomplex", "output: Tcomplex", kComplex, FftShape<1>},
    {"IFFT2D", "input: Tcomplex", "output: Tcomplex", kComplex, FftShape<2>},
    {"IFFT3D", "input: Tcomplex", "output: Tcomplex", kComplex, FftShape<3>},
    {"IRFFT", "input: Tcomplex, fft_length: int32", "output: Treal", kRealAndComplex,
     ToRealShape<1>},
    {"IRFFT2D", "input: Tcomplex, fft_length: int32", "output: Treal", kRealAndComplex,
     ToRealShape<2>},
    {"IRFFT3D", "input: Tcomplex, fft_length: int32", "output: Treal", kRealAndComplex,
     ToRealShape<3>},
    {"RFFT", "input: Treal, fft_length: int32", "output: Tcomplex", kRealAndComplex,
     FromRealShape<1>},
    {"RFFT2D", "input: Treal, fft_length: int32", "output: Tcomplex", kRealAndComplex,
     FromRealShape<2>},
    {"RFFT3D", "input: Treal, fft_length: int32", "output: Tcomplex", kRealAndComplex,
     FromRealShape<3>},
};

}  // namespace

Status RegisterSignalOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
