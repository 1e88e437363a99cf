// SPDX-License-Identifier: Apache-2.0
// Rows of different lengths as a tensor: short ones are padded, long ones cut.
//
// Each value is looked up from the inside out: the row that holds it and its column there, then
// the row that holds that row. So memory is taken for what is given and for the output, whatever
// the numbers in the partitions say.
#include <algorithm>
#include <optional>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/broadcast.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/ragged/ragged_kernels.h"
#include "kernels/ragged/splits.h"

namespace millrace {
namespace {

enum class Partition { kFirstDimSize, kValueRowIds, kRowSplits };

StatusOr<Partition> ParsePartition(const std::string& name) {
  if (name == "FIRST_DIM_SIZE") return Partition::kFirstDimSize;
  if (name == "VALUE_ROWIDS") return Partition::kValueRowIds;
  if (name == "ROW_SPLITS") return Partition::kRowSplits;
  for (const char* other : {"ROW_LENGTHS", "ROW_LIMITS", "ROW_STARTS"}) {
    if (name == other) return errors::InvalidArgument("Unsupported partition type: ", name);
  }
  return errors::InvalidArgument("Unknown string for partition info type: ", name);
}

// Which row holds an item, and where in it.
class Level {
 public:
  Level(Partition kind, Splits numbers) : kind_(kind), numbers_(std::move(numbers)) {}

  int64_t MaxWidth() const {
    int64_t width = 0;
    if (kind_ == Partition::kRowSplits) {
      for (std::size_t i = 1; i < numbers_.size(); ++i) {
        int64_t length;
        if (!__builtin_sub_overflow(numbers_[i], numbers_[i - 1], &length)) {
          width = std::max(width, length);
        }
      }
      return width;
    }
    int64_t run = 0;
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      run = i > 0 && numbers_[i] == numbers_[i - 1] ? run + 1 : 1;
      width = std::max(width, run);
    }
    return width;
  }

  // Says what is wrong where there are `rows` rows.
  Status Prepare(int64_t rows) {
    if (kind_ == Partition::kRowSplits) {
      if (static_cast<int64_t>(numbers_.size()) - 1 > rows) {
        return errors::InvalidArgument(
            "Row partition size is greater than output size: ", numbers_.size() - 1, " > ", rows);
      }
      if (!numbers_.empty() &&
          (numbers_[0] != 0 || !std::is_sorted(numbers_.begin(), numbers_.end()))) {
        return errors::InvalidArgument("Invalid row split size.");
      }
      return OkStatus();
    }
    columns_.resize(numbers_.size());
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      const bool goes_on = i > 0 && numbers_[i] == numbers_[i - 1];
      columns_[i] = goes_on ? columns_[i - 1] + 1 : 0;
      if (numbers_[i] >= 0 && numbers_[i] < rows) continue;
      return errors::InvalidArgument("Got ", i == 0 ? "current" : "next",
                                     "_value_rowid=", numbers_[i], " which is not less than ",
                                     rows);
    }
    return OkStatus();
  }

  // Of items below.
  int64_t size() const {
    if (kind_ == Partition::kValueRowIds) return static_cast<int64_t>(numbers_.size());
    return numbers_.empty() ? 0 : numbers_.back();
  }

  // Item [0, size()) becomes its row; the column is in *column.
  int64_t RowOf(int64_t item, int64_t* column) const {
    if (kind_ == Partition::kValueRowIds) {
      *column = columns_[static_cast<std::size_t>(item)];
      return numbers_[static_cast<std::size_t>(item)];
    }
    const auto row = std::upper_bound(numbers_.begin(), numbers_.end(), item) - 1;
    *column = item - *row;
    return row - numbers_.begin();
  }

 private:
  const Partition kind_;
  const Splits numbers_;
  Splits columns_;  // of row ids
};

