// SPDX-License-Identifier: Apache-2.0
// Arithmetic on outputs: `w * x + b` adds the nodes that compute it.
//
// An Output knows its graph, so no current graph is needed; what is made of outputs and variables
// alone lies in the graph's root scope, under no name and on no device in particular. An Expr
// brings a scope along: nodes made of it are named, placed and ordered as that scope says.
#ifndef MILLRACE_MATH_H_
#define MILLRACE_MATH_H_

#include <concepts>
#include <cstdint>
#include <source_location>
#include <type_traits>
#include <vector>

#include "millrace/graph.h"
#include "millrace/ops.h"
#include "millrace/variables.h"

namespace millrace {

// The root scope of the graph that has `output`, which must be valid.
Scope RootScopeOf(const Output& output);

// An output and the scope that takes what is computed of it. A number or tensor beside it gets its
// type. A plain value: copies are cheap, and lifetimes are those of a Scope.
class Expr {
 public:
  // Nodes made of it lie in `scope`, whatever scope made `output`.
  Expr(const Scope& scope, const Output& output) : scope_(scope), output_(output) {}

  // Where nodes made of this go.
  const Scope& scope() const { return scope_; }
  // The output without its scope.
  const Output& output() const { return output_; }
  operator Output() const { return output_; }         // NOLINT: used where an output is
  operator Input() const { return output_; }          // NOLINT
  DataType dtype() const { return output_.dtype(); }  // of the elements
  // What is known of the shape when the graph is built.
  PartialShape shape() const { return output_.shape(); }
  // The same output for nodes of another scope.
  Expr In(const Scope& scope) const { return Expr(scope, output_); }

  Expr operator-() const { return Of(ops::Neg(scope_, output_)); }
  friend Expr operator+(const Expr& a, const Input& b) { return a.Of(ops::Add(a.scope_, a, b)); }
  friend Expr operator-(const Expr& a, const Input& b) { return a.Of(ops::Sub(a.scope_, a, b)); }
  friend Expr operator*(const Expr& a, const Input& b) { return a.Of(ops::Mul(a.scope_, a, b)); }
  friend Expr operator/(const Expr& a, const Input& b) {
    return a.Of(ops::RealDiv(a.scope_, a, b));
  }
  template <typename T>
    requires(std::is_arithmetic_v<T>)
  friend Expr operator+(T a, const Expr& b) {
    return b.Of(ops::Add(b.scope_, a, b));
  }
  template <typename T>
    requires(std::is_arithmetic_v<T>)
  friend Expr operator-(T a, const Expr& b) {
    return b.Of(ops::Sub(b.scope_, a, b));
  }
  template <typename T>
    requires(std::is_arithmetic_v<T>)
  friend Expr operator*(T a, const Expr& b) {
    return b.Of(ops::Mul(b.scope_, a, b));
  }
  template <typename T>
    requires(std::is_arithmetic_v<T>)
  friend Expr operator/(T a, const Expr& b) {
    return b.Of(ops::RealDiv(b.scope_, a, b));
  }
  friend Expr operator>(const Expr& a, const Input& b) {
    return a.Of(ops::Greater(a.scope_, a, b));
  }
  friend Expr operator>=(const Expr& a, const Input& b) {
    return a.Of(ops::GreaterEqual(a.scope_, a, b));
  }
  friend Expr operator<(const Expr& a, const Input& b) { return a.Of(ops::Less(a.scope_, a, b)); }
  friend Expr operator<=(const Expr& a, const Input& b) {
    return a.Of(ops::LessEqual(a.scope_, a, b));
  }
  // Element by element; == on expressions would compare handles, as it does on outputs.
  Expr Equal(const Input& b) const { return Of(ops::Equal(scope_, *this, b)); }
  // Bools, element by element; both sides are broadcast.
  Expr NotEqual(const Input& b) const { return Of(ops::NotEqual(scope_, *this, b)); }
  // Of bools: whether both are true.
  Expr And(const Input& b) const { return Of(ops::LogicalAnd(scope_, *this, b)); }
  // Of bools: whether at least one is true.
  Expr Or(const Input& b) const { return Of(ops::LogicalOr(scope_, *this, b)); }
  // Of bools: the opposite.
  Expr Not() const { return Of(ops::LogicalNot(scope_, *this)); }

