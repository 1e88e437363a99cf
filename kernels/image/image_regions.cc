// SPDX-License-Identifier: Apache-2.0
// Parts of images: patches, crops that are resized, and the choice among overlapping boxes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <queue>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// --- Patches ----------------------------------------------------------------------------------

class ExtractImagePatchesKernel : public Kernel {
 public:
  explicit ExtractImagePatchesKernel(KernelConstruction& c)
      : Kernel(c), same_(c.attr<std::string>("padding") == "SAME") {
    Read(c, "ksizes", &size_);
    Read(c, "strides", &stride_);
    Read(c, "rates", &rate_);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& images = ctx.input(0);
    if (images.rank() != 4) {
      return errors::InvalidArgument("input must be 4-dimensional: ", images.shape().DebugString());
    }
    for (const int64_t size : images.shape().dims()) {
      if (size > INT32_MAX) {
        return errors::InvalidArgument("input is too large: ", images.shape().DebugString());
      }
    }
    Side side[2];
    for (int i = 0; i < 2; ++i) {
      const int64_t in = images.dim(1 + i);
      const int64_t seen = (size_[i] - 1) * rate_[i] + 1;
      if (same_) {
        side[i].count = (in + stride_[i] - 1) / stride_[i];
        side[i].before = std::max<int64_t>(0, (side[i].count - 1) * stride_[i] + seen - in) / 2;
      } else {
        side[i].count = in < seen ? 0 : (in - seen) / stride_[i] + 1;
      }
    }
    const int64_t depth = images.dim(3);
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(std::vector<int64_t>{
                                               images.dim(0), side[0].count, side[1].count,
                                               Shape({size_[0], size_[1], depth}).num_elements()}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return OkStatus();  // there may be any number of rows
    DispatchMovable(images.dtype(), [&]<typename T>() {
      if constexpr (!std::is_same_v<T, std::string> && !std::is_same_v<T, ResourceHandle>) {
        ctx.ParallelFor(shape.dim(0) * side[0].count, 100, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            CopyRow(static_cast<const T*>(images.raw_data()), images.shape(), side, i,
                    static_cast<T*>(out->raw_data()));
          }
        });
      }
    });
    return OkStatus();
  }

 private:
  struct Side {
    int64_t count = 0, before = 0;
  };

  static void Read(KernelConstruction& c, const char* name, int64_t (*values)[2]) {
    const auto list = c.attr<std::vector<int64_t>>(name);
    if (list.size() != 4 || list[0] != 1 || list[3] != 1) {
      return c.SetError(errors::Unimplemented(
          name, " must be [1, rows, columns, 1]: batches and channels are not cut"));
    }
    for (int i = 0; i < 2; ++i) {
      (*values)[i] = list[1 + i];
      if (list[1 + i] < 1 || list[1 + i] > INT32_MAX) {
        c.SetError(
            errors::InvalidArgument(name, " must be in [1, ", INT32_MAX, "], got ", list[1 + i]));
      }
    }
  }

  // Row `at` of the patches, counted over the batch.
  template <typename T>
  void CopyRow(const T* images, const Shape& in, const Side* side, int64_t at, T* patches) const {
    const int64_t depth = in.dim(3), image = at / side[0].count, row = at % side[0].count;
    T* to = patches + at * side[1].count * size_[0] * size_[1] * depth;
    const T* from = images + image * in.dim(1) * in.dim(2) * depth;
    for (int64_t column = 0; column < side[1].count; ++column) {
      for (int64_t i = 0; i < size_[0]; ++i) {
        const int64_t y = row * stride_[0] - side[0].before + i * rate_[0];
        for (int64_t j = 0; j < size_[1]; ++j, to += depth) {
          const int64_t x = column * stride_[1] - side[1].before + j * rate_[1];
          if (y < 0 || y >= in.dim(1) || x < 0 || x >= in.dim(2)) {
            std::fill_n(to, depth, T());
          } else {
            std::copy_n(from + (y * in.dim(2) + x) * depth, depth, to);
          }
        }
      }
    }
  }

  int64_t size_[2] = {1, 1}, stride_[2] = {1, 1}, rate_[2] = {1, 1};
  const bool same_;
};

// --- Crops ------------------------------------------------------------------------------------

// What three ops share: input 0 of CropAndResize are images, its gradients have crops there.
class CropKernel : public Kernel {
 public:
  explicit CropKernel(KernelConstruction& c)
      : Kernel(c),
        nearest_(c.attr<std::string>("method") == "nearest"),
        outside_(c.attrs().GetOr<float>("extrapolation_value", 0.0f)) {}