Status CheckDefault(const Shape& standard, const Shape& values) {
  const auto wrong = [&](auto... why) {
    return errors::InvalidArgument("default_value.shape=", standard.DebugString(),
                                   " and rt_input.flat_values.shape=", values.DebugString(),
                                   " are incompatible: ", why...);
  };
  if (standard.rank() >= values.rank()) {
    return wrong("default_value.rank = ", standard.rank(),
                 "  must be less than rt_input.flat_values.rank = ", values.rank());
  }
  for (int i = 0; i < standard.rank(); ++i) {
    if (standard.dim(i) == 1 || standard.dim(i) == values.dim(i + 1)) continue;
    return wrong("default_value.shape[", i - standard.rank(), "] = ", standard.dim(i),
                 " but rt_input.flat_values.shape[", i - standard.rank(),
                 "] = ", values.dim(i + 1));
  }
  return OkStatus();
}

class RaggedToTensorKernel : public Kernel {
 public:
  explicit RaggedToTensorKernel(KernelConstruction& c) : Kernel(c) {
    for (const auto& name : c.attr<std::vector<std::string>>("row_partition_types")) {
      const StatusOr<Partition> kind = ParsePartition(name);
      if (!kind.ok()) c.SetError(kind.status());
      kinds_.push_back(kind.ok() ? *kind : Partition::kRowSplits);
    }
    if (kinds_.empty()) {
      c.SetError(errors::InvalidArgument("Partition info types should not be empty"));
      return;
    }
    first_ = kinds_[0] == Partition::kFirstDimSize ? 1 : 0;
    if (kinds_[0] == Partition::kValueRowIds) {
      c.SetError(errors::InvalidArgument("VALUE_ROWIDS cannot be first"));
    }
    if (first_ == 1 && (kinds_.size() < 2 || kinds_[1] != Partition::kValueRowIds)) {
      c.SetError(errors::InvalidArgument("FIRST_DIM_SIZE must be followed by VALUE_ROWIDS"));
    }
    if (std::count(kinds_.begin() + 1, kinds_.end(), Partition::kFirstDimSize) > 0) {
      c.SetError(errors::InvalidArgument("FIRST_DIM_SIZE must be first"));
    }
    if (c.input_types().size() != kinds_.size() + 3) {
      c.SetError(errors::InvalidArgument(
          "Number of row partition tensors (", c.input_types().size() - 3,
          ") does not equal the number of row partition types(", kinds_.size(), ")."));
    }
  }

