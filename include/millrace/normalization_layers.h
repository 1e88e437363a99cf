// SPDX-License-Identifier: Apache-2.0
// Layers that bring values to a known mean and variance. As millrace/layers.h says.
#ifndef MILLRACE_NORMALIZATION_LAYERS_H_
#define MILLRACE_NORMALIZATION_LAYERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/core_layers.h"

namespace millrace {
namespace layers {

// Options of BatchNormalization, as Keras 3's.
struct BatchNormalizationOptions {
  int axis = -1;                          // of the features
  double momentum = 0.99;                 // share of the moving values that an update keeps
  double epsilon = 1e-3;                  // added to the variance
  bool center = true,                     // whether beta is added
      scale = true;                       // whether it is multiplied by gamma
  Initializer beta_initializer{},         // Zeros
      gamma_initializer{};                // Ones
  Initializer moving_mean_initializer{},  // Zeros
      moving_variance_initializer{};      // Ones
  Regularizer beta_regularizer{},         // loss of beta
      gamma_regularizer{};                // loss of gamma
  Constraint beta_constraint{},           // of beta after each update
      gamma_constraint{};                 // of gamma after each update
  std::string name{};  // prefix of variables and nodes; "": the kind's in snake_case
  // Under a strategy: by the mean and variance of the global batch, over the replicas of all
  // workers, instead of those of the replica's part.
  bool synchronized = false;
};
// In training by the mean and the (biased) variance of the batch, of steps that count alone,
// towards which the moving ones go by the pass's updates; else, and if it is not trainable, by the
// moving ones. Variables: gamma, beta, moving_mean, moving_variance.
LayerPtr BatchNormalization(const BatchNormalizationOptions& options = {},
                            Where where = Where::current());

// Options of LayerNormalization, as Keras 3's.
struct LayerNormalizationOptions {
  std::vector<int> axes{-1};       // of the means and variances; negative ones count from the end
  double epsilon = 1e-3;           // added to the variance
  bool center = true,              // whether beta is added
      scale = true;                // whether it is multiplied by gamma
  Initializer beta_initializer{},  // Zeros
      gamma_initializer{};         // Ones
  Regularizer beta_regularizer{},  // loss of beta
      gamma_regularizer{};         // loss of gamma
  Constraint beta_constraint{},    // of beta after each update
      gamma_constraint{};          // of gamma after each update
  std::string name{};              // prefix of variables and nodes; "": the kind's in snake_case
};
// Each sample by itself, over the axes. Variables: gamma, beta.
LayerPtr LayerNormalization(const LayerNormalizationOptions& options = {},
                            Where where = Where::current());

// Options of GroupNormalization, as Keras 3's.
struct GroupNormalizationOptions {
  int64_t groups = 32;             // of channels; -1: each channel by itself
  int axis = -1;                   // the last one
  double epsilon = 1e-3;           // added to the variance
  bool center = true,              // whether beta is added
      scale = true;                // whether it is multiplied by gamma
  Initializer beta_initializer{},  // Zeros
      gamma_initializer{};         // Ones
  Regularizer beta_regularizer{},  // loss of beta
      gamma_regularizer{};         // loss of gamma
  Constraint beta_constraint{},    // of beta after each update
      gamma_constraint{};          // of gamma after each update
  std::string name{};              // prefix of variables and nodes; "": the kind's in snake_case
};
// Each sample and group of channels by itself, over all places. Variables: gamma, beta.
LayerPtr GroupNormalization(const GroupNormalizationOptions& options = {},
                            Where where = Where::current());

// To a length of one over the axes.
LayerPtr UnitNormalization(std::vector<int> axes = {-1}, std::string name = "",
                           Where where = Where::current());

}  // namespace layers
}  // namespace millrace

#endif  // MILLRACE_NORMALIZATION_LAYERS_H_
