// SPDX-License-Identifier: Apache-2.0
// Windows over the axes of space of images, volumes and sequences; sequences are images of one row.
#ifndef MODEL_LAYERS_SPACE_H_
#define MODEL_LAYERS_SPACE_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "millrace/image_layers.h"
#include "model/layers/unary_layer.h"

namespace millrace::layers {

// Sizes are int32 in the graph.
inline constexpr int64_t kMostSize = std::numeric_limits<int32_t>::max();

// One for each of `axes` axes; nothing if there are others.
std::optional<std::vector<int64_t>> SizesFor(const Sizes& sizes, int axes);
// The same for an attribute of an op over [batch, height, width, channels], or with a depth before
// the height.
std::vector<int64_t> WindowOf(const std::vector<int64_t>& sizes);
// "SAME" for "same"; "" for what is neither that nor "valid".
std::string PaddingOf(const std::string& name);

// One over `axes` axes of space, 1 to 3, whose sequences pass as images of one row.
class SpaceLayer : public UnaryLayer {
 public:
  SpaceLayer(const char* kind, int axes, std::string name, Where where)
      : UnaryLayer(std::move(name), {.least = axes + 2, .most = axes + 2}, where),
        kind_(kind),
        axes_(axes) {}
  std::string kind() const override { return kind_; }

 protected:
  // Over an image, or a volume.
  virtual Output CallImage(Pass& pass, const Output& image, Where where) = 0;
  bool supports_masking() const override { return false; }

  Output CallOne(Pass& pass, const Output& x, Where where) final;
  // Positive sizes, one per axis of space; empty, with an error, if they are not.
  std::vector<int64_t> Checked(Pass& pass, const char* what, const Sizes& sizes, Where where,
                               int64_t least = 1) const;
  // False, with an error, where a window of these sizes is larger than the image that it has to lie
  // in: with padding, or an unknown size, it never is.
  bool Fits(Pass& pass, const char* what, const Output& image, const std::vector<int64_t>& sizes,
            const std::vector<int64_t>& dilations, const std::string& padding, Where where) const;
  // "" with an error.
  std::string CheckedPadding(Pass& pass, const std::string& padding, Where where) const;
  int axes() const { return axes_; }

 private:
  const char* const kind_;
  const int axes_;
};

}  // namespace millrace::layers

#endif  // MODEL_LAYERS_SPACE_H_
