// SPDX-License-Identifier: Apache-2.0
// Numbers of dimensions, and values for each of them, from one order of an image's dimensions to
// another.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

class DataFormatKernel : public Kernel {
 public:
  explicit DataFormatKernel(KernelConstruction& c)
      : Kernel(c),
        from_(c.attr<std::string>("src_format")),
        to_(c.attr<std::string>("dst_format")) {
    const std::pair<const char*, const std::string*> formats[] = {{"Source", &from_},
                                                                  {"Destination", &to_}};
    for (const auto& [what, format] : formats) {
      if (format->size() == 4 || format->size() == 5) continue;
      c.SetError(errors::InvalidArgument(what, " format must be of length 4 or 5, received ",
                                         format == &from_ ? "src" : "dst", "_format = ", *format));
      return;
    }
    std::string a = from_, b = to_;
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    if (a != b || std::adjacent_find(a.begin(), a.end()) != a.end()) {
      c.SetError(errors::InvalidArgument(
          "Destination and source format must determine a permutation, got ", from_, " and ", to_));
    }
  }

 protected:
  const std::string& from() const { return from_; }
  const std::string& to() const { return to_; }

 private:
  const std::string from_, to_;
};

class DimMapKernel : public DataFormatKernel {
 public:
  using DataFormatKernel::DataFormatKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, x.shape()));
    const auto rank = static_cast<int64_t>(from().size());
    Status status;
    DispatchType(IndexTypes(), x.dtype(), [&]<typename T>() {
      for (int64_t i = 0; i < x.num_elements(); ++i) {
        const auto dim = static_cast<int64_t>(x.data<T>()[i]);
        if (dim < -rank || dim >= rank) {
          status = errors::InvalidArgument("x[", i, "] = ", dim, " is no dimension of ", from(),
                                           ", which has ", rank);
          return;
        }
        out->data<T>()[i] = static_cast<T>(to().find(from()[dim < 0 ? dim + rank : dim]));
      }
    });
    return status;
  }
};

// A value, or a pair of them, for each dimension, or for each but those of the batch and channels.
class VecPermuteKernel : public DataFormatKernel {
 public:
  using DataFormatKernel::DataFormatKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_RETURN_IF_ERROR(Check(x.shape()));
    std::string from = this->from(), to = this->to();
    if (x.dim(0) != static_cast<int64_t>(from.size())) {
      for (std::string* format : {&from, &to}) {
        std::erase_if(*format, [](char c) { return c == 'N' || c == 'C'; });
      }
      if (x.dim(0) != static_cast<int64_t>(from.size())) {
        return errors::InvalidArgument("the formats ", this->from(), " and ", this->to(),
                                       " have no batch and channels to leave out");
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, x.shape()));
    const int64_t width = x.rank() == 2 ? 2 : 1;
    DispatchType(IndexTypes(), x.dtype(), [&]<typename T>() {
      for (std::size_t i = 0; i < to.size(); ++i) {
        std::copy_n(x.data<T>() + static_cast<int64_t>(from.find(to[i])) * width, width,
                    out->data<T>() + static_cast<int64_t>(i) * width);
      }
    });
    return OkStatus();
  }

 private:
  Status Check(const Shape& x) const {
    if (x.rank() != 1 && x.rank() != 2) {
      return errors::InvalidArgument("input must be a vector or 2D tensor, but got shape ",
                                     x.DebugString());
    }
    const auto all = static_cast<int64_t>(from().size());
    if (x.dim(0) != all && x.dim(0) != all - 2) {
      return errors::InvalidArgument(x.rank() == 1 ? "1D input" : "First dimension of 2D input",
                                     " must be of size ", all - 2, " or ", all, ", but got shape ",
                                     x.DebugString());
    }
    if (x.rank() == 1 || x.dim(1) == 2) return OkStatus();
    return errors::InvalidArgument("Second dimension of 2D input must be of size 2, but got shape ",
                                   x.DebugString());
  }
};

}  // namespace

void RegisterDataFormatKernels(KernelRegistry& r) {
  RegisterCpu<DimMapKernel>(r, "DataFormatDimMap");
  RegisterCpu<VecPermuteKernel>(r, "DataFormatVecPermute");
}

}  // namespace millrace
