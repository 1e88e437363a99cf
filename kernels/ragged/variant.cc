// SPDX-License-Identifier: Apache-2.0
// Rows of different lengths into variants and out of them: one for all, or one for each row.
#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/ragged/ragged_kernels.h"
#include "kernels/ragged/ragged_variant.h"
#include "kernels/ragged/splits.h"

namespace millrace {
namespace {

// `values`: how many rows or values the splits are of; -1 if they may be of any.
StatusOr<Splits> ReadChecked(const Tensor& tensor, int64_t values) {
  if (tensor.rank() != 1) {
    return errors::InvalidArgument(
        "Invalid ragged splits: ragged splits must be rank 1 but is rank ", tensor.rank());
  }
  Splits splits = ReadSplits(tensor);
  if (splits.empty()) {
    return errors::InvalidArgument(
        "Invalid ragged splits: ragged splits must have at least one splits, but is empty");
  }
  if (splits[0] != 0) {
    return errors::InvalidArgument(
        "Invalid ragged splits: first element of ragged splits  must be 0 but is ", splits[0]);
  }
  for (std::size_t i = 1; i < splits.size(); ++i) {
    if (splits[i] >= splits[i - 1]) continue;
    return errors::InvalidArgument(
        "Invalid ragged splits: ragged splits must be monotonically increasing, but "
        "ragged_splits[",
        i, "]=", splits[i], " is smaller than row_splits[", i - 1, "]=", splits[i - 1]);
  }
  if (values >= 0 && splits.back() != values) {
    return errors::InvalidArgument(
        "Invalid ragged splits: last element of ragged splits must be the number of ragged values(",
        values, ") but is ", splits.back());
  }
  return splits;
}

class ToVariantKernel : public Kernel {
 public:
  explicit ToVariantKernel(KernelConstruction& c)
      : Kernel(c),
        batched_(c.attr<bool>("batched_input")),
        split_type_(c.attrs().GetOr<DataType>("Tsplits", kInt64)) {}

  Status Compute(KernelContext& ctx) override {
    const int depth = ctx.num_inputs() - 1;
    const Tensor values = ctx.locked_input(depth);
    if (depth > 0 && values.rank() == 0) {
      return errors::InvalidArgument(
          "Requires flat_values to have rank>=1 when nested_row_splits "
          "is not empty, but is 0.");
    }
    std::vector<Splits> splits(static_cast<std::size_t>(depth));
    for (int i = depth - 1; i >= 0; --i) {
      const int64_t below =
          i == depth - 1 ? values.dim(0)
                         : static_cast<int64_t>(splits[static_cast<std::size_t>(i) + 1].size()) - 1;
      MR_ASSIGN_OR_RETURN(splits[static_cast<std::size_t>(i)], ReadChecked(ctx.input(i), below));
    }
    if (!batched_) {
      auto whole = MakeRef<RaggedVariant>();
      for (int i = 0; i < depth; ++i) whole->splits.push_back(ctx.locked_input(i));
      whole->values = values;
      ctx.SetOutput(0, VariantTensor(std::move(whole)));
      return OkStatus();
    }
    if (depth == 0) {
      return errors::InvalidArgument(
          "ragged_rank=0 is not currently supported when batched_input=true.");
    }
    const auto rows = static_cast<int64_t>(splits[0].size()) - 1;
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape({rows})));
    for (int64_t i = 0; i < rows; ++i) {
      MR_ASSIGN_OR_RETURN(out->data<Variant>()[i], Row(splits, values, i));
    }
    return OkStatus();
  }

