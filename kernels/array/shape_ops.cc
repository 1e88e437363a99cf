// SPDX-License-Identifier: Apache-2.0
// Ops that compute with shapes: sizes, ranks, offsets, which axes a broadcast repeats.
#include <numeric>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/all_kernels.h"
#include "kernels/common/broadcast.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// Cheap: the executor runs it in place.
class ShapeValueKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsExpensive() const override { return false; }
};

class ShapeKernel : public ShapeValueKernel {
 public:
  explicit ShapeKernel(KernelConstruction& c)
      : ShapeValueKernel(c), dtype_(c.attrs().GetOr<DataType>("out_type", kInt32)) {}
  Status Compute(KernelContext& ctx) override {
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      const auto dims = ctx.input(i).shape().dims();
      MR_RETURN_IF_ERROR(CheckFits(dtype_, dims));
      ctx.SetOutput(i, IndexTensor(dtype_, dims));
    }
    return OkStatus();
  }

 private:
  const DataType dtype_;
};

class SizeKernel : public ShapeValueKernel {
 public:
  explicit SizeKernel(KernelConstruction& c)
      : ShapeValueKernel(c), dtype_(c.attrs().GetOr<DataType>("out_type", kInt32)) {}
  Status Compute(KernelContext& ctx) override {
    const int64_t n = ctx.input(0).num_elements();
    MR_RETURN_IF_ERROR(CheckFits(dtype_, {&n, 1}));
    ctx.SetOutput(0, dtype_ == kInt32 ? Tensor::Scalar<int32_t>(static_cast<int32_t>(n))
                                      : Tensor::Scalar<int64_t>(n));
    return OkStatus();
  }

 private:
  const DataType dtype_;
};

class RankKernel : public ShapeValueKernel {
 public:
  using ShapeValueKernel::ShapeValueKernel;
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, Tensor::Scalar<int32_t>(ctx.input(0).rank()));
    return OkStatus();
  }
};

class InvertPermutationKernel : public ShapeValueKernel {
 public:
  using ShapeValueKernel::ShapeValueKernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Dims perm, IntVector(ctx.input(0), "x", /*vector_only=*/true));
    const auto n = static_cast<int64_t>(perm.size());
    Dims inverse(perm.size(), -1);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t d = perm[i];
      if (d < 0 || d >= n) return errors::InvalidArgument(d, " is not between 0 and ", n);
      if (inverse[d] != -1) return errors::InvalidArgument(d, " is duplicated in the input.");
      inverse[d] = i;
    }
    ctx.SetOutput(0, IndexTensor(ctx.input(0).dtype(), {inverse.data(), inverse.size()}));
    return OkStatus();
  }
};

// For a gradient of a broadcast op: the axes over which each side's gradient is summed.
class BroadcastGradientArgsKernel : public ShapeValueKernel {
 public:
  using ShapeValueKernel::ShapeValueKernel;
  Status Compute(KernelContext& ctx) override {
    Dims sides[2];
    for (int s = 0; s < 2; ++s) {
      MR_ASSIGN_OR_RETURN(sides[s], IntVector(ctx.input(s), s == 0 ? "s0" : "s1", true));
    }
    const int rank = static_cast<int>(std::max(sides[0].size(), sides[1].size()));
    Dims reduce[2];
    const bool same = sides[0] == sides[1];
    for (int i = 0; i < rank && !same; ++i) {
      int64_t d[2];
      for (int s = 0; s < 2; ++s) {
        const int k = i - (rank - static_cast<int>(sides[s].size()));
        d[s] = k < 0 ? 1 : sides[s][k];
      }
      if (d[0] != d[1] && d[0] != 1 && d[1] != 1) {
        return errors::InvalidArgument("Incompatible shapes: size ", d[0], " vs. ", d[1],
                                       " at axis ", i);
      }
      // An axis of size 1 on both sides is listed for both, as TensorFlow does.
      for (int s = 0; s < 2; ++s) {
        if (d[s] == 1) reduce[s].push_back(i);
      }
    }
    for (int s = 0; s < 2; ++s) {
      ctx.SetOutput(s, IndexTensor(ctx.input(s).dtype(), {reduce[s].data(), reduce[s].size()}));
    }
    return OkStatus();
  }
};

// Where each input of a concatenation begins.
class ConcatOffsetKernel : public ShapeValueKernel {
 public:
  using ShapeValueKernel::ShapeValueKernel;
  Status Compute(KernelContext& ctx) override {
    if (ctx.input(0).rank() != 0) {
      return errors::InvalidArgument("Concat dim tensor should be a scalar integer, but got shape ",
                                     ctx.input(0).shape().DebugString());
    }
    for (int i = 1; i < ctx.num_inputs(); ++i) {
      if (ctx.input(i).rank() == 1) continue;
      return errors::InvalidArgument("input ", i, " should be a vector, but got shape ",
                                     ctx.input(i).shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const Dims first, IntVector(ctx.input(1), "shape[0]", true));
    MR_ASSIGN_OR_RETURN(const int64_t given, IntScalar(ctx.input(0), "concat_dim"));
    const int rank = static_cast<int>(first.size());
    const int64_t axis = given < 0 ? given + rank : given;
    if (axis < 0 || axis >= rank) {
      return errors::InvalidArgument("Concat dim is out of range: ", given, " vs. ", rank);
    }
    int64_t offset = 0;
    for (int i = 0; i + 1 < ctx.num_inputs(); ++i) {
      MR_ASSIGN_OR_RETURN(const Dims dims, IntVector(ctx.input(i + 1), "shape", true));
      if (dims.size() != first.size()) {
        return errors::InvalidArgument("input ", i, " should contain ", first.size(),
                                       " elements, but got ", dims.size());
      }
      for (int k = 0; k < rank; ++k) {
        if (k != axis && dims[k] != first[k]) {
          return errors::InvalidArgument("All dimensions except ", axis, " must match. Input ", i,
                                         " has shape [", StrJoin(dims, " "),
                                         "] and doesn't match input 0 with shape [",
                                         StrJoin(first, " "), "].");
        }
      }
      Dims begin(rank, 0);
      begin[static_cast<int>(axis)] = offset;
      offset += dims[static_cast<int>(axis)];
      ctx.SetOutput(i, IndexTensor(ctx.input(i + 1).dtype(), {begin.data(), begin.size()}));
    }
    return OkStatus();
  }
};

}  // namespace

void RegisterShapeKernels(KernelRegistry& r) {
  RegisterCpu<ShapeKernel>(r, "Shape");
  RegisterCpu<ShapeKernel>(r, "ShapeN");
  RegisterCpu<SizeKernel>(r, "Size");
  RegisterCpu<RankKernel>(r, "Rank");
  RegisterCpu<InvertPermutationKernel>(r, "InvertPermutation");
  RegisterCpu<BroadcastGradientArgsKernel>(r, "BroadcastGradientArgs");
  RegisterCpu<ConcatOffsetKernel>(r, "ConcatOffset");
}

}  // namespace millrace
