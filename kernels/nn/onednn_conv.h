// SPDX-License-Identifier: Apache-2.0
// Convolutions of float NHWC images by oneDNN. Its primitives are compiled for one geometry
// and run in the calling thread only: sharing out images is the caller's business.
#ifndef KERNELS_NN_ONEDNN_CONV_H_
#define KERNELS_NN_ONEDNN_CONV_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "kernels/nn/conv_plan.h"

namespace millrace {

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