  Status Compute(KernelContext& ctx) override {
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      const int rank = ctx.input(static_cast<int>(i) + 3).rank();
      if (kinds_[i] == Partition::kFirstDimSize && rank != 0) {
        return errors::InvalidArgument("FIRST_DIM_SIZE must be a scalar.");
      }
      if (kinds_[i] != Partition::kFirstDimSize && rank != 1) {
        return errors::InvalidArgument("Row partition must be a vector.");
      }
    }
    if (ctx.input(3).num_elements() == 0) {
      return errors::InvalidArgument(
          "Invalid first partition input. Tensor requires at least one element.");
    }
    std::vector<Level> levels;
    for (std::size_t i = first_; i < kinds_.size(); ++i) {
      levels.emplace_back(kinds_[i], ReadSplits(ctx.input(static_cast<int>(i) + 3)));
    }
    const int64_t rows = first_ == 1 ? ReadSplits(ctx.input(3))[0] : ctx.input(3).dim(0) - 1;
    const Tensor &values = ctx.input(1), &standard = ctx.input(2);
    MR_RETURN_IF_ERROR(CheckDefault(standard.shape(), values.shape()));
    MR_ASSIGN_OR_RETURN(const Shape shape, OutputShape(ctx.input(0), values.shape(), rows, levels));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return OkStatus();
    int64_t above = rows;
    for (Level& level : levels) {
      MR_RETURN_IF_ERROR(level.Prepare(above));
      above = level.size();
    }
    if (above > values.dim(0)) {
      return errors::InvalidArgument("the rows hold ", above, " values, but there are ",
                                     values.dim(0));
    }
    MR_RETURN_IF_ERROR(FillStandard(standard, static_cast<int>(levels.size()) + 1, out));
    Place(values, levels, above, out);
    return OkStatus();
  }

 private:
  // What is asked for, where it is; else as much as the longest row needs.
  static StatusOr<Shape> OutputShape(const Tensor& asked, const Shape& values, int64_t rows,
                                     const std::vector<Level>& levels) {
    const int depth = static_cast<int>(levels.size()), rank = depth + values.rank();
    MR_ASSIGN_OR_RETURN(Dims dims, IntVector(asked, "shape"));
    if (asked.rank() == 0) {
      if (dims[0] != -1) {
        return errors::InvalidArgument(
            "Argument `shape` must be a vector or the scalar -1, not the scalar ", dims[0]);
      }
      dims.assign(static_cast<std::size_t>(rank), -1);
    }
    const auto incompatible = [&](auto... why) {
      return errors::InvalidArgument("rt_input.shape and shape=", PartialShape(dims).DebugString(),
                                     " are incompatible: ", why...);
    };
    if (static_cast<int>(dims.size()) != rank) {
      return incompatible("rt_input.rank = ", rank, " but shape.rank = ", dims.size());
    }
    for (int i = 1; i < values.rank(); ++i) {
      int64_t& dim = dims[static_cast<std::size_t>(depth + i)];
      if (dim >= 0 && dim != values.dim(i)) {
        return incompatible("rt_input.shape[", i + depth, "] = ", values.dim(i), " but shape[",
                            i + depth, "] = ", dim);
      }
      dim = values.dim(i);
    }
    if (dims[0] < 0) dims[0] = rows;
    for (int i = 0; i < depth; ++i) {
      int64_t& dim = dims[static_cast<std::size_t>(i) + 1];
      if (dim < 0) dim = levels[static_cast<std::size_t>(i)].MaxWidth();
    }
    return MakeShape(dims);
  }

  static Status FillStandard(const Tensor& standard, int outer, Tensor* out) {
    const auto dims = out->shape().dims();
    const Shape element(dims.subspan(static_cast<std::size_t>(outer)));
    MR_ASSIGN_OR_RETURN(const BroadcastPlan plan, MakeBroadcastPlan(standard.shape(), element));
    if (!(plan.out == element)) return errors::InvalidArgument("Error broadcasting default_value");
    const int64_t width = element.num_elements();
    plan.ForEachRun(0, width, [&](int64_t a, int64_t, int64_t at, int64_t n) {
      const int64_t stride = plan.dims.back().a_stride;
      for (int64_t i = 0; i < n; ++i) CopyRange(standard, a + i * stride, out, at + i, 1);
      return true;
    });
    // The part that is written is copied behind itself until all is.
    for (int64_t done = width; done < out->num_elements();) {
      const int64_t more = std::min(done, out->num_elements() - done);
      CopyRange(*out, 0, out, done, more);
      done += more;
    }
    return OkStatus();
  }

  static void Place(const Tensor& values, const std::vector<Level>& levels, int64_t count,
                    Tensor* out) {
    const Shape& shape = out->shape();
    const int depth = static_cast<int>(levels.size());
    int64_t width = 1;
    for (int i = depth + 1; i < shape.rank(); ++i) width *= shape.dim(i);
    for (int64_t v = 0; v < count; ++v) {
      int64_t item = v, at = 0, stride = 1;
      bool within = true;
      for (int i = depth; i > 0 && within; --i) {
        int64_t column;
        item = levels[static_cast<std::size_t>(i) - 1].RowOf(item, &column);
        within = column < shape.dim(i);
        at += column * stride;
        stride *= shape.dim(i);
      }
      if (!within || item >= shape.dim(0)) continue;
      CopyRange(values, v * width, out, (at + item * stride) * width, width);
    }
  }

  std::vector<Partition> kinds_;
  std::size_t first_ = 0;  // of the partitions of rows
};

}  // namespace

void RegisterRaggedTensorKernels(KernelRegistry& r) {
  r.Register(KernelDef("RaggedTensorToTensor").Types("T", RaggedValueTypes()),
             &MakeKernel<RaggedToTensorKernel>);
}

}  // namespace millrace
