// SPDX-License-Identifier: Apache-2.0
// Random numbers.
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// Counter and key.
Status GeneratorStateShape(InferenceContext& c) {
  c.set_output(0, PartialShape({3}));
  return OkStatus();
}

Status KeyCounterAlgShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(KeyCounterShape(c));
  c.set_output(2, Shape());
  return OkStatus();
}

constexpr OpSpec kOps[] = {
    {"RandomShuffle", "value: T", "output: T", "seed: int = 0; seed2: int = 0; T: type",
     UnchangedShape, kStateful},
    {"RandomStandardNormal", "shape: T", "output: dtype",
     "seed: int = 0; seed2: int = 0; dtype: floats; T: {int32, int64}", ShapeFromInput0, kStateful},
    {"RandomUniform", "shape: T", "output: dtype",
     "seed: int = 0; seed2: int = 0; dtype: floats; T: {int32, int64}", ShapeFromInput0, kStateful},
    {"RandomUniformInt", "shape: T, minval: Tout, maxval: Tout", "output: Tout",
     "seed: int = 0; seed2: int = 0; Tout: {int32, int64}; T: {int32, int64}", ShapeFromInput0,
     kStateful},
    {"RngReadAndSkip", "resource: resource, alg: int32, delta: uint64", "value: int64", "",
     GeneratorStateShape, kStateful},
    {"RngSkip", "resource: resource, algorithm: int64, delta: int64", "", "", NoOutputs, kStateful},
    {"StatelessMultinomial", "logits: T, num_samples: int32, seed: Tseed", "output: output_dtype",
     "T: reals; Tseed: {int32, int64} = int64; output_dtype: {int32, int64} = int64", UnknownShape},
    {"StatelessRandomGetAlg", "", "alg: int32", "", ScalarShape, kStateful},
    {"StatelessRandomGetKeyCounter", "seed: Tseed", "key: uint64, counter: uint64",
     "Tseed: {int32, int64} = int64", KeyCounterShape},
    {"StatelessRandomGetKeyCounterAlg", "seed: Tseed", "key: uint64, counter: uint64, alg: int32",
     "Tseed: {int32, int64} = int64", KeyCounterAlgShape},
    {"StatelessRandomNormal", "shape: T, seed: Tseed", "output: dtype",
     "dtype: floats = float; T: {int32, int64} = int32; Tseed: {int32, int64} = int64",
     ShapeFromInput0},
    {"StatelessRandomNormalV2", "shape: Tshape, key: uint64, counter: uint64, alg: int32",
     "output: dtype", "dtype: floats = float; Tshape: {int32, int64} = int32", ShapeFromInput0},
    {"StatelessRandomUniform", "shape: T, seed: Tseed", "output: dtype",
     "dtype: floats = float; T: {int32, int64} = int32; Tseed: {int32, int64} = int64",
     ShapeFromInput0},
    {"StatelessRandomUniformFullInt", "shape: T, seed: Tseed", "output: dtype",
     "dtype: {int32, int64, uint32, uint64} = uint64; T: {int32, int64} = int32; Tseed: {int32, "
     "int64, uint32, uint64} = int64",
     ShapeFromInput0},
    {"StatelessRandomUniformFullIntV2", "shape: Tshape, key: uint64, counter: uint64, alg: int32",
     "output: dtype",
     "dtype: {int32, int64, uint32, uint64} = uint64; Tshape: {int32, int64} = int32",
     ShapeFromInput0},
    {"StatelessRandomUniformInt", "shape: T, seed: Tseed, minval: dtype, maxval: dtype",
     "output: dtype", "dtype: {int32, int64}; T: {int32, int64}; Tseed: {int32, int64} = int64",
     ShapeFromInput0},
    {"StatelessRandomUniformIntV2",
     "shape: Tshape, key: uint64, counter: uint64, alg: int32, minval: dtype, maxval: dtype",
     "output: dtype", "dtype: {int32, int64, uint32, uint64}; Tshape: {int32, int64} = int32",
     ShapeFromInput0},
    {"StatelessRandomUniformV2", "shape: Tshape, key: uint64, counter: uint64, alg: int32",
     "output: dtype", "dtype: floats = float; Tshape: {int32, int64} = int32", ShapeFromInput0},
    {"StatelessShuffle", "value: T, key: uint64, counter: uint64, alg: int32", "output: T",
     "T: type", UnchangedShape},
    {"StatelessTruncatedNormal", "shape: T, seed: Tseed", "output: dtype",
     "dtype: floats = float; T: {int32, int64} = int32; Tseed: {int32, int64} = int64",
     ShapeFromInput0},
    {"StatelessTruncatedNormalV2", "shape: Tshape, key: uint64, counter: uint64, alg: int32",
     "output: dtype", "dtype: floats = float; Tshape: {int32, int64} = int32", ShapeFromInput0},
    {"TruncatedNormal", "shape: T", "output: dtype",
     "seed: int = 0; seed2: int = 0; dtype: floats; T: {int32, int64}", ShapeFromInput0, kStateful},
};

}  // namespace

Status RegisterRandomOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