 protected:
  // Where the crop of one box looks: a place between two neighbours on an axis.
  struct Place {
    float at = 0;
    bool inside = false;
    int64_t low = 0, high = 0;
    float weight = 0;  // of the upper one
  };

  static Place PlaceOf(float from, float to, int64_t image, int64_t crop, int64_t i) {
    Place place;
    const auto last = static_cast<float>(image - 1);
    if (crop > 1) {
      const float scale = (to - from) * last / static_cast<float>(crop - 1);
      place.at = from * last + static_cast<float>(i) * scale;
    } else {
      place.at = 0.5f * (from + to) * last;
    }
    place.inside = place.at >= 0 && place.at <= last;
    if (!place.inside) return place;
    place.low = static_cast<int64_t>(std::floor(place.at));
    place.high = static_cast<int64_t>(std::ceil(place.at));
    place.weight = place.at - static_cast<float>(place.low);
    return place;
  }

  static Status CheckBoxes(const Tensor& boxes, const Tensor& box_ind, int64_t batch) {
    if (boxes.rank() != 2 || boxes.dim(1) != 4) {
      return errors::InvalidArgument("boxes must be 2-D and have 4 columns, got ",
                                     boxes.shape().DebugString());
    }
    if (box_ind.rank() != 1 || box_ind.dim(0) != boxes.dim(0)) {
      return errors::InvalidArgument("box_index has incompatible shape ",
                                     box_ind.shape().DebugString());
    }
    for (const int32_t image : box_ind.flat<int32_t>()) {
      if (image < 0 || image >= batch) {
        return errors::OutOfRange("box_index has values outside [0, batch_size)");
      }
    }
    return OkStatus();
  }

  using ImageTypes =
      TypeList<uint8_t, uint16_t, int8_t, int16_t, int32_t, int64_t, Half, float, double>;

  const bool nearest_;
  const float outside_;
};

class CropAndResizeKernel : public CropKernel {
 public:
  using CropKernel::CropKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &images = ctx.input(0), &boxes = ctx.input(1), &box_ind = ctx.input(2);
    if (images.rank() != 4 || images.dim(1) < 1 || images.dim(2) < 1) {
      return errors::InvalidArgument("input image must be 4-D and not empty, got ",
                                     images.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const Dims size, IntVector(ctx.input(3), "crop_size", true));
    if (size.size() != 2 || size[0] < 1 || size[1] < 1) {
      return errors::InvalidArgument("crop_size must be two positive numbers");
    }
    MR_RETURN_IF_ERROR(CheckBoxes(boxes, box_ind, images.dim(0)));
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(std::vector<int64_t>{boxes.dim(0), size[0],
                                                                          size[1], images.dim(3)}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    DispatchType(ImageTypes(), images.dtype(), [&]<typename T>() {
      ctx.ParallelFor(boxes.dim(0), 10.0 * static_cast<double>(size[0] * size[1] * images.dim(3)),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t b = begin; b < end; ++b) {
                          Crop<T>(images, boxes.data<float>() + 4 * b, box_ind.data<int32_t>()[b],
                                  size, b, out->data<float>());
                        }
                      });
    });
    return OkStatus();
  }

 private:
  template <typename T>
  void Crop(const Tensor& images, const float* box, int64_t image, const Dims& size, int64_t b,
            float* crops) const {
    const int64_t rows = images.dim(1), columns = images.dim(2), depth = images.dim(3);
    const T* from = images.data<T>() + image * rows * columns * depth;
    float* to = crops + b * size[0] * size[1] * depth;
    const auto pixel = [&](int64_t y, int64_t x) { return from + (y * columns + x) * depth; };
    for (int64_t i = 0; i < size[0]; ++i) {
      const Place y = PlaceOf(box[0], box[2], rows, size[0], i);
      for (int64_t j = 0; j < size[1]; ++j, to += depth) {
        const Place x = PlaceOf(box[1], box[3], columns, size[1], j);
        if (!y.inside || !x.inside) {
          std::fill_n(to, depth, outside_);
        } else if (nearest_) {
          const T* p = pixel(std::lround(y.at), std::lround(x.at));
          for (int64_t d = 0; d < depth; ++d) to[d] = static_cast<float>(p[d]);
        } else {
          const T *tl = pixel(y.low, x.low), *tr = pixel(y.low, x.high);
          const T *bl = pixel(y.high, x.low), *br = pixel(y.high, x.high);
          for (int64_t d = 0; d < depth; ++d) {
            const auto value = [d](const T* p) { return static_cast<float>(p[d]); };
            const float top = value(tl) + (value(tr) - value(tl)) * x.weight;
            const float bottom = value(bl) + (value(br) - value(bl)) * x.weight;
            to[d] = top + (bottom - top) * y.weight;
          }
        }
      }
    }
  }
};