  // Element by element, as all up to DivNoNan: |x|.
  Expr Abs() const { return Of(ops::Abs(scope_, *this)); }
  // The least whole number not below x.
  Expr Ceil() const { return Of(ops::Ceil(scope_, *this)); }
  // The cosine of x in radians.
  Expr Cos() const { return Of(ops::Cos(scope_, *this)); }
  // e^x.
  Expr Exp() const { return Of(ops::Exp(scope_, *this)); }
  // The greatest whole number not above x.
  Expr Floor() const { return Of(ops::Floor(scope_, *this)); }
  // The natural logarithm: NaN below 0, minus infinity at 0.
  Expr Log() const { return Of(ops::Log(scope_, *this)); }
  // 1 / (1 + e^-x).
  Expr Sigmoid() const { return Of(ops::Sigmoid(scope_, *this)); }
  // -1, 0 or 1.
  Expr Sign() const { return Of(ops::Sign(scope_, *this)); }
  // log(1 + e^x).
  Expr Softplus() const { return Of(ops::Softplus(scope_, *this)); }
  // The square root: NaN below 0.
  Expr Sqrt() const { return Of(ops::Sqrt(scope_, *this)); }
  // x^2.
  Expr Square() const { return Of(ops::Square(scope_, *this)); }
  // The larger of both; see ReduceMax for that of a tensor.
  Expr Max(const Input& b) const { return Of(ops::Maximum(scope_, *this, b)); }
  // The smaller of both.
  Expr Min(const Input& b) const { return Of(ops::Minimum(scope_, *this, b)); }
  // This to the power of `exponent`.
  Expr Pow(const Input& exponent) const { return Of(ops::Pow(scope_, *this, exponent)); }
  // `base` to the power of this.
  Expr PowerOf(const Input& base) const { return Of(ops::Pow(scope_, base, *this)); }
  // What lies outside of [low, high] becomes the nearer end.
  Expr Clip(const Input& low, const Input& high) const { return Max(low).Min(high); }
  // Zero where the divisor is.
  Expr DivNoNan(const Input& b) const { return Of(ops::DivNoNan(scope_, *this, b)); }
  // The values in another type; no node if it is the same.
  Expr Cast(DataType dtype) const {
    return output_.dtype() == dtype ? *this : Of(ops::Cast(scope_, *this, dtype));
  }
  // This, a bool, says from which of the two each element comes; all three are broadcast.
  Expr Select(const Input& if_true, const Input& if_false) const {
    return Of(ops::SelectV2(scope_, *this, if_true, if_false));
  }

  // Over the given axes, or over all; axes count from the end if negative.
  Expr Sum(const std::vector<int32_t>& axes = {}, bool keep_dims = false) const {
    return Of(ops::Sum(scope_, *this, Axes(axes), {.keep_dims = keep_dims}));
  }
  // The mean over axes, which stay with size 1 if keep_dims.
  Expr Mean(const std::vector<int32_t>& axes = {}, bool keep_dims = false) const {
    return Of(ops::Mean(scope_, *this, Axes(axes), {.keep_dims = keep_dims}));
  }
  // The largest element over axes.
  Expr ReduceMax(const std::vector<int32_t>& axes = {}, bool keep_dims = false) const {
    return Of(ops::Max(scope_, *this, Axes(axes), {.keep_dims = keep_dims}));
  }
  // With a new axis of size 1 at `axis`; -1: behind all.
  Expr ExpandDims(int32_t axis) const { return Of(ops::ExpandDims(scope_, *this, axis)); }
  // Without an axis, whose size must be 1.
  Expr Squeeze(int64_t axis) const {
    return Of(ops::Squeeze(scope_, *this, {.squeeze_dims = {axis}}));
  }
  // The same elements in another shape, an int32 or int64 vector; one size may be -1.
  Expr Reshape(const Input& shape) const { return Of(ops::Reshape(scope_, *this, shape)); }
  // The product of two matrices.
  Expr MatMul(const Input& b) const { return Of(ops::MatMul(scope_, *this, b)); }
  // With axis permutation[i] of this as axis i.
  Expr Transpose(const Input& permutation) const {
    return Of(ops::Transpose(scope_, *this, permutation));
  }

