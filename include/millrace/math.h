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
  Expr(const Scope& scope, const Output& output) : scope_(scope), output_(output) {}

  const Scope& scope() const { return scope_; }
  const Output& output() const { return output_; }
  operator Output() const { return output_; }  // NOLINT: used where an output is
  operator Input() const { return output_; }   // NOLINT
  DataType dtype() const { return output_.dtype(); }
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
  Expr NotEqual(const Input& b) const { return Of(ops::NotEqual(scope_, *this, b)); }
  Expr And(const Input& b) const { return Of(ops::LogicalAnd(scope_, *this, b)); }
  Expr Or(const Input& b) const { return Of(ops::LogicalOr(scope_, *this, b)); }
  Expr Not() const { return Of(ops::LogicalNot(scope_, *this)); }

  Expr Abs() const { return Of(ops::Abs(scope_, *this)); }
  Expr Ceil() const { return Of(ops::Ceil(scope_, *this)); }
  Expr Cos() const { return Of(ops::Cos(scope_, *this)); }
  Expr Exp() const { return Of(ops::Exp(scope_, *this)); }
  Expr Floor() const { return Of(ops::Floor(scope_, *this)); }
  Expr Log() const { return Of(ops::Log(scope_, *this)); }
  Expr Sigmoid() const { return Of(ops::Sigmoid(scope_, *this)); }
  Expr Sign() const { return Of(ops::Sign(scope_, *this)); }
  Expr Softplus() const { return Of(ops::Softplus(scope_, *this)); }
  Expr Sqrt() const { return Of(ops::Sqrt(scope_, *this)); }
  Expr Square() const { return Of(ops::Square(scope_, *this)); }
  Expr Max(const Input& b) const { return Of(ops::Maximum(scope_, *this, b)); }
  Expr Min(const Input& b) const { return Of(ops::Minimum(scope_, *this, b)); }
  Expr Pow(const Input& exponent) const { return Of(ops::Pow(scope_, *this, exponent)); }
  // `base` to the power of this.
  Expr PowerOf(const Input& base) const { return Of(ops::Pow(scope_, base, *this)); }
  Expr Clip(const Input& low, const Input& high) const { return Max(low).Min(high); }
  // Zero where the divisor is.
  Expr DivNoNan(const Input& b) const { return Of(ops::DivNoNan(scope_, *this, b)); }
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
  Expr Mean(const std::vector<int32_t>& axes = {}, bool keep_dims = false) const {
    return Of(ops::Mean(scope_, *this, Axes(axes), {.keep_dims = keep_dims}));
  }
  Expr ReduceMax(const std::vector<int32_t>& axes = {}, bool keep_dims = false) const {
    return Of(ops::Max(scope_, *this, Axes(axes), {.keep_dims = keep_dims}));
  }
  Expr ExpandDims(int32_t axis) const { return Of(ops::ExpandDims(scope_, *this, axis)); }
  Expr Squeeze(int64_t axis) const {
    return Of(ops::Squeeze(scope_, *this, {.squeeze_dims = {axis}}));
  }
  Expr Reshape(const Input& shape) const { return Of(ops::Reshape(scope_, *this, shape)); }
  Expr MatMul(const Input& b) const { return Of(ops::MatMul(scope_, *this, b)); }
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
  template <typename T>
    requires(std::constructible_from<Input, const T&>)
  Operand(const T& value,  // NOLINT
          std::source_location where = std::source_location::current())
      : input_(value), where_(where) {}
  Operand(const Variable& variable,  // NOLINT
          std::source_location where = std::source_location::current())
      : input_(variable.read), where_(where) {}

  const Input& input() const { return input_; }
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
