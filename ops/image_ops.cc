// SPDX-License-Identifier: Apache-2.0
// Colours of images, and parts of them.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// Images with what comes before them, at least [rows, columns, channels].
Status ColorShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape images, c.WithRankAtLeast(0, 3));
  c.set_output(0, images);
  return OkStatus();
}

// Pixels along the last axis.
Status PixelShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape images, c.WithRankAtLeast(0, 1));
  c.set_output(0, images);
  return OkStatus();
}

Status LrnGradShape(InferenceContext& c) {
  for (int i = 1; i < 3; ++i) MR_RETURN_IF_ERROR(c.WithRank(i, 4).status());
  MR_ASSIGN_OR_RETURN(const PartialShape grads, c.WithRank(0, 4));
  c.set_output(0, grads);
  return OkStatus();
}

Status CropsShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape images, c.WithRank(0, 4));
  MR_ASSIGN_OR_RETURN(const PartialShape boxes, c.WithRank(1, 2));
  Dims size;
  if (!ConstantInts(c, 3, &size) || size.size() != 2) size = {-1, -1};
  c.set_output(0, PartialShape({boxes.has_rank() ? boxes.dim(0) : -1, size[0], size[1],
                                images.has_rank() ? images.dim(3) : -1}));
  return OkStatus();
}

Status CropsGradImageShape(InferenceContext& c) {
  Dims size;
  if (ConstantInts(c, 3, &size) && size.size() == 4) {
    c.set_output(0, PartialShape(size));
  } else {
    c.set_output(0, UnknownDims(4));
  }
  return OkStatus();
}

Status CropsGradBoxesShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape boxes, c.WithRank(2, 2));
  c.set_output(0, boxes);
  return OkStatus();
}

// Boxes that were chosen: unknown how many.
Status SuppressionShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 2).status());
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  c.set_output(0, UnknownDims(1));
  if (c.num_outputs() > 1) {
    c.set_output(1, UnknownDims(1));
    c.set_output(2, PartialShape({}));
  }
  return OkStatus();
}

// --- Files of images ---------------------------------------------------------------------------

StatusOr<int64_t> ChannelsOf(const InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t channels, c.attr<int64_t>("channels"));
  if (channels < 0) return errors::InvalidArgument("channels must be non-negative, got ", channels);
  return channels == 0 ? -1 : channels;
}

Status DecodedShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  MR_ASSIGN_OR_RETURN(const int64_t channels, ChannelsOf(c));
  c.set_output(0, PartialShape({-1, -1, channels}));
  return OkStatus();
}

Status DecodedFramesShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  c.set_output(0, PartialShape({-1, -1, -1, 3}));
  return OkStatus();
}

// Of three or four axes, as the file says, unless animations are not expanded.
Status DecodedImageShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(DecodedShape(c));
  MR_ASSIGN_OR_RETURN(const bool expand, c.attr<bool>("expand_animations"));
  if (expand) c.set_output(0, PartialShape());
  return OkStatus();
}

Status DecodedCropShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(DecodedShape(c));
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  Dims window;
  if (ConstantInts(c, 1, &window) && window.size() == 4 && window[2] >= 0 && window[3] >= 0) {
    c.set_output(0, PartialShape({window[2], window[3], c.output(0).dim(2)}));
  }
  return OkStatus();
}

Status EncodedImageShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 3).status());
  for (int i = 1; i < c.num_inputs(); ++i) MR_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  c.set_output(0, PartialShape({}));
  return OkStatus();
}

Status EncodedImagesShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape images, c.WithRankAtLeast(0, 3));
  c.set_output(0, images.has_rank() ? SubShape(images, 0, images.rank() - 3) : PartialShape());
  return OkStatus();
}

Status JpegSizesShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  c.set_output(0, PartialShape({3}));
  return OkStatus();
}

constexpr char kJpegReading[] =
    "channels: int = 0; ratio: int = 1; fancy_upscaling: bool = true; "
    "try_recover_truncated: bool = false; acceptable_fraction: float = 1.0; "
    "dct_method: string = ''";

