// SPDX-License-Identifier: Apache-2.0
// Images: width and height as text, then a PNG for each.
#include <algorithm>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/png.h"
#include "summary/event_writer.h"
#include "tensor/cast.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

Status CheckImages(std::string_view tag, const Tensor& images, int max_images) {
  if (images.dtype() != kUint8 && !IsFloating(images.dtype())) {
    return errors::InvalidArgument("the images '", tag, "' are a tensor of ",
                                   DataTypeName(images.dtype()),
                                   ": uint8, or a floating type with values from 0 to 1, was "
                                   "expected");
  }
  if (images.rank() != 4 || images.dim(3) < 1 || images.dim(3) > 4 || images.dim(1) < 1 ||
      images.dim(2) < 1) {
    return errors::InvalidArgument("the images '", tag, "' have the shape ",
                                   images.shape().DebugString(),
                                   ": [count, height, width, 1 to 4 channels] was expected");
  }
  if (max_images < 1) {
    return errors::InvalidArgument("max_images of '", tag, "' is ", max_images,
                                   ": at least 1 is needed");
  }
  return OkStatus();
}

// Halves round up, as they do for TensorFlow: each byte stands for an equal part of 0 to 1.
std::vector<uint8_t> BytesOf(std::span<const float> values) {
  std::vector<uint8_t> bytes(values.size());
  std::transform(values.begin(), values.end(), bytes.begin(), [](float v) {
    if (!(v > 0)) return uint8_t{0};  // and NaN
    return static_cast<uint8_t>(std::min(v * 255.5f, 255.0f));
  });
  return bytes;
}

}  // namespace

Status EventWriter::WriteImages(std::string_view tag, const Tensor& images, int64_t step,
                                int max_images, std::string_view description) {
  MR_RETURN_IF_ERROR(CheckImages(tag, images, max_images));
  const int64_t count = std::min<int64_t>(max_images, images.dim(0));
  const int64_t height = images.dim(1), width = images.dim(2);
  const int channels = static_cast<int>(images.dim(3));
  MR_ASSIGN_OR_RETURN(Tensor kept, images.TrySlice(0, count));
  std::vector<uint8_t> scaled;
  if (kept.dtype() != kUint8) {
    MR_ASSIGN_OR_RETURN(kept, CastTensor(kept, kFloat));
    scaled = BytesOf(kept.flat<float>());
  }
  const std::span<const uint8_t> pixels =
      kept.dtype() == kUint8 ? std::as_const(kept).flat<uint8_t>() : scaled;
  Tensor texts(kString, Shape({2 + count}));
  const std::span<std::string> out = texts.flat<std::string>();
  out[0] = StrCat(width);
  out[1] = StrCat(height);
  const std::size_t size = static_cast<std::size_t>(height * width * channels);
  for (int64_t i = 0; i < count; ++i) {
    MR_ASSIGN_OR_RETURN(out[2 + i],
                        EncodePng(pixels.subspan(i * size, size), height, width, channels));
  }
  pb::Event event;
  event.set_step(step);
  MR_ASSIGN_OR_RETURN(pb::Summary::Value * summary,
                      AddValue({.plugin = "images"}, tag, description, &event));
  TensorToReadableProto(texts, summary->mutable_tensor());
  return impl_->Write(&event);
}

}  // namespace millrace