 private:
  StatusOr<Variant> Row(const std::vector<Splits>& splits, const Tensor& values,
                        int64_t row) const {
    auto part = MakeRef<RaggedVariant>();
    auto begin = static_cast<std::size_t>(splits[0][static_cast<std::size_t>(row)]);
    auto end = static_cast<std::size_t>(splits[0][static_cast<std::size_t>(row) + 1]);
    for (std::size_t level = 1; level < splits.size(); ++level) {
      const Splits& all = splits[level];
      Splits of(all.begin() + static_cast<std::ptrdiff_t>(begin),
                all.begin() + static_cast<std::ptrdiff_t>(end) + 1);
      const int64_t first = of[0];
      begin = static_cast<std::size_t>(of.front());
      end = static_cast<std::size_t>(of.back());
      for (int64_t& at : of) at -= first;
      part->splits.push_back(IndexTensor(split_type_, of));
    }
    MR_ASSIGN_OR_RETURN(part->values,
                        values.TrySlice(static_cast<int64_t>(begin), static_cast<int64_t>(end)));
    return Variant(std::move(part));
  }

  const bool batched_;
  const DataType split_type_;
};

class FromVariantKernel : public Kernel {
 public:
  explicit FromVariantKernel(KernelConstruction& c)
      : Kernel(c),
        input_rank_(c.attr<int64_t>("input_ragged_rank")),
        output_rank_(c.attr<int64_t>("output_ragged_rank")),
        type_(c.attr<DataType>("Tvalues")),
        split_type_(c.attrs().GetOr<DataType>("Tsplits", kInt64)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& encoded = ctx.input(0);
    const int rank = encoded.rank();
    int64_t inner = input_rank_;
    if (inner == -1) {
      inner = output_rank_ == 0 ? std::max<int64_t>(0, -rank) : output_rank_ - rank;
      if (inner < 0) {
        return errors::InvalidArgument(
            "Inferred input_ragged_rank (output_ragged_rank - encoded_variant.dims()) must be >= "
            "0, found output_ragged_rank: ",
            output_rank_, ", encoded_variant.dims(): ", rank,
            ", inferred input_ragged_rank: ", inner);
      }
    }
    if (!(output_rank_ == 0 && inner == 0) && output_rank_ != rank + inner) {
      return errors::InvalidArgument(
          "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.dims(); "
          "output_ragged_rank: ",
          output_rank_, ", input_ragged_rank: ", inner, ", encoded_variant.dims(): ", rank, ".");
    }
    std::vector<const RaggedVariant*> parts;
    MR_RETURN_IF_ERROR(Components(encoded, inner, &parts));
    if (rank == 0) {
      for (std::size_t i = 0; i < parts[0]->splits.size(); ++i) {
        ctx.SetOutput(static_cast<int>(i), parts[0]->splits[i]);
      }
      ctx.SetOutput(static_cast<int>(output_rank_), parts[0]->values);
      return OkStatus();
    }
    if (output_rank_ == 0) return Stack(ctx, parts);
    MR_RETURN_IF_ERROR(WriteSplits(ctx, encoded.shape(), static_cast<std::size_t>(inner), parts));
    return Concatenate(ctx, parts);
  }

 private:
  Status Components(const Tensor& encoded, int64_t inner,
                    std::vector<const RaggedVariant*>* parts) const {
    for (int64_t i = 0; i < encoded.num_elements(); ++i) {
      const auto* part = dynamic_cast<const RaggedVariant*>(encoded.data<Variant>()[i].get());
      if (part == nullptr) {
        return errors::InvalidArgument("Input Variant element at index ", i,
                                       " doesn't hold a RaggedTensorVariant");
      }
      if (static_cast<int64_t>(part->splits.size()) != inner) {
        return errors::InvalidArgument("Encoded input RaggedTensorVariant has ragged_rank=",
                                       part->splits.size(), ".  Expected ragged_rank=", inner, ".");
      }
      if (part->values.dtype() != type_) {
        return errors::InvalidArgument("Expected values Tensor dtype: ", DataTypeName(type_),
                                       ", found: ", DataTypeName(part->values.dtype()));
      }
      if (part->values.rank() < 1 && output_rank_ != 0) {
        return errors::InvalidArgument(
            "Ragged values must have rank >= 1; encoded scalar element at index ", i,
            " has values Tensor: ", part->values.DebugString());
      }
      for (const Tensor& splits : part->splits) {
        if (splits.dtype() == split_type_) continue;
        return errors::InvalidArgument(
            "Expected row_splits Tensor dtype: ", DataTypeName(split_type_),
            ", found: ", DataTypeName(splits.dtype()));
      }
      parts->push_back(part);
    }
    return OkStatus();
  }