// Inputs: gradients of the crops, boxes, images of the boxes, size of the images.
class CropGradImageKernel : public CropKernel {
 public:
  using CropKernel::CropKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &grads = ctx.input(0), &boxes = ctx.input(1), &box_ind = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(ctx.input(3), "image_size"));
    if (shape.rank() != 4 || grads.rank() != 4 || shape.dim(1) < 1 || shape.dim(2) < 1 ||
        grads.dim(3) != shape.dim(3)) {
      return errors::InvalidArgument("grads ", grads.shape().DebugString(),
                                     " are not of crops of images of shape ", shape.DebugString());
    }
    MR_RETURN_IF_ERROR(CheckBoxes(boxes, box_ind, shape.dim(0)));
    if (grads.dim(0) != boxes.dim(0)) {
      return errors::InvalidArgument("boxes and grads have incompatible shape");
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    DispatchType(TypeList<Half, float, double>(), out->dtype(), [&]<typename T>() {
      std::fill_n(out->data<T>(), shape.num_elements(), T(0));
      for (int64_t b = 0; b < boxes.dim(0); ++b) {
        Spread<T>(grads, b, boxes.data<float>() + 4 * b, box_ind.data<int32_t>()[b], out);
      }
    });
    return OkStatus();
  }

 private:
  template <typename T>
  void Spread(const Tensor& grads, int64_t b, const float* box, int64_t image, Tensor* out) const {
    const int64_t rows = out->dim(1), columns = out->dim(2), depth = out->dim(3);
    const int64_t crop_rows = grads.dim(1), crop_columns = grads.dim(2);
    T* to = out->data<T>() + image * rows * columns * depth;
    const float* from = grads.data<float>() + b * crop_rows * crop_columns * depth;
    const auto add = [&](int64_t y, int64_t x, float share) {
      T* pixel = to + (y * columns + x) * depth;
      for (int64_t d = 0; d < depth; ++d) {
        using C = ComputeType<T>;
        pixel[d] = static_cast<T>(static_cast<C>(pixel[d]) + static_cast<C>(from[d] * share));
      }
    };
    for (int64_t i = 0; i < crop_rows; ++i) {
      const Place y = PlaceOf(box[0], box[2], rows, crop_rows, i);
      for (int64_t j = 0; j < crop_columns; ++j, from += depth) {
        const Place x = PlaceOf(box[1], box[3], columns, crop_columns, j);
        if (!y.inside || !x.inside) continue;
        if (nearest_) {
          add(std::lround(y.at), std::lround(x.at), 1);
          continue;
        }
        add(y.low, x.low, (1 - y.weight) * (1 - x.weight));
        add(y.low, x.high, (1 - y.weight) * x.weight);
        add(y.high, x.low, y.weight * (1 - x.weight));
        add(y.high, x.high, y.weight * x.weight);
      }
    }
  }
};

