// SPDX-License-Identifier: Apache-2.0
// Reverse-mode derivatives of ops. One file per family; gradients.cc lists them.
#ifndef GRAPH_GRADIENTS_GRADIENT_REGISTRY_H_
#define GRAPH_GRADIENTS_GRADIENT_REGISTRY_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/string_map.h"
#include "millrace/graph.h"
#include "millrace/ops.h"
#include "millrace/status.h"

namespace millrace {

// What a gradient function sees and fills. dy(i) is the derivative with respect to output i,
// not valid if nothing depends on that output; dx(i) stays not valid where there is none.
class GradContext {
 public:
  // `needed[i]`: somebody asks for the derivative with respect to input i. `source`: see source().
  GradContext(const Scope& scope, Operation op, std::span<const Output> dys,
              std::vector<bool> needed, const std::string& source)
      : scope_(scope),
        op_(op),
        dys_(dys),
        needed_(std::move(needed)),
        source_(source),
        dxs_(op.num_inputs()) {}

  const Scope& scope() const { return scope_; }
  const Operation& op() const { return op_; }
  Output x(int i) const { return op_.input(i); }
  Output y(int i = 0) const { return op_.output(i); }
  Output dy(int i = 0) const { return dys_[i]; }
  bool needs_dx(int i) const { return needed_[i]; }
  void set_dx(int i, const Output& dx) { dxs_[i] = dx; }
  // The same for all nodes that one call of Gradients() goes through, in loops and functions
  // too, and for no others of the graph.
  const std::string& source() const { return source_; }
  std::vector<Output>& dxs() { return dxs_; }

 private:
  const Scope& scope_;
  const Operation op_;
  const std::span<const Output> dys_;
  const std::vector<bool> needed_;
  const std::string& source_;
  std::vector<Output> dxs_;
};

using GradFn = Status (*)(GradContext& c);

// An object; the built-in one is filled at first use and then constant.
class GradientRegistry {
 public:
  void Register(std::string op, GradFn fn) { fns_[std::move(op)] = fn; }
  // For ops through which no derivative flows: their inputs get none.
  void RegisterNotDifferentiable(std::string op) { fns_[std::move(op)] = nullptr; }
  // False if the op is unknown here. A null function: not differentiable.
  bool Find(std::string_view op, GradFn* fn) const {
    const auto it = fns_.find(op);
    if (it == fns_.end()) return false;
    *fn = it->second;
    return true;
  }

 private:
  StringMap<GradFn> fns_;
};

void RegisterMathGradients(GradientRegistry& registry);
void RegisterReductionGradients(GradientRegistry& registry);
void RegisterArrayGradients(GradientRegistry& registry);
void RegisterIndexingGradients(GradientRegistry& registry);
void RegisterNnGradients(GradientRegistry& registry);
void RegisterSpecialGradients(GradientRegistry& registry);
void RegisterCallGradients(GradientRegistry& registry);
void RegisterListGradients(GradientRegistry& registry);
void RegisterControlFlowGradients(GradientRegistry& registry);
void RegisterStateGradients(GradientRegistry& registry);
const GradientRegistry& BuiltinGradients();

// Of nodes that call functions, by whatever name.
Status CallGrad(GradContext& c);

// Gradients() as a part of another call of it, whose source() it shares.
StatusOr<std::vector<Output>> GradientsWithin(const std::string& source, const Scope& scope,
                                              std::span<const Output> ys,
                                              std::span<const Output> xs,
                                              std::span<const Output> grad_ys);

}  // namespace millrace

#endif  // GRAPH_GRADIENTS_GRADIENT_REGISTRY_H_
