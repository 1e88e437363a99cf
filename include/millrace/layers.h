// SPDX-License-Identifier: Apache-2.0
// The layers of Keras 3, in millrace::layers: what they compute, their defaults, the names of their
// variables. Each function makes a layer; what an option says nothing of is as in Keras.
//
//   auto net = layers::Sequential({layers::Flatten(), layers::Dense(128, {.activation = "relu"}),
//                                  layers::Dropout(0.2), layers::Dense(10)});
//   Pass pass(graph.root(), /*training=*/true);
//   Output logits = (*net)(pass, images);
//
// Inputs are batches: the first axis, whose size need not be known, is that of the samples. Ranks
// and the sizes of the axes that weights depend on must be known; InvalidArgument in the graph's
// status says which layer, made where, lacks what. Images are [batch, height, width, channels],
// sequences [batch, steps, features]. Weights are float32.
#ifndef MILLRACE_LAYERS_H_
#define MILLRACE_LAYERS_H_

#include "millrace/core_layers.h"
#include "millrace/image_layers.h"
#include "millrace/normalization_layers.h"
#include "millrace/preprocessing_layers.h"
#include "millrace/sequence_layers.h"

#endif  // MILLRACE_LAYERS_H_