// Inputs: gradients of the crops, images, boxes, images of the boxes.
class CropGradBoxesKernel : public CropKernel {
 public:
  using CropKernel::CropKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &grads = ctx.input(0), &images = ctx.input(1);
    const Tensor &boxes = ctx.input(2), &box_ind = ctx.input(3);
    if (images.rank() != 4 || grads.rank() != 4 || images.dim(1) < 1 || images.dim(2) < 1 ||
        grads.dim(3) != images.dim(3)) {
      return errors::InvalidArgument("grads ", grads.shape().DebugString(),
                                     " are not of crops of images of shape ",
                                     images.shape().DebugString());
    }
    MR_RETURN_IF_ERROR(CheckBoxes(boxes, box_ind, images.dim(0)));
    if (grads.dim(0) != boxes.dim(0)) {
      return errors::InvalidArgument("boxes and grads have incompatible shape");
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, boxes.shape()));
    std::fill_n(out->data<float>(), out->num_elements(), 0.0f);
    DispatchType(ImageTypes(), images.dtype(), [&]<typename T>() {
      for (int64_t b = 0; b < boxes.dim(0); ++b) {
        Move<T>(grads, b, boxes.data<float>() + 4 * b, images, box_ind.data<int32_t>()[b],
                out->data<float>() + 4 * b);
      }
    });
    return OkStatus();
  }

 private:
  // How much a place moves with the box's first and last coordinate.
  struct Share {
    float first, last;
  };
  static Share ShareOf(int64_t image, int64_t crop, int64_t i) {
    const auto end = static_cast<float>(image - 1);
    if (crop <= 1) return {0.5f * end, 0.5f * end};
    const float last = static_cast<float>(i) * end / static_cast<float>(crop - 1);
    return {end - last, last};
  }

  template <typename T>
  void Move(const Tensor& grads, int64_t b, const float* box, const Tensor& images, int64_t image,
            float* to) const {
    const int64_t rows = images.dim(1), columns = images.dim(2), depth = images.dim(3);
    const int64_t crop_rows = grads.dim(1), crop_columns = grads.dim(2);
    const T* from = images.data<T>() + image * rows * columns * depth;
    const float* grad = grads.data<float>() + b * crop_rows * crop_columns * depth;
    const auto pixel = [&](int64_t y, int64_t x) { return from + (y * columns + x) * depth; };
    for (int64_t i = 0; i < crop_rows; ++i) {
      const Place y = PlaceOf(box[0], box[2], rows, crop_rows, i);
      const Share ys = ShareOf(rows, crop_rows, i);
      for (int64_t j = 0; j < crop_columns; ++j, grad += depth) {
        const Place x = PlaceOf(box[1], box[3], columns, crop_columns, j);
        const Share xs = ShareOf(columns, crop_columns, j);
        if (!y.inside || !x.inside) continue;
        const T *tl = pixel(y.low, x.low), *tr = pixel(y.low, x.high);
        const T *bl = pixel(y.high, x.low), *br = pixel(y.high, x.high);
        for (int64_t d = 0; d < depth; ++d) {
          const auto value = [d](const T* p) { return static_cast<float>(p[d]); };
          const float dy = grad[d] * ((1 - x.weight) * (value(bl) - value(tl)) +
                                      x.weight * (value(br) - value(tr)));
          const float dx = grad[d] * ((1 - y.weight) * (value(tr) - value(tl)) +
                                      y.weight * (value(br) - value(bl)));
          to[0] += dy * ys.first;
          to[1] += dx * xs.first;
          to[2] += dy * ys.last;
          to[3] += dx * xs.last;
        }
      }
    }
  }
};

// --- Boxes ------------------------------------------------------------------------------------

