// SPDX-License-Identifier: Apache-2.0
#include "ops/custom/custom_ops.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_inference.h"

namespace millrace {
namespace {

// A shape function is a plain function that is not told which op it is asked for: so each custom op
// has a function of its own, which knows the op's place in the list.
constexpr std::size_t kMostOps = 256;

struct Kept {
  Mutex mu;
  std::vector<CustomOp> ops ABSL_GUARDED_BY(mu);
  bool sealed ABSL_GUARDED_BY(mu) = false;
};

Kept& KeptOps() {
  static auto* const kept = new Kept;
  return *kept;
}

class ShapesOfNode final : public ShapeContext {
 public:
  explicit ShapesOfNode(InferenceContext& c) : c_(c), attrs_(c.attrs()) {}

  int num_inputs() const override { return c_.num_inputs(); }
  int num_outputs() const override { return c_.num_outputs(); }
  const PartialShape& input(int i) const override {
    return i >= 0 && i < c_.num_inputs() ? c_.input(i) : unknown_;
  }
  const Tensor* constant(int i) const override {
    return i >= 0 && i < c_.num_inputs() ? c_.constant(i) : nullptr;
  }
  const NodeAttrs& attrs() const override { return attrs_; }
  void set_output(int i, PartialShape shape) override {
    if (i >= 0 && i < c_.num_outputs()) c_.set_output(i, std::move(shape));
  }

 private:
  InferenceContext& c_;
  const AttrsOfNode attrs_;
  const PartialShape unknown_;
};

template <std::size_t kPlace>
Status ShapeOfCustomOp(InferenceContext& c) {
  ShapesOfNode context(c);
  return Guarded([&] { return CustomOpsOfProcess()[kPlace].shape(context); });
}

template <std::size_t... kPlaces>
constexpr std::array<ShapeFn, sizeof...(kPlaces)> ShapeFunctions(
    std::index_sequence<kPlaces...> /*places*/) {
  return {&ShapeOfCustomOp<kPlaces>...};
}
constexpr auto kShapeFunctions = ShapeFunctions(std::make_index_sequence<kMostOps>());

StatusOr<pb::OpDef> DefinitionOf(const CustomOp& op) {
  const OpSpec spec = {op.name.c_str(),  op.inputs.c_str(), op.outputs.c_str(),
                       op.attrs.c_str(), nullptr,           op.stateful ? kStateful : kPlain};
  MR_ASSIGN_OR_RETURN(pb::OpDef def, ParseOpSpec(spec));
  if (op.name.starts_with("_")) {
    return errors::InvalidArgument("op '", CEscape(op.name),
                                   "': names that begin with _ are the engine's own");
  }
  for (const auto* args : {&def.input_arg(), &def.output_arg()}) {
    for (const pb::OpDef::ArgDef& arg : *args) {
      if (!arg.is_ref() && arg.type() != pb::DT_RESOURCE && arg.type() != pb::DT_VARIANT) continue;
      return errors::InvalidArgument("op '", op.name, "': '", arg.name(),
                                     "' is a reference, a resource or a variant, which custom ops "
                                     "cannot take or make; use a tensor");
    }
  }
  def.set_summary(op.doc);
  return def;
}

// The engine's ops with those that were added, or why the new ones cannot be among them.
Status CheckTogether(const std::vector<CustomOp>& old, const std::vector<CustomOp>& added) {
  OpRegistry registry;
  MR_RETURN_IF_ERROR(RegisterAllOps(registry));
  for (const auto* ops : {&old, &added}) {
    for (const CustomOp& op : *ops) {
      MR_ASSIGN_OR_RETURN(pb::OpDef def, DefinitionOf(op));
      MR_RETURN_IF_ERROR(registry.Register({std::move(def), nullptr}));
    }
  }
  return OkStatus();
}

}  // namespace

Status AddCustomOps(std::vector<CustomOp> ops, std::string_view library) {
  Kept& kept = KeptOps();
  const MutexLock lock(&kept.mu);
  if (kept.sealed) {
    return errors::FailedPrecondition(
        "the ops of ", library,
        " come too late: load libraries before the first graph, session or server of the process");
  }
  if (kept.ops.size() + ops.size() > kMostOps) {
    return errors::ResourceExhausted(library, " would make it ", kept.ops.size() + ops.size(),
                                     " custom ops; a process takes at most ", kMostOps);
  }
  if (Status status = CheckTogether(kept.ops, ops); !status.ok()) {
    return WithMessage(status, StrCat(library, ": ", Message(status)));
  }
  for (CustomOp& op : ops) kept.ops.push_back(std::move(op));
  return OkStatus();
}

const std::vector<CustomOp>& CustomOpsOfProcess() {
  // Constant from here on, so that it is read without the lock.
  static const std::vector<CustomOp>* const sealed = [] {
    Kept& kept = KeptOps();
    const MutexLock lock(&kept.mu);
    kept.sealed = true;
    return &kept.ops;
  }();
  return *sealed;
}

const CustomOp* FindCustomOp(std::string_view name) {
  const std::vector<CustomOp>& ops = CustomOpsOfProcess();
  const auto found =
      std::find_if(ops.begin(), ops.end(), [&](const CustomOp& op) { return op.name == name; });
  return found == ops.end() ? nullptr : &*found;
}

bool IsCustomOp(std::string_view op) { return FindCustomOp(op) != nullptr; }

Status RegisterCustomOps(OpRegistry& registry) {
  const std::vector<CustomOp>& ops = CustomOpsOfProcess();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    MR_ASSIGN_OR_RETURN(pb::OpDef def, DefinitionOf(ops[i]));
    const ShapeFn shape = ops[i].shape == nullptr ? &UnknownShape : kShapeFunctions[i];
    MR_RETURN_IF_ERROR(registry.Register({std::move(def), shape}));
  }
  return OkStatus();
}

}  // namespace millrace
