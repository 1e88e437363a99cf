// SPDX-License-Identifier: Apache-2.0
#include "jit/fused_layout.h"

#include <algorithm>
#include <optional>

#include "kernels/common/broadcast.h"

namespace millrace::jit {
namespace {

std::optional<Shape> Broadcast(const Shape& a, const Shape& b) {
  if (a == b) return a;
  StatusOr<Shape> both = BroadcastShapes(a, b);
  if (!both.ok()) return std::nullopt;
  return *std::move(both);
}

// The shape of a result; none if the op's own kernel would refuse the operands', or treat them
// in a way of its own.
std::optional<Shape> ResultShape(const FusedInstruction& in, std::span<const Shape* const> args) {
  switch (FormOf(in.op)) {
    case FusedForm::kUnary:
    case FusedForm::kNot:
    case FusedForm::kCast:
      return *args[0];
    case FusedForm::kBinary:
    case FusedForm::kCompare:
    case FusedForm::kLogic:
      return Broadcast(*args[0], *args[1]);
    case FusedForm::kBias: {
      const int rank = args[0]->rank();
      if (rank < 2 || args[1]->rank() != 1 || args[0]->dim(rank - 1) != args[1]->dim(0)) return {};
      return *args[0];
    }
    case FusedForm::kBroadcastChoice: {
      const std::optional<Shape> values = Broadcast(*args[1], *args[2]);
      if (!values) return {};
      return Broadcast(*args[0], *values);
    }
    case FusedForm::kSame:
    case FusedForm::kChoice:
    case FusedForm::kSum:
      for (const Shape* arg : args) {
        if (!(*arg == *args[0])) return {};
      }
      return *args[0];
  }
  return {};
}

// True if `shape` repeats along the last axes of `whole`.
bool IsRowOf(const Shape& shape, const Shape& whole) {
  int first = 0;
  while (first < shape.rank() && shape.dim(first) == 1) ++first;
  const int rank = shape.rank() - first;
  if (rank > whole.rank()) return false;
  for (int k = 1; k <= rank; ++k) {
    if (shape.dim(shape.rank() - k) != whole.dim(whole.rank() - k)) return false;
  }
  return true;
}

bool SpreadInputs(const Shape& whole, FusedLayout* layout) {
  for (const Shape& shape : layout->inputs) {
    const int64_t count = shape.num_elements();
    if (count == layout->count) {
      layout->spreads.push_back(Spread::kEach);
    } else if (count == 1) {
      layout->spreads.push_back(Spread::kOnce);
    } else if (IsRowOf(shape, whole) && (layout->period == 0 || layout->period == count)) {
      layout->period = count;
      layout->spreads.push_back(Spread::kRow);
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<Spread> SpreadsOfResults(const FusedProgram& program, std::span<const Spread> inputs) {
  std::vector<Spread> results;
  for (const FusedInstruction& in : program.instructions) {
    Spread most = Spread::kOnce;
    for (const int32_t arg : in.args) most = std::max(most, arg >= 0 ? inputs[arg] : results[~arg]);
    results.push_back(most);
  }
  return results;
}

namespace {

double CostOfArithmetic(const FusedInstruction& in) {
  switch (in.op) {
    case FusedOp::kExp:
    case FusedOp::kLog:
    case FusedOp::kTanh:
    case FusedOp::kSigmoid:
      return in.type == kDouble ? 10 : 1;
    case FusedOp::kSqrt:
    case FusedOp::kRsqrt:
    case FusedOp::kDiv:
    case FusedOp::kRealDiv:
    case FusedOp::kReciprocal:
      return 0.8;
    default:
      return 0.15;
  }
}

}  // namespace

double CostOf(const FusedInstruction& in) {
  const auto is_small = [](DataType type) { return type == kHalf || type == kBfloat16; };
  // Conversions there and back.
  return CostOfArithmetic(in) + (is_small(in.type) || is_small(in.result) ? 0.3 : 0);
}

FusedLayout MakeFusedLayout(const FusedProgram& program, std::span<const Shape> inputs) {
  FusedLayout layout;
  layout.inputs.assign(inputs.begin(), inputs.end());
  std::vector<Shape> shapes;
  shapes.reserve(program.instructions.size());
  for (const FusedInstruction& in : program.instructions) {
    std::vector<const Shape*> args;
    for (const int32_t arg : in.args) args.push_back(arg >= 0 ? &inputs[arg] : &shapes[~arg]);
    std::optional<Shape> shape = ResultShape(in, args);
    if (!shape) return layout;
    shapes.push_back(*std::move(shape));
  }
  const Shape& whole = shapes[program.outputs[0]];
  layout.count = whole.num_elements();
  for (const int32_t output : program.outputs) {
    if (shapes[output].num_elements() != layout.count) return layout;
    layout.output_shapes.push_back(shapes[output]);
  }
  // Nothing may be larger than the outputs: not what a vector of no elements is compared with.
  for (const Shape& shape : shapes) {
    if (shape.num_elements() > layout.count) return layout;
  }
  if (!SpreadInputs(whole, &layout)) return layout;
  // A function of what repeats is cheaper once for all.
  const std::vector<Spread> spreads = SpreadsOfResults(program, layout.spreads);
  for (std::size_t i = 0; i < spreads.size(); ++i) {
    if (spreads[i] == Spread::kRow && CostOf(program.instructions[i]) > 0.5) return layout;
  }
  for (const int32_t output : program.outputs) {
    if (spreads[output] != Spread::kEach) return layout;
    std::array<int, 4> candidates = {-1, -1, -1, -1};
    int found = 0;
    for (std::size_t i = 0; i < inputs.size() && found < 4; ++i) {
      if (layout.spreads[i] == Spread::kEach) candidates[found++] = static_cast<int>(i);
    }
    for (int k = found; k < 4 && found > 0; ++k) candidates[k] = candidates[0];
    layout.candidates.push_back(candidates);
  }
  layout.is_one_loop = true;
  return layout;
}

std::optional<FusedRows> FindFusedRows(const Shape& shape, std::span<const int64_t> axes,
                                       bool keep_dims) {
  const int rank = shape.rank();
  absl::InlinedVector<bool, 8> reduced(rank, false);
  for (const int64_t axis : axes) {
    if (axis < -rank || axis >= rank) return std::nullopt;
    bool& is_reduced = reduced[axis < 0 ? axis + rank : axis];
    if (is_reduced) return std::nullopt;
    is_reduced = true;
  }
  FusedRows found;
  found.rows = found.row = 1;
  for (int i = 0; i < rank; ++i) {
    const int64_t size = shape.dim(i);
    if (!reduced[i]) {
      if (found.row > 1 && size != 1) return std::nullopt;
      found.rows *= size;
      found.out.AddDim(size);
    } else {
      found.row *= size;
      if (keep_dims) found.out.AddDim(1);
    }
  }
  if (found.rows == 0 || found.row < 2) return std::nullopt;
  return found;
}

}  // namespace millrace::jit
