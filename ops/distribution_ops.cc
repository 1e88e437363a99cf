// SPDX-License-Identifier: Apache-2.0
// Random numbers of distributions with parameters, and of generators that are variables.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

Status SetShapeFrom(InferenceContext& c, int i) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(i));
  c.set_output(0, std::move(shape));
  return OkStatus();
}

Status WithRankAtMost(const InferenceContext& c, int i, int rank) {
  if (!c.input(i).has_rank() || c.input(i).rank() <= rank) return OkStatus();
  return errors::InvalidArgument("Shape must be at most rank ", rank, " but is rank ",
                                 c.input(i).rank());
}

// A generator, its algorithm and the shape.
Status StatefulShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  return SetShapeFrom(c, 2);
}

Status StatefulIntShape(InferenceContext& c) {
  for (const int i : {3, 4}) MR_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  return StatefulShape(c);
}

Status StatefulBinomialShape(InferenceContext& c) {
  for (const int i : {3, 4}) MR_RETURN_IF_ERROR(WithRankAtMost(c, i, 1));
  return SetShapeFrom(c, 2);
}

// As many samples for each parameter.
Status SamplesByParameterShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape samples, c.InputAsShape(0));
  c.set_output(0, ConcatShapes(samples, c.input(1)));
  return OkStatus();
}

// A seed of two numbers.
Status SeededShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape seed, c.WithRank(1, 1));
  if (seed.has_rank()) MR_RETURN_IF_ERROR(MergeDim(seed.dim(0), 2).status());
  return SetShapeFrom(c, 0);
}

Status SeededTruncatedShape(InferenceContext& c) {
  PartialShape all = c.input(2);
  for (const int i : {3, 4, 5}) {
    MR_ASSIGN_OR_RETURN(all, BroadcastShapes(all, c.input(i)));
  }
  return SeededShape(c);
}

Status TruncatedShape(InferenceContext& c) {
  for (const int i : {1, 2, 3, 4}) MR_RETURN_IF_ERROR(WithRankAtMost(c, i, 1));
  return SetShapeFrom(c, 0);
}

// A window of an image of three dimensions.
Status CropShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape image, c.WithRank(0, 3));
  MR_ASSIGN_OR_RETURN(const PartialShape size, c.WithRank(1, 1));
  if (size.has_rank()) MR_RETURN_IF_ERROR(MergeDim(size.dim(0), 2).status());
  Dims window{-1, -1};
  if (ConstantInts(c, 1, &window) && (window.size() != 2 || window[0] < 0 || window[1] < 0)) {
    return errors::InvalidArgument("size must be two numbers that are not negative");
  }
  c.set_output(0, PartialShape({window[0], window[1], image.has_rank() ? image.dim(2) : -1}));
  return OkStatus();
}

constexpr OpSpec kOps[] = {
    {"NonDeterministicInts", "shape: shape_dtype", "output: dtype",
     "dtype: type = int64; shape_dtype: type = int64", ShapeFromInput0, kStateful},
    {"ParameterizedTruncatedNormal",
     "shape: T, means: dtype, stdevs: dtype, minvals: dtype, maxvals: dtype", "output: dtype",
     "seed: int = 0; seed2: int = 0; dtype: floats; T: {int32, int64}", TruncatedShape, kStateful},
    {"RandomCrop", "image: T, size: int64", "output: T",
     "T: {uint8, int8, int16, int32, int64, float, double}; seed: int = 0; seed2: int = 0",
     CropShape, kStateful, "8: Random crop is now pure Python"},
    {"RandomGamma", "shape: S, alpha: T", "output: T",
     "seed: int = 0; seed2: int = 0; S: {int32, int64}; T: {half, float, double}",
     SamplesByParameterShape, kStateful},
    {"RandomGammaGrad", "alpha: T, sample: T", "output: T", "T: {float, double}", BroadcastShape},
    {"RandomPoisson", "shape: S, rate: dtype", "output: dtype",
     "seed: int = 0; seed2: int = 0; S: {int32, int64}; dtype: {half, float, double}",
     SamplesByParameterShape, kStateful, "25: Replaced by RandomPoissonV2"},
    {"RandomPoissonV2", "shape: S, rate: R", "output: dtype",
     "seed: int = 0; seed2: int = 0; S: {int32, int64}; R: {half, float, double, int32, int64} = "
     "double; dtype: {half, float, double, int32, int64} = int64",
     SamplesByParameterShape, kStateful},
    {"StatefulRandomBinomial",
     "resource: resource, algorithm: int64, shape: S, counts: T, probs: T", "output: dtype",
     "S: {int32, int64}; T: {half, float, double, int32, int64} = double; dtype: {half, float, "
     "double, int32, int64} = int64",
     StatefulBinomialShape, kStateful},
    {"StatefulStandardNormal", "resource: resource, shape: shape_dtype", "output: dtype",
     "dtype: type = float; shape_dtype: type = int64", ShapeFromInput1, kStateful,
     "29: Use StatefulStandardNormalV2 instead"},
    {"StatefulStandardNormalV2", "resource: resource, algorithm: int64, shape: shape_dtype",
     "output: dtype", "dtype: type = float; shape_dtype: type = int64", StatefulShape, kStateful},
    {"StatefulTruncatedNormal", "resource: resource, algorithm: int64, shape: shape_dtype",
     "output: dtype", "dtype: type = float; shape_dtype: type = int64", StatefulShape, kStateful},
    {"StatefulUniform", "resource: resource, algorithm: int64, shape: shape_dtype", "output: dtype",
     "dtype: type = float; shape_dtype: type = int64", StatefulShape, kStateful},
    {"StatefulUniformFullInt", "resource: resource, algorithm: int64, shape: shape_dtype",
     "output: dtype", "dtype: type = uint64; shape_dtype: type = int64", StatefulShape, kStateful},
    {"StatefulUniformInt",
     "resource: resource, algorithm: int64, shape: shape_dtype, minval: dtype, maxval: dtype",
     "output: dtype", "dtype: type = int64; shape_dtype: type = int64", StatefulIntShape,
     kStateful},
    {"StatelessParameterizedTruncatedNormal",
     "shape: S, seed: Tseed, means: dtype, stddevs: dtype, minvals: dtype, maxvals: dtype",
     "output: dtype",
     "S: {int32, int64}; Tseed: {int32, int64} = int64; dtype: {half, float, double}",
     SeededTruncatedShape},
    {"StatelessRandomBinomial", "shape: S, seed: Tseed, counts: T, probs: T", "output: dtype",
     "S: {int32, int64}; Tseed: {int32, int64} = int64; T: {half, float, double, int32, int64} = "
     "double; dtype: {half, float, double, int32, int64} = int64",
     SeededShape},
    {"StatelessRandomGammaV2", "shape: T, seed: Tseed, alpha: dtype", "output: dtype",
     "dtype: {half, float, double}; T: {int32, int64}; Tseed: {int32, int64} = int64", SeededShape},
    {"StatelessRandomGammaV3",
     "shape: shape_dtype, key: uint64, counter: uint64, alg: int32, "
     "alpha: dtype",
     "output: dtype", "dtype: {half, float, double}; shape_dtype: {int32, int64} = int32",
     ShapeFromInput0},
    {"StatelessRandomPoisson", "shape: T, seed: Tseed, lam: Rtype", "output: dtype",
     "Rtype: {half, float, double, int32, int64}; dtype: {half, float, double, int32, int64}; T: "
     "{int32, int64}; Tseed: {int32, int64} = int64",
     SeededShape},
};

}  // namespace

Status RegisterDistributionOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
