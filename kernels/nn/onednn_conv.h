// Convolutions of float NHWC images by oneDNN. Its primitives are compiled for one geometry
// and run in the calling thread only: sharing out images is the caller's business.
#ifndef KERNELS_NN_ONEDNN_CONV_H_
#define KERNELS_NN_ONEDNN_CONV_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "kernels/nn/window.h"

namespace millrace {

// The three passes of a convolution; each takes two operands and makes the third.
enum class ConvPass {
  kForward,  // images, filter -> outputs
  kInput,    // filter, gradient of the outputs -> gradient of the images
  kFilter,   // images, gradient of the outputs -> gradient of the filter
};

// A convolution of NHWC images with an HWIO filter. With groups > 1 the channels fall into
// as many parts, which do not see each other.
struct ConvGeometry {
  int64_t batch = 0, channels = 0, out_channels = 0, groups = 1;
  WindowAxis rows, cols;

  int64_t group_channels() const { return channels / groups; }
  int64_t group_outputs() const { return out_channels / groups; }
  int64_t taps() const { return rows.size * cols.size * group_channels(); }
  int64_t image() const { return rows.input * cols.input * channels; }
  int64_t out_image() const { return rows.output * cols.output * out_channels; }
  int64_t filter() const { return taps() * out_channels; }
  Shape InputShape() const { return {batch, rows.input, cols.input, channels}; }
  Shape FilterShape() const { return {rows.size, cols.size, group_channels(), out_channels}; }
  Shape OutputShape() const { return {batch, rows.output, cols.output, out_channels}; }

  friend bool operator==(const ConvGeometry&, const ConvGeometry&) = default;
};

// One pass over `geometry.batch` images. Thread-safe.
class OneDnnConv {
 public:
  // Null where oneDNN has no compiled code for the pass on this processor. Takes milliseconds.
  static std::unique_ptr<OneDnnConv> Create(ConvPass pass, const ConvGeometry& geometry);
  ~OneDnnConv();

  // The filter lies in an order that suits the processor; its size in floats, padding included.
  int64_t packed_filter_size() const;
  // True if a filter packed by one can be given to the other.
  bool PacksLike(const OneDnnConv& other) const;
  // Floats of working memory that Execute needs; may be 0.
  int64_t scratch_size() const;

  // From and to the HWIO order.
  Status PackFilter(const float* filter, float* packed) const;
  Status UnpackFilter(const float* packed, float* filter) const;
  // The pass; what it makes is overwritten, the rest only read.
  Status Execute(float* images, float* packed_filter, float* outputs, float* scratch) const;

 private:
  struct Impl;
  explicit OneDnnConv(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// The compiled passes that one kernel has met. Thread-safe.
class OneDnnConvCache {
 public:
  explicit OneDnnConvCache(ConvPass pass) : pass_(pass) {}
  // The pass for `geometry`, made at the first call for it; null as Create's.
  std::shared_ptr<const OneDnnConv> Get(const ConvGeometry& geometry) const;

 private:
  struct Entry {
    ConvGeometry geometry;
    std::shared_ptr<const OneDnnConv> conv;
  };
  // Shapes that change from step to step must not fill the memory.
  static constexpr std::size_t kMost = 16;

  const ConvPass pass_;
  mutable Mutex mu_;
  mutable std::vector<Entry> entries_ ABSL_GUARDED_BY(mu_);  // the oldest first
};

}  // namespace millrace

#endif  // KERNELS_NN_ONEDNN_CONV_H_
