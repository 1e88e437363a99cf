// SPDX-License-Identifier: Apache-2.0
// Stages that stack elements, and the reverse.
#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "data/pipeline/stage.h"

namespace millrace {
namespace {

using Where = std::source_location;

int64_t BatchesOf(int64_t n, int64_t size, bool drop_remainder) {
  if (n < 0) return n;
  return n / size + (n % size != 0 && !drop_remainder ? 1 : 0);
}

PartialShape BatchShape(int64_t size, const PartialShape& element) {
  if (!element.has_rank()) return element;
  PartialShape shape({size});
  for (const int64_t dim : element.dims()) shape.AddDim(dim);
  return shape;
}

Status CheckSize(std::string_view what, int64_t size) {
  if (size > 0) return OkStatus();
  return errors::InvalidArgument("the size of a ", what, " is ", size, "; it must be at least 1");
}

DatasetStage BatchStage(const Dataset& input, std::string op, std::string text, int64_t size,
                        bool drop_remainder, const std::vector<PartialShape>& elements,
                        Where where) {
  DatasetStage stage;
  stage.op = std::move(op);
  stage.text = std::move(text);
  stage.inputs = {input};
  stage.dtypes = input.dtypes();
  for (const PartialShape& shape : elements) {
    stage.shapes.push_back(BatchShape(drop_remainder ? size : -1, shape));
  }
  stage.cardinality = BatchesOf(input.cardinality(), size, drop_remainder);
  stage.batch_size = size;
  stage.where = where;
  return stage;
}

// The shapes that elements are padded to.
StatusOr<std::vector<PartialShape>> PaddedShapes(const Dataset& input,
                                                 const PaddedBatchOptions& options) {
  const std::vector<PartialShape>& given = options.shapes.empty() ? input.shapes() : options.shapes;
  if (given.size() != input.shapes().size()) {
    return errors::InvalidArgument("PaddedBatch has ", given.size(), " shapes for elements of ",
                                   input.shapes().size(), " components");
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    const PartialShape& element = input.shapes()[i];
    if (!given[i].has_rank()) {
      return errors::InvalidArgument("the rank of component ", i,
                                     " is not known: PaddedBatch needs a shape for it");
    }
    if (element.has_rank() && element.rank() != given[i].rank()) {
      return errors::InvalidArgument("component ", i, " has shape ", element.DebugString(),
                                     ", which cannot be padded to ", given[i].DebugString());
    }
    for (int d = 0; element.has_rank() && d < element.rank(); ++d) {
      if (given[i].dim(d) >= 0 && element.dim(d) > given[i].dim(d)) {
        return errors::InvalidArgument("component ", i, " has shape ", element.DebugString(),
                                       ", which is larger than ", given[i].DebugString());
      }
    }
  }
  return given;
}

StatusOr<std::vector<Input>> PaddingValues(const Dataset& input,
                                           const PaddedBatchOptions& options) {
  if (!options.values.empty() && options.values.size() != input.dtypes().size()) {
    return errors::InvalidArgument("PaddedBatch has ", options.values.size(),
                                   " values for elements of ", input.dtypes().size(),
                                   " components");
  }
  std::vector<Input> values;
  for (std::size_t i = 0; i < input.dtypes().size(); ++i) {
    const DataType dtype = input.dtypes()[i];
    if (options.values.empty()) {
      StatusOr<Tensor> zero = Tensor::Allocate(dtype, Shape());
      if (!zero.ok()) return zero.status();
      if (IsMemcpyable(dtype)) {
        std::fill_n(static_cast<char*>(zero->raw_data()), zero->num_bytes(), '\0');
      }
      values.push_back(*std::move(zero));
      continue;
    }
    const Tensor& value = options.values[i];
    if (value.dtype() != dtype || value.num_elements() != 1 || value.rank() != 0) {
      return errors::InvalidArgument("the padding value of component ", i, " must be a ",
                                     DataTypeName(dtype), " scalar, not ", value.DebugString(1));
    }
    values.push_back(value);
  }
  return values;
}

// Data sets of `size` elements each, one variant for each component.
Dataset WindowsOf(const Dataset& input, int64_t size, const WindowOptions& options, Where where) {
  const int64_t reach = (size - 1) * options.stride + 1, n = input.cardinality();
  DatasetStage stage;
  stage.op = "WindowDataset";
  stage.text = StrCat("Window(", size, ", ", options.shift, ", ", options.stride, ")");
  stage.inputs = {input};
  stage.dtypes.assign(input.dtypes().size(), kVariant);
  stage.shapes.assign(input.dtypes().size(), PartialShape({}));
  stage.cardinality = n;
  if (n >= 0) {
    stage.cardinality = options.drop_remainder ? (n < reach ? 0 : (n - reach) / options.shift + 1)
                                               : (n + options.shift - 1) / options.shift;
  }
  stage.where = where;
  stage.add = [size, options](StagePlace& place) {
    return AddTypedOp(
        place, "WindowDataset",
        {{size}, {options.shift}, {options.stride}, {Tensor::Scalar(options.drop_remainder)}});
  };
  stage.remake = [size, options, where](const std::vector<Dataset>& inputs) {
    return WindowsOf(inputs[0], size, options, where);
  };
  return NewDataset(std::move(stage));
}

// Each window of elements as `input`'s as one batch.
Dataset Stacked(const Dataset& windows, const Dataset& input, int64_t size,
                const WindowOptions& options, Where where) {
  const auto batch = [size, dtypes = input.dtypes(), shapes = input.shapes(), where](
                         const Scope&, std::span<const Output> window) {
    std::vector<Dataset> parts;
    for (std::size_t i = 0; i < window.size(); ++i) {
      parts.push_back(
          FromVariant(window[i], {dtypes[i]}, {shapes[i]}, where).Batch(size, {}, where));
    }
    return parts.size() == 1 ? parts[0] : Dataset::Zip(parts, where);
  };
  const Dataset flat = windows.FlatMap(batch, where);
  if (!flat.status().ok()) return flat;
  DatasetStage stage = *flat.stage();
  stage.cardinality = windows.cardinality();
  for (PartialShape& shape : stage.shapes) {
    if (options.drop_remainder && shape.rank() > 0) shape.SetDim(0, size);
  }
  stage.remake = [input, size, options, where](const std::vector<Dataset>& inputs) {
    return Stacked(inputs[0], input, size, options, where);
  };
  return NewDataset(std::move(stage));
}

}  // namespace

Dataset Dataset::Batch(int64_t size, const BatchOptions& options, Here where) const {
  if (const Status ok = CheckSize("batch", size); !ok.ok()) return FailedDataset(*this, ok, where);
  DatasetStage stage = BatchStage(*this, "BatchDatasetV2", StrCat("Batch(", size, ")"), size,
                                  options.drop_remainder, shapes(), where);
  stage.add = [size, options](StagePlace& place) {
    return AddTypedOp(place, "BatchDatasetV2", {{size}, {Tensor::Scalar(options.drop_remainder)}});
  };
  stage.remake = [size, options, where](const std::vector<Dataset>& inputs) {
    return inputs[0].Batch(size, options, where);
  };
  return NewDataset(std::move(stage));
}

Dataset Dataset::PaddedBatch(int64_t size, const PaddedBatchOptions& options, Here where) const {
  if (!status().ok()) return *this;
  if (const Status ok = CheckSize("batch", size); !ok.ok()) return FailedDataset(*this, ok, where);
  const StatusOr<std::vector<PartialShape>> padded = PaddedShapes(*this, options);
  if (!padded.ok()) return FailedDataset(*this, padded.status(), where);
  const StatusOr<std::vector<Input>> values = PaddingValues(*this, options);
  if (!values.ok()) return FailedDataset(*this, values.status(), where);
  DatasetStage stage = BatchStage(*this, "PaddedBatchDatasetV2", StrCat("PaddedBatch(", size, ")"),
                                  size, options.drop_remainder, *padded, where);
  stage.add = [size, drop = options.drop_remainder, padded = *padded,
               values = *values](StagePlace& place) {
    std::vector<Input> sizes;
    for (const PartialShape& shape : padded) {
      sizes.push_back(Tensor::FromValues<int64_t>(shape.dims(), Shape({shape.rank()})));
    }
    return AddStageOp(
        place, "PaddedBatchDatasetV2",
        {{place.inputs[0]}, {size}, sizes, values, {Tensor::Scalar(drop)}},
        {{"Toutput_types", place.stage.dtypes}, {"output_shapes", place.stage.shapes}});
  };
  stage.remake = [size, options, where](const std::vector<Dataset>& inputs) {
    return inputs[0].PaddedBatch(size, options, where);
  };
  return NewDataset(std::move(stage));
}

Dataset Dataset::Unbatch(Here where) const {
  DatasetStage stage;
  stage.op = "UnbatchDataset";
  stage.text = "Unbatch";
  stage.inputs = {*this};
  stage.dtypes = dtypes();
  stage.where = where;
  int64_t rows = -1;
  for (std::size_t i = 0; i < shapes().size(); ++i) {
    const PartialShape& shape = shapes()[i];
    if (shape.rank() == 0) {
      return FailedDataset(*this,
                           errors::InvalidArgument("component ", i, " is a scalar, which has no ",
                                                   "rows that Unbatch could give"),
                           where);
    }
    stage.shapes.push_back(shape.has_rank() ? PartialShape(shape.dims().subspan(1)) : shape);
    if (shape.has_rank() && shape.dim(0) >= 0) rows = shape.dim(0);
  }
  const int64_t n = cardinality();
  stage.cardinality = n < 0 || rows < 0 ? (n == kInfinite ? kInfinite : kUnknown) : n * rows;
  stage.add = [](StagePlace& place) { return AddTypedOp(place, "UnbatchDataset", {}); };
  stage.remake = [where](const std::vector<Dataset>& inputs) { return inputs[0].Unbatch(where); };
  return NewDataset(std::move(stage));
}

Dataset Dataset::Window(int64_t size, const WindowOptions& options, Here where) const {
  if (!status().ok()) return *this;
  if (const Status ok = CheckSize("window", size); !ok.ok()) return FailedDataset(*this, ok, where);
  WindowOptions chosen = options;
  if (chosen.shift == 0) chosen.shift = size;
  if (chosen.shift < 0 || chosen.stride < 1) {
    return FailedDataset(
        *this,
        errors::InvalidArgument("windows shifted by ", chosen.shift, " with stride ", chosen.stride,
                                ": both must be at least 1"),
        where);
  }
  return Stacked(WindowsOf(*this, size, chosen, where), *this, size, chosen, where);
}

}  // namespace millrace
