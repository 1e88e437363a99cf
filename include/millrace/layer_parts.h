// SPDX-License-Identifier: Apache-2.0
// What layers are made with besides initial values: activations, regularizers, constraints. As
// Keras 3 defines them.
#ifndef MILLRACE_LAYER_PARTS_H_
#define MILLRACE_LAYER_PARTS_H_

#include <functional>
#include <source_location>
#include <string>
#include <utility>

#include "millrace/graph.h"
#include "millrace/layer.h"
#include "millrace/math.h"

namespace millrace {

// A function of one tensor, by Keras' name or of your own. "" and "linear" change nothing.
//   linear relu relu6 leaky_relu elu selu celu gelu silu swish mish softplus softsign softmax
//   log_softmax tanh sigmoid hard_sigmoid hard_silu hard_swish log_sigmoid exponential squareplus
//   tanh_shrink hard_tanh soft_shrink hard_shrink sparse_plus sparse_sigmoid glu
class ActivationFunction {
 public:
  ActivationFunction() = default;
  ActivationFunction(const char* name) : name_(name) {}             // NOLINT
  ActivationFunction(std::string name) : name_(std::move(name)) {}  // NOLINT
  template <typename F>
    requires(std::is_invocable_r_v<Expr, const F&, const Expr&>)
  ActivationFunction(F function) : name_("function"), function_(std::move(function)) {}  // NOLINT

  const std::string& name() const { return name_; }  // "function" for one of your own
  bool is_linear() const { return !function_ && (name_.empty() || name_ == "linear"); }  // identity
  // InvalidArgument in the graph's status, with the names that there are, if it is none of them.
  Expr operator()(const Expr& x,
                  std::source_location where = std::source_location::current()) const;

 private:
  std::string name_;
  std::function<Expr(const Expr&)> function_;
};

namespace activations {
Expr LeakyRelu(const Expr& x, float negative_slope = 0.2f);  // negative_slope x below zero
Expr Elu(const Expr& x, float alpha = 1);                    // alpha (exp(x) - 1) below zero
Expr Gelu(const Expr& x, bool approximate = false);          // x Phi(x); approximate: by tanh
// Over one axis, counted from the end if negative. The rank of x must be known.
Expr Softmax(const Expr& x, int axis = -1);
Expr LogSoftmax(const Expr& x, int axis = -1);  // logarithms of Softmax
}  // namespace activations

namespace regularizers {
Regularizer L1(double l1 = 0.01);        // l1 sum |x|
Regularizer L2(double l2 = 0.01);        // l2 sum x^2
Regularizer L1L2(double l1, double l2);  // l1 sum |x| + l2 sum x^2
// Of matrices: how far rows (or columns) are from being at right angles.
enum class OrthogonalMode { kRows, kColumns };
// InvalidArgument in the graph's status for what is no matrix of a known shape.
Regularizer Orthogonal(double factor = 0.01, OrthogonalMode mode = OrthogonalMode::kRows);
}  // namespace regularizers

// Norms are over `axes`: for kernels of Dense {0}, for those of Conv2D {0, 1, 2}.
namespace constraints {
Constraint MaxNorm(double max_value = 2, std::vector<int32_t> axes = {0});  // at most
Constraint NonNeg();                                   // negative values become 0
Constraint UnitNorm(std::vector<int32_t> axes = {0});  // norms of 1

// Bounds of MinMaxNorm.
struct MinMaxNormOptions {
  double min_value = 0,          // least norm
      max_value = 1;             // largest norm
  double rate = 1;               // share of the way to the bound that an update takes
  std::vector<int32_t> axes{0};  // over which norms are taken
};
// Norms brought towards the bounds where they are outside.
Constraint MinMaxNorm(const MinMaxNormOptions& options = {});
}  // namespace constraints

}  // namespace millrace

#endif  // MILLRACE_LAYER_PARTS_H_