 private:
  Expr Of(const Output& output) const { return Expr(scope_, output); }
  Input Axes(const std::vector<int32_t>& axes) const;

  Scope scope_;
  Output output_;
};

// The other side of an operator: a number, a tensor, an output or the value of a variable; knows
// the line that says so, for errors.
class Operand {
 public:
  // A number, a tensor or an output.
  template <typename T>
    requires(std::constructible_from<Input, const T&>)
  Operand(const T& value,  // NOLINT
          std::source_location where = std::source_location::current())
      : input_(value), where_(where) {}
  // The variable's value when the step reads it.
  Operand(const Variable& variable,  // NOLINT
          std::source_location where = std::source_location::current())
      : input_(variable.read), where_(where) {}

  // What the op of the operator takes.
  const Input& input() const { return input_; }
  // The line that errors name.
  std::source_location where() const { return where_; }

 private:
  Input input_;
  std::source_location where_;
};

Output operator-(const Output& a);
Output operator+(const Output& a, const Operand& b);
Output operator-(const Output& a, const Operand& b);
Output operator*(const Output& a, const Operand& b);
Output operator/(const Output& a, const Operand& b);
Output operator<(const Output& a, const Operand& b);
Output operator<=(const Output& a, const Operand& b);
Output operator>(const Output& a, const Operand& b);
Output operator>=(const Output& a, const Operand& b);

inline Output operator-(const Variable& a) { return -a.read; }
inline Output operator+(const Variable& a, const Operand& b) { return a.read + b; }
inline Output operator-(const Variable& a, const Operand& b) { return a.read - b; }
inline Output operator*(const Variable& a, const Operand& b) { return a.read * b; }
inline Output operator/(const Variable& a, const Operand& b) { return a.read / b; }
inline Output operator<(const Variable& a, const Operand& b) { return a.read < b; }
inline Output operator<=(const Variable& a, const Operand& b) { return a.read <= b; }
inline Output operator>(const Variable& a, const Operand& b) { return a.read > b; }
inline Output operator>=(const Variable& a, const Operand& b) { return a.read >= b; }

// A number on the left; it gets the type of what is on the right.
Output NumberMinus(const Input& a, const Output& b);
// a / b, element by element.
Output NumberDividedBy(const Input& a, const Output& b);
template <typename T>
  requires(std::is_arithmetic_v<T>)
Output operator+(T a, const Output& b) {
  return b + Operand(a);
}
template <typename T>
  requires(std::is_arithmetic_v<T>)
Output operator*(T a, const Output& b) {
  return b * Operand(a);
}
template <typename T>
  requires(std::is_arithmetic_v<T>)
Output operator-(T a, const Output& b) {
  return NumberMinus(a, b);
}
template <typename T>
  requires(std::is_arithmetic_v<T>)
Output operator/(T a, const Output& b) {
  return NumberDividedBy(a, b);
}
template <typename T>
  requires(std::is_arithmetic_v<T>)
Output operator+(T a, const Variable& b) {
  return a + b.read;
}
template <typename T>
  requires(std::is_arithmetic_v<T>)
Output operator*(T a, const Variable& b) {
  return a * b.read;
}
template <typename T>
  requires(std::is_arithmetic_v<T>)
Output operator-(T a, const Variable& b) {
  return a - b.read;
}
template <typename T>
  requires(std::is_arithmetic_v<T>)
Output operator/(T a, const Variable& b) {
  return a / b.read;
}

}  // namespace millrace

#endif  // MILLRACE_MATH_H_
