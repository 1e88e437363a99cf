// SPDX-License-Identifier: Apache-2.0
#include "model/layers/unary_layer.h"
#include "base/errors.h"
#include "base/strings.h"

#include "model/layers/layer_util.h"

namespace millrace::layers {

Output UnaryLayer::Call(Pass& pass, std::span<const Output> inputs, Where where) {
  if (inputs.size() != 1) {
    pass.scope().RecordError(
        errors::InvalidArgument("layer ", Description(), " takes one input, not ", inputs.size()),
        where);
    return Output();
  }
  const Output& x = inputs[0];
  const PartialShape shape = x.shape();
  if (!shape.has_rank() || shape.rank() < ranks_.least || shape.rank() > ranks_.most) {
    const bool one = ranks_.least == ranks_.most;
    RecordBadInput(pass, x,
                   StrCat("an input of ", ranks_.least == 0 ? "known rank" : "rank ",
                          ranks_.least == 0 ? "" : StrCat(ranks_.least, one ? "" : " or more")),
                   where);
    return Output();
  }
  return CallOne(pass, x, where);
}

Output UnaryLayer::BadOption(Pass& pass, std::string_view what, Where where) const {
  pass.scope().RecordError(
      errors::InvalidArgument("layer ", Description(), ": ", std::string(what)), where);
  return Output();
}

OptionChecks UnaryLayer::Options() const { return OptionChecks(StrCat("layer ", Description())); }

bool UnaryLayer::Hold(Pass& pass, const OptionChecks& checks, Where where) const {
  if (checks.status().ok()) return true;
  pass.scope().RecordError(checks.status(), where);
  return false;
}

bool UnaryLayer::NeedsDim(Pass& pass, const Output& x, int axis, Where where) const {
  if (AxisOf(x, axis) >= 0 && DimOf(x, axis) >= 0) return true;
  RecordBadInput(pass, x, StrCat("an input whose axis ", axis, " has a known size"), where);
  return false;
}

bool UnaryLayer::NeedsNumbers(Pass& pass, const Output& x, Where where) const {
  if (x.dtype() != kString) return true;
  RecordBadInput(pass, x, "numbers, not strings (layers::StringLookup makes numbers of them)",
                 where);
  return false;
}

}  // namespace millrace::layers
