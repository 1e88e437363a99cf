// SPDX-License-Identifier: Apache-2.0
// Bases of layers of one input.
#ifndef MODEL_LAYERS_UNARY_LAYER_H_
#define MODEL_LAYERS_UNARY_LAYER_H_

#include <functional>
#include <string>
#include <utility>

#include "base/options/option_checks.h"
#include "millrace/core_layers.h"

namespace millrace::layers {

// Takes one input of a known rank within bounds.
class UnaryLayer : public Layer {
 public:
  struct Ranks {
    int least = 0, most = 1 << 20;
  };
  UnaryLayer(std::string name, Ranks ranks, Where where)
      : Layer(std::move(name), where), ranks_(ranks) {}

 protected:
  virtual Output CallOne(Pass& pass, const Output& x, Where where) = 0;

  Output Call(Pass& pass, std::span<const Output> inputs, Where where) final;
  // InvalidArgument about the options that the layer was made with; not valid.
  Output BadOption(Pass& pass, std::string_view what, Where where) const;
  // Of this layer's options; false, with an error recorded, unless all are what they must be.
  OptionChecks Options() const;
  bool Hold(Pass& pass, const OptionChecks& checks, Where where) const;
  // False, with an error recorded, unless the axis of `x` has a known size.
  bool NeedsDim(Pass& pass, const Output& x, int axis, Where where) const;
  // The same unless these are strings.
  bool NeedsNumbers(Pass& pass, const Output& x, Where where) const;

 private:
  const Ranks ranks_;
};

// One that is a function and has no variables.
class FunctionLayer : public UnaryLayer {
 public:
  using Function = std::function<Expr(Pass& pass, const Expr& x)>;
  using Check = std::function<void(OptionChecks& options)>;
  FunctionLayer(std::string kind, std::string name, Ranks ranks, Function function, Where where,
                Check check = nullptr)
      : UnaryLayer(std::move(name), ranks, where),
        kind_(std::move(kind)),
        function_(std::move(function)),
        check_(std::move(check)) {}
  std::string kind() const override { return kind_; }
  using Layer::set_activity_regularizer;

 protected:
  Output CallOne(Pass& pass, const Output& x, Where where) override {
    OptionChecks options = Options();
    if (check_) check_(options);
    return Hold(pass, options, where) ? function_(pass, Expr(pass.scope(), x)).output() : Output();
  }

 private:
  const std::string kind_;
  const Function function_;
  const Check check_;
};

}  // namespace millrace::layers

#endif  // MODEL_LAYERS_UNARY_LAYER_H_
