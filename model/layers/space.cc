// SPDX-License-Identifier: Apache-2.0
#include "model/layers/space.h"
#include "base/strings.h"

#include "model/layers/layer_util.h"

namespace millrace::layers {

std::optional<std::vector<int64_t>> SizesFor(const Sizes& sizes, int axes) {
  if (static_cast<int>(sizes.values.size()) == axes) return sizes.values;
  if (sizes.values.size() == 1) return std::vector<int64_t>(axes, sizes.values[0]);
  return std::nullopt;
}

std::vector<int64_t> WindowOf(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> window(sizes.size() == 1 ? 2 : 1, 1);
  window.insert(window.end(), sizes.begin(), sizes.end());
  window.push_back(1);
  return window;
}

std::string PaddingOf(const std::string& name) {
  return name == "same" ? "SAME" : name == "valid" ? "VALID" : "";
}

Output SpaceLayer::CallOne(Pass& pass, const Output& x, Where where) {
  if (!NeedsNumbers(pass, x, where)) return Output();
  if (axes_ != 1) return CallImage(pass, x, where);
  const Scope& s = pass.scope();
  const Output y = CallImage(pass, ops::ExpandDims(s, x, 1), where);
  return y.valid() ? ops::Squeeze(s, y, {.squeeze_dims = {1}}) : Output();
}

std::vector<int64_t> SpaceLayer::Checked(Pass& pass, const char* what, const Sizes& sizes,
                                         Where where, int64_t least) const {
  const auto each = SizesFor(sizes, axes_);
  bool good = each.has_value();
  for (const int64_t size : sizes.values) good = good && size >= least && size <= kMostSize;
  if (good) return *each;
  BadOption(pass,
            StrCat(what, " must be one number or ", axes_, ", each at least ", least, ", and is (",
                   StrJoin(sizes.values, ", "), ")"),
            where);
  return {};
}

bool SpaceLayer::Fits(Pass& pass, const char* what, const Output& image,
                      const std::vector<int64_t>& sizes, const std::vector<int64_t>& dilations,
                      const std::string& padding, Where where) const {
  if (padding != "VALID") return true;
  for (int i = 0; i < axes_; ++i) {
    // An image of a sequence has an axis of one before that of its steps.
    const int64_t size = DimOf(image, axes_ == 1 ? 2 : i + 1);
    const int64_t window = (sizes[i] - 1) * dilations[i] + 1;
    if (size < 0 || window <= size) continue;
    BadOption(pass,
              StrCat(what, " (", StrJoin(sizes, ", "), ")",
                     dilations[i] == 1 ? "" : StrCat(" with dilation_rate ", dilations[i]),
                     " does not fit into ", size, " elements of an input of shape ",
                     image.shape().DebugString(),
                     ": make it smaller, give larger inputs, or take padding \"same\""),
              where);
    return false;
  }
  return true;
}

std::string SpaceLayer::CheckedPadding(Pass& pass, const std::string& padding, Where where) const {
  std::string name = PaddingOf(padding);
  if (name.empty()) {
    BadOption(pass, StrCat("padding must be \"valid\" or \"same\", not \"", padding, "\""), where);
  }
  return name;
}

}  // namespace millrace::layers
