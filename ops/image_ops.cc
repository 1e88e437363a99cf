// Colours of images, and parts of them.
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
    {"ExtractImagePatches", "images: T", "patches: T",
     "ksizes: list(int) >= 4; strides: list(int) >= 4; rates: list(int) >= 4; T: {bfloat16, half, "
     "float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, "
     "complex128, bool}; padding: {'SAME', 'VALID'}",
     UnknownShape},
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