constexpr OpSpec kOps[] = {
    {"AdjustContrastv2", "images: T, contrast_factor: float", "output: T",
     "T: {half, float} = float", ColorShape},
    {"AdjustHue", "images: T, delta: float", "output: T", "T: {half, float} = float", ColorShape},
    {"AdjustSaturation", "images: T, scale: float", "output: T", "T: {half, float} = float",
     ColorShape},
    {"CropAndResize", "image: T, boxes: float, box_ind: int32, crop_size: int32", "crops: float",
     "T: {uint8, uint16, int8, int16, int32, int64, half, float, double}; method: {'bilinear', "
     "'nearest'} = 'bilinear'; extrapolation_value: float = 0.0",
     CropsShape},
    {"CropAndResizeGradBoxes", "grads: float, image: T, boxes: float, box_ind: int32",
     "output: float",
     "T: {uint8, uint16, int8, int16, int32, int64, half, float, double}; method: {'bilinear'} = "
     "'bilinear'",
     CropsGradBoxesShape},
    {"CropAndResizeGradImage", "grads: float, boxes: float, box_ind: int32, image_size: int32",
     "output: T", "T: {float, half, double}; method: {'bilinear', 'nearest'} = 'bilinear'",
     CropsGradImageShape},
    {"DecodeAndCropJpeg", "contents: string, crop_window: int32", "image: uint8", kJpegReading,
     DecodedCropShape},
    {"DecodeBmp", "contents: string", "image: uint8", "channels: int = 0", DecodedShape},
    {"DecodeGif", "contents: string", "image: uint8", "", DecodedFramesShape},
    {"DecodeImage", "contents: string", "image: dtype",
     "channels: int = 0; dtype: {uint8, uint16, float} = uint8; expand_animations: bool = true",
     DecodedImageShape},
    {"DecodeJpeg", "contents: string", "image: uint8", kJpegReading, DecodedShape},
    {"DecodePng", "contents: string", "image: dtype",
     "channels: int = 0; dtype: {uint8, uint16} = uint8", DecodedShape},
    {"EncodeJpeg", "image: uint8", "contents: string",
     "format: {'', 'grayscale', 'rgb'} = ''; quality: int = 95; progressive: bool = false; "
     "optimize_size: bool = false; chroma_downsampling: bool = true; density_unit: {'in', 'cm'} = "
     "'in'; x_density: int = 300; y_density: int = 300; xmp_metadata: string = ''",
     EncodedImageShape},
    {"EncodeJpegVariableQuality", "images: uint8, quality: int32", "contents: string", "",
     EncodedImageShape},
    {"EncodePng", "image: T", "contents: string",
     "compression: int = -1; T: {uint8, uint16} = uint8", EncodedImagesShape},
    {"ExtractImagePatches", "images: T", "patches: T",
     "ksizes: list(int) >= 4; strides: list(int) >= 4; rates: list(int) >= 4; T: {bfloat16, half, "
     "float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, "
     "complex128, bool}; padding: {'SAME', 'VALID'}",
     UnknownShape},
    {"ExtractJpegShape", "contents: string", "image_shape: output_type",
     "output_type: {int32, int64} = int32", JpegSizesShape},
    {"HSVToRGB", "images: T", "output: T", "T: {half, bfloat16, float, double} = float",
     PixelShape},
    {"LRN", "input: T", "output: T",
     "depth_radius: int = 5; bias: float = 1.0; alpha: float = 1.0; beta: float = 0.5; T: {half, "
     "bfloat16, float} = float",
     UnchangedShape},
    {"LRNGrad", "input_grads: T, input_image: T, output_image: T", "output: T",
     "depth_radius: int = 5; bias: float = 1.0; alpha: float = 1.0; beta: float = 0.5; T: {half, "
     "bfloat16, float} = float",
     LrnGradShape},
    {"NonMaxSuppressionV3",
     "boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold, score_threshold: "
     "T_threshold",
     "selected_indices: int32", "T: {half, float} = float; T_threshold: {half, float} = float",
     SuppressionShape},
    {"NonMaxSuppressionV5",
     "boxes: T, scores: T, max_output_size: int32, iou_threshold: T, score_threshold: T, "
     "soft_nms_sigma: T",
     "selected_indices: int32, selected_scores: T, valid_outputs: int32",
     "T: {half, float} = float; pad_to_max_output_size: bool = false", SuppressionShape},
    {"RGBToHSV", "images: T", "output: T", "T: {half, bfloat16, float, double} = float",
     PixelShape},
};

}  // namespace

Status RegisterImageOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
