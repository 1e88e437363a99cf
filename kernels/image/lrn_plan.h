// SPDX-License-Identifier: Apache-2.0
// Local response normalization: what LRN and LRNGrad accept. For the
// kernels of all devices; pure.
#ifndef KERNELS_IMAGE_LRN_PLAN_H_
#define KERNELS_IMAGE_LRN_PLAN_H_

#include <cstdint>

#include "kernels/kernel.h"
#include "millrace/shape.h"
#include "millrace/status.h"

namespace millrace {

// Records an error in `c` for a negative radius.
struct LrnAttrs {
  explicit LrnAttrs(KernelConstruction& c);

  int64_t radius;
  float bias, alpha, beta;
};
// `input` is one of the op's inputs, `images` the one that is (or was) normalized. InvalidArgument
// for images of another rank than 4, and inputs of another shape.
Status CheckLrnImages(const Shape& images);
Status CheckLrnInput(const Shape& images, const Shape& input);

}  // namespace millrace

#endif  // KERNELS_IMAGE_LRN_PLAN_H_
