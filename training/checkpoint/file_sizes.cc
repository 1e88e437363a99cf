// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/file_sizes.h"

#include <algorithm>
#include <string>

#include "base/log.h"
#include "base/strings.h"
#include "io/tensor_slice.h"
#include "millrace/ops.h"

namespace millrace {
namespace {

struct Piece {
  TensorSlice slice;  // in numbers
  int64_t bytes = 0;
};

int64_t ElementSize(const SaveItem& item) {
  const DataType type = BaseType(item.value.dtype());
  return type == kString ? 0 : static_cast<int64_t>(DataTypeSize(type));
}

int64_t PartsOf(int64_t length, int64_t rows) { return (length + rows - 1) / rows; }

// Along which axis, and how many rows of it to a part: the fewest parts that are small enough, else
// single rows of the longest axis.
std::size_t AxisToCut(const Piece& piece, int64_t max_bytes, int64_t* rows) {
  std::size_t best = piece.slice.extents.size(), longest = 0;
  int64_t fewest = 0;
  for (std::size_t axis = 0; axis < piece.slice.extents.size(); ++axis) {
    const int64_t length = piece.slice.extents[axis].length;
    if (length > piece.slice.extents[longest].length) longest = axis;
    const int64_t fit = max_bytes / (piece.bytes / length);
    if (fit < 1 || length == 1) continue;
    const int64_t parts = PartsOf(length, fit);
    if (best < piece.slice.extents.size() && parts >= fewest) continue;
    best = axis;
    fewest = parts;
    *rows = fit;
  }
  if (best < piece.slice.extents.size()) return best;
  *rows = 1;
  return longest;
}

void Cut(const Piece& piece, int64_t max_bytes, std::vector<Piece>* pieces) {
  const bool can_be_cut = std::any_of(piece.slice.extents.begin(), piece.slice.extents.end(),
                                      [](const auto& extent) { return extent.length > 1; });
  if (piece.bytes <= max_bytes || !can_be_cut) {
    pieces->push_back(piece);
    return;
  }
  int64_t rows = 1;
  const std::size_t axis = AxisToCut(piece, max_bytes, &rows);
  const TensorSlice::Extent whole = piece.slice.extents[axis];
  for (int64_t start = 0; start < whole.length; start += rows) {
    Piece part = piece;
    const int64_t length = std::min(rows, whole.length - start);
    part.slice.extents[axis] = {whole.start + start, length};
    part.bytes = piece.bytes / whole.length * length;
    Cut(part, max_bytes, pieces);
  }
}

// How savers name a slice of an item of this shape, which may be a slice itself.
std::string SliceOf(const SaveItem& item, const Shape& shape, TensorSlice slice) {
  Shape whole = shape;
  TensorSlice outer;
  if (!item.slice.empty() && ParseShapeAndSlice(item.slice, &whole, &outer).ok()) {
    for (std::size_t axis = 0; axis < slice.extents.size(); ++axis) {
      slice.extents[axis].start += outer.extents[axis].start;
    }
  }
  return StrCat(StrJoin(whole.dims(), " "), " ", slice.DebugString());
}

SaveItem PartOf(const Scope& scope, const SaveItem& item, const Shape& shape,
                const TensorSlice& slice) {
  std::vector<int64_t> begin, size;
  for (const TensorSlice::Extent& extent : slice.extents) {
    begin.push_back(extent.start);
    size.push_back(extent.length);
  }
  const Shape rank({static_cast<int64_t>(begin.size())});
  SaveItem part = item;
  part.shape = PartialShape(Shape(size));
  part.slice = SliceOf(item, shape, slice);
  part.value =
      ops::Slice(scope.WithDevice(item.device), item.value,
                 Tensor::FromValues<int64_t>(begin, rank), Tensor::FromValues<int64_t>(size, rank));
  return part;
}

// Fills one file after the other.
class Files {
 public:
  explicit Files(int64_t max_bytes) : max_bytes_(max_bytes) {}

  void Add(SaveItem item, int64_t bytes) {
    if (bytes > max_bytes_) {
      MR_LOG(kWarning, item.key, " has ", bytes,
             " bytes and cannot be cut: its file is larger than ", max_bytes_);
    }
    if (files_.empty() || (bytes > 0 && room_ < bytes && !files_.back().empty())) {
      files_.emplace_back();
      room_ = max_bytes_;
    }
    files_.back().push_back(std::move(item));
    room_ -= bytes;
  }
  std::vector<std::vector<SaveItem>> Take() { return std::move(files_); }

 private:
  const int64_t max_bytes_;
  int64_t room_ = 0;  // in the last one
  std::vector<std::vector<SaveItem>> files_;
};

}  // namespace

std::vector<std::vector<SaveItem>> SplitBySize(const Scope& scope, std::span<const SaveItem> items,
                                               int64_t max_bytes) {
  Files files(max_bytes);
  for (const SaveItem& item : items) {
    const Shape shape = item.shape.AsShape().value_or(Shape());
    Piece whole{{}, shape.num_elements() * ElementSize(item)};
    for (const int64_t dim : shape.dims()) whole.slice.extents.push_back({0, dim});
    std::vector<Piece> pieces;
    Cut(whole, max_bytes, &pieces);
    if (pieces.size() == 1) {
      files.Add(item, whole.bytes);
      continue;
    }
    for (const Piece& piece : pieces) {
      files.Add(PartOf(scope, item, shape, piece.slice), piece.bytes);
    }
  }
  return files.Take();
}

}  // namespace millrace
