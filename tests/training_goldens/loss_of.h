// SPDX-License-Identifier: Apache-2.0
// Losses of Keras from their names and arguments.
#ifndef TESTS_TRAINING_GOLDENS_LOSS_OF_H_
#define TESTS_TRAINING_GOLDENS_LOSS_OF_H_

#include <optional>
#include <string>

#include "tests/training_goldens/golden.h"

namespace millrace::testing {

inline losses::CrossentropyOptions CrossentropyOf(const Arguments& a) {
  losses::CrossentropyOptions o;
  a.Get("from_logits", &o.from_logits);
  a.Get("label_smoothing", &o.label_smoothing);
  a.Get("axis", &o.axis);
  return o;
}

inline losses::FocalCrossentropyOptions FocalOf(const Arguments& a) {
  losses::FocalCrossentropyOptions o;
  a.Get("from_logits", &o.from_logits);
  a.Get("label_smoothing", &o.label_smoothing);
  a.Get("axis", &o.axis);
  a.Get("alpha", &o.alpha);
  a.Get("gamma", &o.gamma);
  a.Get("apply_class_balancing", &o.apply_class_balancing);
  return o;
}

inline losses::SparseCrossentropyOptions SparseOf(const Arguments& a) {
  losses::SparseCrossentropyOptions o;
  a.Get("from_logits", &o.from_logits);
  a.Get("ignore_class", &o.ignore_class);
  return o;
}

inline losses::OverlapOptions OverlapOf(const Arguments& a) {
  losses::OverlapOptions o;
  a.Get("alpha", &o.alpha);
  a.Get("beta", &o.beta);
  if (a.Has("axis")) o.axes = a.json()["axis"].get<std::vector<int32_t>>();
  return o;
}

// By the class, or by the function; nothing if there is none of this name.
inline std::optional<losses::Loss> LossOf(const std::string& name, const Arguments& a) {
  const auto is = [&](const char* its_class, const char* function) {
    return name == its_class || name == function;
  };
  if (is("MeanSquaredError", "mean_squared_error")) return losses::MeanSquaredError();
  if (is("MeanAbsoluteError", "mean_absolute_error")) return losses::MeanAbsoluteError();
  if (is("MeanAbsolutePercentageError", "mean_absolute_percentage_error")) {
    return losses::MeanAbsolutePercentageError();
  }
  if (is("MeanSquaredLogarithmicError", "mean_squared_logarithmic_error")) {
    return losses::MeanSquaredLogarithmicError();
  }
  if (is("LogCosh", "log_cosh")) return losses::LogCosh();
  if (is("Huber", "huber")) {
    losses::HuberOptions o;
    a.Get("delta", &o.delta);
    return losses::Huber(o);
  }
  if (is("CosineSimilarity", "cosine_similarity")) {
    losses::CosineSimilarityOptions o;
    a.Get("axis", &o.axis);
    return losses::CosineSimilarity(o);
  }
  if (is("KLDivergence", "kl_divergence")) return losses::KLDivergence();
  if (is("Poisson", "poisson")) return losses::Poisson();
  if (is("Hinge", "hinge")) return losses::Hinge();
  if (is("SquaredHinge", "squared_hinge")) return losses::SquaredHinge();
  if (is("CategoricalHinge", "categorical_hinge")) return losses::CategoricalHinge();
  if (is("BinaryCrossentropy", "binary_crossentropy")) {
    return losses::BinaryCrossentropy(CrossentropyOf(a));
  }
  if (is("CategoricalCrossentropy", "categorical_crossentropy")) {
    return losses::CategoricalCrossentropy(CrossentropyOf(a));
  }
  if (is("SparseCategoricalCrossentropy", "sparse_categorical_crossentropy")) {
    return losses::SparseCategoricalCrossentropy(SparseOf(a));
  }
  if (is("BinaryFocalCrossentropy", "binary_focal_crossentropy")) {
    return losses::BinaryFocalCrossentropy(FocalOf(a));
  }
  if (is("CategoricalFocalCrossentropy", "categorical_focal_crossentropy")) {
    return losses::CategoricalFocalCrossentropy(FocalOf(a));
  }
  if (name == "CategoricalGeneralizedCrossEntropy") {
    double q = 0.5;
    a.Get("q", &q);
    return losses::CategoricalGeneralizedCrossEntropy(q);
  }
  if (name == "Dice") return losses::Dice(OverlapOf(a));
  if (name == "Tversky") return losses::Tversky(OverlapOf(a));
  if (name == "Circle") {
    losses::CircleOptions o;
    a.Get("gamma", &o.gamma);
    a.Get("margin", &o.margin);
    return losses::Circle(o);
  }
  if (name == "CTC") return losses::Ctc();
  return std::nullopt;
}

}  // namespace millrace::testing

#endif  // TESTS_TRAINING_GOLDENS_LOSS_OF_H_
