// SPDX-License-Identifier: Apache-2.0
// Weights as pictures.
#ifndef MODEL_CALLBACKS_WEIGHT_IMAGES_H_
#define MODEL_CALLBACKS_WEIGHT_IMAGES_H_

#include "millrace/tensor.h"

namespace millrace::model {

// Grey images [count, height, width, 1] of floats, the least value black and the greatest white: a
// vector is a column, a matrix lies on its longer side, of three and four axes (height, width, in,
// out) each output is an image, of its first input. Not initialised for other weights.
Tensor ImagesOf(const Tensor& weight);

}  // namespace millrace::model

#endif  // MODEL_CALLBACKS_WEIGHT_IMAGES_H_
