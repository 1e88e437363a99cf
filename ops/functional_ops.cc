// SPDX-License-Identifier: Apache-2.0
// What calls functions: calls, branches, loops, gradients.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// What attribute output_shapes promises.
Status OutputShapes(InferenceContext& c) {
  if (!c.attrs().Has("output_shapes")) return UnknownShape(c);
  MR_ASSIGN_OR_RETURN(const auto shapes, c.attr<std::vector<PartialShape>>("output_shapes"));
  if (static_cast<int>(shapes.size()) != c.num_outputs()) return UnknownShape(c);
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shapes[i]);
  return OkStatus();
}

// What attribute _output_shapes says, which whoever makes the call knows of the function.
Status CallShapes(InferenceContext& c) {
  const auto shapes = c.attrs().GetOr<std::vector<PartialShape>>("_output_shapes", {});
  if (static_cast<int>(shapes.size()) != c.num_outputs()) return UnknownShape(c);
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shapes[i]);
  return OkStatus();
}

Status FakeParamShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.attr<PartialShape>("shape"));
  c.set_output(0, std::move(shape));
  return OkStatus();
}

// Rows of what attribute output_shapes says, as many as the arguments have.
Status MapDefunShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const auto shapes, c.attr<std::vector<PartialShape>>("output_shapes"));
  MR_ASSIGN_OR_RETURN(const auto types, c.attr<std::vector<DataType>>("Targuments"));
  if (static_cast<int>(shapes.size()) != c.num_outputs()) {
    return errors::InvalidArgument("`output_shapes` must be the same length as `output_types` (",
                                   shapes.size(), " vs. ", c.num_outputs(), ")");
  }
  int64_t rows = -1;
  for (int i = 0; i < static_cast<int>(types.size()); ++i) {
    const PartialShape& shape = c.input(i);
    if (!shape.has_rank()) continue;
    if (shape.rank() == 0) {
      return errors::InvalidArgument("Arguments must have rank at least 1. Input ", i,
                                     " has rank of 0.");
    }
    if (rows >= 0 && shape.dim(0) >= 0 && shape.dim(0) != rows) {
      return errors::InvalidArgument("Arguments must have the same dimension 0.");
    }
    if (shape.dim(0) >= 0) rows = shape.dim(0);
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.set_output(i, ConcatShapes(PartialShape({rows}), shapes[static_cast<std::size_t>(i)]));
  }
  return OkStatus();
}

constexpr char kBranchAttrs[] =
    "Tcond: type; Tin: list(type) >= 0; Tout: list(type) >= 0; then_branch: func; "
    "else_branch: func; output_shapes: list(shape) = []";
constexpr char kCallAttrs[] =
    "Tin: list(type) >= 0; Tout: list(type) >= 0; f: func; config: string = ''; "
    "config_proto: string = ''; executor_type: string = ''";
constexpr char kCaseAttrs[] =
    "Tin: list(type) >= 0; Tout: list(type) >= 0; branches: list(func) >= 1; "
    "output_shapes: list(shape) = []";
constexpr char kLoopAttrs[] =
    "T: list(type) >= 0; cond: func; body: func; output_shapes: list(shape) = []; "
    "parallel_iterations: int = 10";

constexpr OpSpec kOps[] = {
    {"Case", "branch_index: int32, input: Tin", "output: Tout", kCaseAttrs, OutputShapes,
     kStateful},
    {"FakeParam", "", "output: dtype", "dtype: type; shape: shape", FakeParamShape},
    {"For", "start: int32, limit: int32, delta: int32, input: T", "output: T",
     "T: list(type) >= 0; body: func", UnknownShape},
    {"If", "cond: Tcond, input: Tin", "output: Tout", kBranchAttrs, OutputShapes, kStateful},
    {"MapDefun", "arguments: Targuments, captured_inputs: Tcaptured", "output: output_types",
     "Targuments: list(type) >= 1; Tcaptured: list(type) >= 0 = []; output_types: list(type) >= 1; "
     "output_shapes: list(shape) >= 1; f: func; max_intra_op_parallelism: int = 1",
     MapDefunShape},
    {"PartitionedCall", "args: Tin", "output: Tout", kCallAttrs, CallShapes},
    {"RemoteCall", "target: string, args: Tin", "output: Tout",
     "Tin: list(type) >= 1; Tout: list(type) >= 1; f: func", UnknownShape, kStateful},
    {"StatefulPartitionedCall", "args: Tin", "output: Tout", kCallAttrs, CallShapes,
     kStateful | kDistributed},
    {"StatelessCase", "branch_index: int32, input: Tin", "output: Tout", kCaseAttrs, OutputShapes},
    {"StatelessIf", "cond: Tcond, input: Tin", "output: Tout", kBranchAttrs, OutputShapes},
    {"StatelessWhile", "input: T", "output: T", kLoopAttrs, OutputShapes},
    {"SymbolicGradient", "input: Tin", "output: Tout",
     "Tin: list(type) >= 1; Tout: list(type) >= 1; f: func", UnknownShape},
    {"ToBool", "input: T", "output: bool", "T: type", ScalarShape},
    {"While", "input: T", "output: T", kLoopAttrs, OutputShapes, kStateful},
};

}  // namespace

Status RegisterFunctionalOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