// Boxes in the order of their scores, without those that overlap one that was taken; with a
// sigma they lose score instead (Bodla et al., "Soft-NMS", ICCV 2017).
class NonMaxSuppressionKernel : public Kernel {
 public:
  explicit NonMaxSuppressionKernel(KernelConstruction& c)
      : Kernel(c), pads_(c.attrs().GetOr<bool>("pad_to_max_output_size", false)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &boxes = ctx.input(0), &scores = ctx.input(1);
    if (boxes.rank() != 2 || boxes.dim(1) != 4) {
      return errors::InvalidArgument("boxes must be 2-D and have 4 columns, got ",
                                     boxes.shape().DebugString());
    }
    if (scores.rank() != 1 || scores.dim(0) != boxes.dim(0)) {
      return errors::InvalidArgument("scores has incompatible shape ",
                                     scores.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const int64_t most, IntScalar(ctx.input(2), "max_output_size"));
    if (most < 0) return errors::InvalidArgument("max_output_size must not be negative");
    float numbers[3] = {0, 0, 0};  // IOU threshold, score threshold, sigma
    for (int i = 3; i < ctx.num_inputs(); ++i) {
      if (ctx.input(i).rank() != 0) {
        return errors::InvalidArgument(def().input_arg(i).name(), " must be 0-D, got shape ",
                                       ctx.input(i).shape().DebugString());
      }
      numbers[i - 3] = ToFloats(ctx.input(i))[0];
    }
    if (!(numbers[0] >= 0 && numbers[0] <= 1)) {
      return errors::InvalidArgument("iou_threshold must be in [0, 1]");
    }
    if (!(numbers[2] >= 0)) {
      return errors::InvalidArgument("soft_nms_sigma_val must be >= 0, but got ", numbers[2]);
    }
    const std::vector<Candidate> chosen =
        Choose(ToFloats(boxes), ToFloats(scores), most, numbers[0], numbers[1], numbers[2]);
    return Give(ctx, chosen, most);
  }

 private:
  struct Candidate {
    int64_t box;
    float score;
    std::size_t seen;  // of those chosen, how many have lowered the score
    bool operator<(const Candidate& other) const {
      return score < other.score || (score == other.score && box > other.box);
    }
  };

  static std::vector<float> ToFloats(const Tensor& t) {
    std::vector<float> out(static_cast<std::size_t>(t.num_elements()));
    DispatchType(TypeList<float, Half>(), t.dtype(), [&]<typename T>() {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(t.data<T>()[i]);
    });
    return out;
  }

  static float Overlap(const float* a, const float* b) {
    const auto sides = [](const float* box, float* side) {
      for (int i = 0; i < 2; ++i) {
        side[i] = std::min(box[i], box[i + 2]);
        side[i + 2] = std::max(box[i], box[i + 2]);
      }
      return (side[2] - side[0]) * (side[3] - side[1]);
    };
    float s[4], t[4];
    const float area_a = sides(a, s), area_b = sides(b, t);
    if (!(area_a > 0) || !(area_b > 0)) return 0;
    const float height = std::max(0.0f, std::min(s[2], t[2]) - std::max(s[0], t[0]));
    const float width = std::max(0.0f, std::min(s[3], t[3]) - std::max(s[1], t[1]));
    return height * width / (area_a + area_b - height * width);
  }

  static std::vector<Candidate> Choose(const std::vector<float>& boxes,
                                       const std::vector<float>& scores, int64_t most,
                                       float threshold, float least_score, float sigma) {
    std::priority_queue<Candidate> queue;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (scores[i] > least_score) queue.push({static_cast<int64_t>(i), scores[i], 0});
    }
    const float scale = sigma > 0 ? -0.5f / sigma : 0;
    std::vector<Candidate> chosen;
    while (static_cast<int64_t>(chosen.size()) < most && !queue.empty()) {
      Candidate next = queue.top();
      queue.pop();
      const float before = next.score;
      bool dropped = false;
      for (std::size_t j = chosen.size(); j-- > next.seen;) {
        const float overlap = Overlap(&boxes[next.box * 4], &boxes[chosen[j].box * 4]);
        next.score *= overlap <= threshold ? std::exp(scale * overlap * overlap) : 0;
        dropped = overlap > threshold;
        if (dropped || next.score <= least_score) break;
      }
      next.seen = chosen.size();
      if (dropped) continue;
      if (next.score == before) {
        chosen.push_back(next);
      } else if (next.score > least_score) {
        queue.push(next);
      }
    }
    return chosen;
  }

  Status Give(KernelContext& ctx, const std::vector<Candidate>& chosen, int64_t most) const {
    const auto found = static_cast<int64_t>(chosen.size());
    const Shape shape({pads_ ? most : found});
    MR_ASSIGN_OR_RETURN(Tensor * indices, ctx.AllocateOutput(0, shape));
    std::fill_n(indices->data<int32_t>(), shape.num_elements(), 0);
    for (int64_t i = 0; i < found; ++i) {
      indices->data<int32_t>()[i] = static_cast<int32_t>(chosen[i].box);
    }
    if (ctx.num_outputs() == 1) return OkStatus();
    MR_ASSIGN_OR_RETURN(Tensor * scores, ctx.AllocateOutput(1, shape));
    DispatchType(TypeList<float, Half>(), scores->dtype(), [&]<typename T>() {
      for (int64_t i = 0; i < shape.num_elements(); ++i) {
        scores->data<T>()[i] = T(i < found ? chosen[i].score : 0.0f);
      }
    });
    ctx.SetOutput(2, Tensor::Scalar<int32_t>(static_cast<int32_t>(found)));
    return OkStatus();
  }

  const bool pads_;
};

}  // namespace

void RegisterImageRegionKernels(KernelRegistry& r) {
  RegisterCpu<ExtractImagePatchesKernel>(r, "ExtractImagePatches");
  RegisterCpu<CropAndResizeKernel>(r, "CropAndResize");
  RegisterCpu<CropGradImageKernel>(r, "CropAndResizeGradImage");
  RegisterCpu<CropGradBoxesKernel>(r, "CropAndResizeGradBoxes");
  RegisterCpu<NonMaxSuppressionKernel>(r, "NonMaxSuppressionV3");
  RegisterCpu<NonMaxSuppressionKernel>(r, "NonMaxSuppressionV5");
}

}  // namespace millrace
