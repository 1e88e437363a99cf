// SPDX-License-Identifier: Apache-2.0
// The derivative of Einsum: another one, in which the result's gradient takes the operand's place.
#include <cctype>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "graph/dataflow_graph.h"
#include "graph/gradients/grad_families.h"
#include "graph/gradients/grad_util.h"

namespace millrace {
namespace {

// A subscript: its letters, and where among them the ellipsis is, -1 if there is none.
struct Subscript {
  std::string letters;
  int dots = -1;

  bool Has(char letter) const { return letters.find(letter) != std::string::npos; }
  std::string Text() const {
    if (dots < 0) return letters;
    return StrCat(letters.substr(0, dots), "...", letters.substr(dots));
  }
  // Where a letter's axis is; negative, and so counted from the end, behind the ellipsis.
  int AxisOf(char letter) const {
    const int at = static_cast<int>(letters.find(letter));
    return dots >= 0 && at >= dots ? at - static_cast<int>(letters.size()) : at;
  }
};

Subscript ParseSubscript(std::string_view text) {
  Subscript subscript;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (std::isalpha(static_cast<unsigned char>(text[i])) != 0) {
      subscript.letters += text[i];
    } else if (text.substr(i, 3) == "...") {
      subscript.dots = static_cast<int>(subscript.letters.size());
      i += 2;
    }
  }
  return subscript;
}

class EinsumGradient {
 public:
  EinsumGradient(GradContext& c, std::vector<Subscript> operands, Subscript result)
      : c_(c), s_(c.scope()), operands_(std::move(operands)), result_(std::move(result)) {}

  StatusOr<Output> By(int i) {
    const Subscript& own = operands_[i];
    const Subscript* const other = operands_.size() == 2 ? &operands_[1 - i] : nullptr;
    if (own.dots >= 0 && result_.dots < 0) {
      return errors::Unimplemented("Einsum has no gradient where an ellipsis is summed over");
    }
    // Letters once each, those that neither the result nor the other operand knows apart: over
    // these was summed, so that what comes back is the same everywhere along them.
    Subscript known, once;
    std::string summed;
    once.dots = known.dots = own.dots >= 0 ? 0 : -1;
    for (const char letter : own.letters) {
      if (once.Has(letter)) continue;
      once.letters += letter;
      const bool is_known = result_.Has(letter) || (other != nullptr && other->Has(letter));
      (is_known ? known.letters : summed) += letter;
    }
    Output dx = other == nullptr
                    ? Einsum({c_.dy()}, StrCat(result_.Text(), "->", known.Text()))
                    : Einsum({c_.dy(), Conjugate(s_, c_.x(1 - i))},
                             StrCat(result_.Text(), ",", other->Text(), "->", known.Text()));
    const Output shape = ops::Shape(s_, c_.x(i));
    if (!summed.empty()) {
      const Output ones = ops::Fill(s_, Sizes(own, shape, summed), ConstantLike(s_, c_.x(i), 1));
      dx = Einsum({dx, ones}, StrCat(known.Text(), ",", summed, "->", once.Text()));
    }
    if (own.dots >= 0) dx = Reduced(own, once, shape, dx);
    if (once.Text() == own.Text()) return dx;
    return Einsum({dx}, StrCat(once.Text(), "->", own.Text()));
  }

 private:
  Output Einsum(const std::vector<Input>& inputs, const std::string& equation) {
    return ops::Einsum(s_, inputs, equation);
  }

  // The sizes of these letters, as a vector.
  Output Sizes(const Subscript& own, const Output& shape, const std::string& letters) {
    std::vector<int32_t> axes;
    for (const char letter : letters) axes.push_back(own.AxisOf(letter));
    const Tensor at = Tensor::FromValues<int32_t>(axes, Shape({static_cast<int64_t>(axes.size())}));
    const Output rank = ops::Size(s_, shape);
    return ops::Gather(s_, shape, ops::FloorMod(s_, ops::Add(s_, at, rank), rank));
  }

  // Summed over the axes of the ellipsis along which the operand was repeated. `dx` is ordered as
  // `once`, the ellipsis in front.
  Output Reduced(const Subscript& own, const Subscript& once, const Output& shape,
                 const Output& dx) {
    const int32_t letters = static_cast<int32_t>(own.letters.size());
    const Output count = ops::Reshape(s_, ops::Sub(s_, ops::Size(s_, shape), letters), {1});
    Output target = ops::Slice(s_, shape, {static_cast<int32_t>(own.dots)}, count);
    if (!once.letters.empty()) {
      target = ops::ConcatV2(s_, {target, Sizes(own, shape, once.letters)}, 0);
    }
    const auto axes = ops::BroadcastGradientArgs(s_, target, ops::Shape(s_, dx));
    return ops::Reshape(s_, ops::Sum(s_, dx, axes.r0), target);
  }

  GradContext& c_;
  const Scope& s_;
  const std::vector<Subscript> operands_;
  const Subscript result_;
};

Status EinsumGrad(GradContext& c) {
  MR_ASSIGN_OR_RETURN(const std::string equation,
                      c.op().node()->attrs().Get<std::string>("equation"));
  const std::size_t arrow = equation.find("->");
  std::vector<Subscript> operands;
  if (arrow != std::string::npos) {
    for (const std::string_view part : StrSplit(std::string_view(equation).substr(0, arrow), ',')) {
      operands.push_back(ParseSubscript(part));
    }
  }
  const int n = c.op().num_inputs();
  if (static_cast<int>(operands.size()) != n || n > 2) {
    return errors::InvalidArgument("the equation of Einsum, '", equation, "', is not one of ", n,
                                   " operands and a result");
  }
  EinsumGradient gradient(c, std::move(operands), ParseSubscript(equation.substr(arrow + 2)));
  for (int i = 0; i < n; ++i) {
    if (!c.needs_dx(i)) continue;
    MR_ASSIGN_OR_RETURN(const Output dx, gradient.By(i));
    c.set_dx(i, dx);
  }
  return OkStatus();
}

}  // namespace

void RegisterEinsumGradients(GradientRegistry& r) { r.Register("Einsum", EinsumGrad); }

}  // namespace millrace