  // No rows at all: values of one shape under a new axis.
  Status Stack(KernelContext& ctx, const std::vector<const RaggedVariant*>& parts) const {
    const auto count = static_cast<int64_t>(parts.size());
    Dims dims{count};
    for (const RaggedVariant* part : parts) {
      if (!(part->values.shape() == parts[0]->values.shape())) return Incompatible(parts, part);
    }
    if (count > 0) {
      for (const int64_t dim : parts[0]->values.shape().dims()) dims.push_back(dim);
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
    Join(parts, out);
    return OkStatus();
  }

  static Status Incompatible(const std::vector<const RaggedVariant*>& parts,
                             const RaggedVariant* part) {
    const auto at = std::find(parts.begin(), parts.end(), part) - parts.begin();
    return errors::InvalidArgument(
        "All flat_values must have compatible shapes.  Shape at index 0: ",
        parts[0]->values.shape().DebugString(), ".  Shape at index ", at, ": ",
        part->values.shape().DebugString(),
        ".  If you are using tf.map_fn, then you may need to specify an explicit "
        "fn_output_signature with appropriate ragged_rank, and/or convert output tensors to "
        "RaggedTensors.");
  }

  static void Join(const std::vector<const RaggedVariant*>& parts, Tensor* out) {
    int64_t at = 0;
    for (const RaggedVariant* part : parts) {
      const int64_t n = part->values.num_elements();
      if (n > 0) CopyRange(part->values, 0, out, at, n);
      at += n;
    }
  }

  // Of the axes of the variants, of what each holds, and of the rows within.
  Status WriteSplits(KernelContext& ctx, const Shape& encoded, std::size_t inner,
                     const std::vector<const RaggedVariant*>& parts) const {
    int output = 0;
    for (int axis = 0; axis + 1 < encoded.rank(); ++axis) {
      MR_ASSIGN_OR_RETURN(Tensor by_row, ctx.AllocateTemp(kInt64, Shape({encoded.dim(axis) + 1})));
      for (int64_t i = 0; i <= encoded.dim(axis); ++i) {
        if (__builtin_mul_overflow(i, encoded.dim(axis + 1), &by_row.data<int64_t>()[i])) {
          return errors::InvalidArgument("there are too many variants: ", encoded.DebugString());
        }
      }
      MR_RETURN_IF_ERROR(SetSplits(ctx, output++, split_type_, by_row.flat<int64_t>()));
    }
    Splits of_parts{0};
    for (const RaggedVariant* part : parts) {
      const int64_t rows = inner > 0 ? part->splits[0].num_elements() - 1 : part->values.dim(0);
      of_parts.push_back(of_parts.back() + rows);
    }
    MR_RETURN_IF_ERROR(SetSplits(ctx, output++, split_type_, of_parts));
    for (std::size_t level = 0; level < inner; ++level) {
      Splits joined{0};
      for (const RaggedVariant* part : parts) {
        const Splits own = ReadSplits(part->splits[level]);
        const int64_t base = joined.back();
        for (std::size_t i = 1; i < own.size(); ++i) joined.push_back(own[i] + base);
      }
      MR_RETURN_IF_ERROR(SetSplits(ctx, output++, split_type_, joined));
    }
    return OkStatus();
  }

  Status Concatenate(KernelContext& ctx, const std::vector<const RaggedVariant*>& parts) const {
    Dims dims{0};
    if (!parts.empty()) {
      const auto first = parts[0]->values.shape().dims();
      dims.assign(first.begin(), first.end());
      dims[0] = 0;
    }
    for (const RaggedVariant* part : parts) {
      const auto own = part->values.shape().dims();
      if (own.size() != dims.size()) {
        return errors::InvalidArgument(
            "Rank of values must match for all components; values shape at index 0: ",
            parts[0]->values.shape().DebugString(), ", values shape at index ",
            std::find(parts.begin(), parts.end(), part) - parts.begin(), ": ",
            part->values.shape().DebugString());
      }
      if (!std::equal(own.begin() + 1, own.end(), dims.begin() + 1)) {
        return Incompatible(parts, part);
      }
      if (__builtin_add_overflow(dims[0], own[0], &dims[0])) {
        return errors::InvalidArgument("the variants hold more than 2^63 values");
      }
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
    MR_ASSIGN_OR_RETURN(Tensor* const out,
                        ctx.AllocateOutput(static_cast<int>(output_rank_), shape));
    Join(parts, out);
    return OkStatus();
  }

  const int64_t input_rank_, output_rank_;
  const DataType type_, split_type_;
};

// Gradients of the values of each variant, one after the other; zeros where there is none.
class ToVariantGradientKernel : public Kernel {
 public:
  explicit ToVariantGradientKernel(KernelConstruction& c)
      : Kernel(c), type_(c.attr<DataType>("Tvalues")) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& encoded = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(ctx.input(2), "dense_values_shape"));
    Splits splits;
    if (ctx.input(1).rank() != 0) {
      MR_ASSIGN_OR_RETURN(splits, ReadChecked(ctx.input(1), /*values=*/-1));
    }
    const int64_t count = encoded.num_elements();
    if (count == 1) {
      if (const auto* part = VariantCast<RaggedVariant>(encoded)) return One(ctx, *part);
    }
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
    const int64_t total = shape.num_elements();
    if (total == 0) return OkStatus();
    const int64_t width = shape.rank() == 0 ? 1 : total / shape.dim(0);
    int64_t at = 0;
    for (int64_t i = 0; i < count; ++i) {
      const auto* part = dynamic_cast<const RaggedVariant*>(encoded.data<Variant>()[i].get());
      int64_t n;
      if (part != nullptr) {
        if (part->values.dtype() != type_) return WrongType(part->values.dtype());
        n = part->values.num_elements();
      } else if (static_cast<int64_t>(splits.size()) > i + 1) {
        const auto row = static_cast<std::size_t>(i);
        if (__builtin_mul_overflow(splits[row + 1] - splits[row], width, &n)) n = total + 1;
      } else {
        return errors::InvalidArgument("row_splits have no row ", i);
      }
      if (n > total - at) break;
      if (part != nullptr && n > 0) CopyRange(part->values, 0, out, at, n);
      if (part == nullptr) ClearRange(out, at, n);
      at += n;
      if (i + 1 == count && at == total) return OkStatus();
    }
    return errors::InvalidArgument("the gradients do not have the ", total,
                                   " elements of dense_values_shape");
  }

 private:
  Status WrongType(DataType found) const {
    return errors::InvalidArgument("Expected values Tensor dtype: ", DataTypeName(type_),
                                   ", found: ", DataTypeName(found));
  }
  Status One(KernelContext& ctx, const RaggedVariant& part) const {
    if (part.values.dtype() != type_) return WrongType(part.values.dtype());
    ctx.SetOutput(0, part.values);
    return OkStatus();
  }

  const DataType type_;
};

}  // namespace

void RegisterRaggedVariantKernels(KernelRegistry& r) {
  r.Register(KernelDef("RaggedTensorToVariant").Types("Tvalues", RaggedValueTypes()),
             &MakeKernel<ToVariantKernel>);
  r.Register(KernelDef("RaggedTensorFromVariant").Types("Tvalues", RaggedValueTypes()),
             &MakeKernel<FromVariantKernel>);
  r.Register(KernelDef("RaggedTensorToVariantGradient").Types("Tvalues", RaggedValueTypes()),
             &MakeKernel<ToVariantGradientKernel>);
}

}  // namespace millrace
