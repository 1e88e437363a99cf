// SPDX-License-Identifier: Apache-2.0
#include "io/tensor_slice.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {

TensorSlice TensorSlice::FromProto(const pb::TensorSliceProto& proto) {
  TensorSlice slice;
  for (const auto& extent : proto.extent()) {
    slice.extents.push_back(
        {extent.start(),
         extent.has_length_case() == pb::TensorSliceProto::Extent::kLength ? extent.length() : -1});
  }
  return slice;
}

void TensorSlice::ToProto(pb::TensorSliceProto* proto) const {
  for (const Extent& extent : extents) {
    auto* out = proto->add_extent();
    if (extent.length < 0) continue;
    out->set_start(extent.start);
    out->set_length(extent.length);
  }
}

StatusOr<TensorSlice> TensorSlice::ResolvedIn(const Shape& shape) const {
  if (static_cast<int>(extents.size()) != shape.rank()) {
    return errors::InvalidArgument("Mismatching ranks: shape = ", shape.DebugString(),
                                   ", slice = ", DebugString());
  }
  TensorSlice resolved = *this;
  for (int i = 0; i < shape.rank(); ++i) {
    Extent& e = resolved.extents[i];
    if (e.length < 0) {
      e = {0, shape.dim(i)};
    } else if (e.start < 0 || e.start > shape.dim(i) || e.length > shape.dim(i) - e.start) {
      return errors::Internal("Extent in dimension ", i,
                              " out of bounds: shape = ", shape.DebugString(),
                              ", slice = ", DebugString());
    }
  }
  return resolved;
}

StatusOr<Shape> TensorSlice::ShapeIn(const Shape& shape) const {
  MR_ASSIGN_OR_RETURN(const TensorSlice resolved, ResolvedIn(shape));
  Shape part;
  for (const Extent& extent : resolved.extents) part.AddDim(extent.length);
  return part;
}

bool TensorSlice::IsWhole(const Shape& shape) const {
  const StatusOr<Shape> part = ShapeIn(shape);
  return part.ok() && *part == shape;
}

std::string TensorSlice::DebugString() const {
  std::string text;
  for (const Extent& e : extents) {
    if (!text.empty()) text += ':';
    if (e.length < 0) {
      text += '-';
    } else {
      StrAppend(&text, e.start, ",", e.length);
    }
  }
  return text;
}

Status ParseShapeAndSlice(std::string_view text, Shape* shape, TensorSlice* slice) {
  const auto bad = [&](std::string_view why) {
    return errors::InvalidArgument("Could not parse shape_and_slice '", text, "': ", why);
  };
  const std::vector<std::string_view> words = StrSplit(text, ' ');
  if (words.size() < 2) return bad("expected at least one dimension and a slice");
  std::vector<int64_t> dims;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    int64_t dim = 0;
    if (!ParseInt64(words[i], &dim) || dim < 0) return bad("a dimension is not a number");
    dims.push_back(dim);
  }
  MR_ASSIGN_OR_RETURN(*shape, MakeShape(dims));
  slice->extents.clear();
  for (const std::string_view piece : StrSplit(words.back(), ':')) {
    TensorSlice::Extent extent;
    if (piece != "-") {
      const std::size_t comma = piece.find(',');
      if (comma == std::string_view::npos || !ParseInt64(piece.substr(0, comma), &extent.start) ||
          !ParseInt64(piece.substr(comma + 1), &extent.length) || extent.start < 0 ||
          extent.length <= 0) {
        return bad("expected a pair of numbers or '-' for each dimension of the slice");
      }
    }
    slice->extents.push_back(extent);
  }
  if (slice->extents.size() != dims.size()) return bad("shape and slice differ in rank");
  // That the slice lies inside is for its user to find.
  return OkStatus();
}

// --- OrderedCode: encodings whose bytes sort as the values do -------------------------------
namespace {

void AppendUnsigned(uint64_t value, std::string* out) {
  const int bytes = (64 - std::countl_zero(value) + 7) / 8;
  out->push_back(static_cast<char>(bytes));
  for (int i = bytes; i-- > 0;) out->push_back(static_cast<char>(value >> (8 * i)));
}

void AppendString(std::string_view text, std::string* out) {
  for (const char c : text) {
    out->push_back(c);
    if (c == '\0') out->push_back('\xff');
    if (c == '\xff') out->push_back('\0');
  }
  out->append(std::string_view("\0\1", 2));
}

// n bytes of two's complement whose upper n + 1 bits say the sign and the length.
void AppendSigned(int64_t value, std::string* out) {
  int n = 1;
  while (n < 10 && 7 * n - 1 < 63 &&
         (value < -(int64_t{1} << (7 * n - 1)) || value >= (int64_t{1} << (7 * n - 1)))) {
    ++n;
  }
  unsigned char bytes[10];
  for (int i = 0; i < n; ++i) {
    const int shift = 8 * (n - 1 - i);
    bytes[i] = static_cast<unsigned char>(shift >= 64 ? (value < 0 ? 0xff : 0) : (value >> shift));
  }
  bytes[0] ^= static_cast<unsigned char>(0xff << std::max(0, 8 - n));
  if (n > 8) bytes[1] ^= static_cast<unsigned char>(0xff << (16 - n));
  out->append(reinterpret_cast<const char*>(bytes), n);
}

}  // namespace

std::string EncodeSliceKey(std::string_view name, const TensorSlice& slice) {
  std::string key;
  AppendUnsigned(0, &key);
  AppendString(name, &key);
  AppendUnsigned(slice.extents.size(), &key);
  for (const TensorSlice::Extent& e : slice.extents) {
    AppendSigned(e.start, &key);
    AppendSigned(e.length, &key);
  }
  return key;
}

namespace {

struct Box {
  std::vector<int64_t> start, size;
};

void CopyRow(const Tensor& source, int64_t from, Tensor* target, int64_t to, int64_t n) {
  if (source.dtype() == kString) {
    std::copy_n(source.data<std::string>() + from, n, target->data<std::string>() + to);
    return;
  }
  const std::size_t size = DataTypeSize(source.dtype());
  std::memcpy(static_cast<char*>(target->raw_data()) + to * size,
              static_cast<const char*>(source.raw_data()) + from * size, n * size);
}

}  // namespace

int64_t CopyIntersection(const TensorSlice& from, const Tensor& source, const TensorSlice& to,
                         Tensor* target) {
  const int rank = static_cast<int>(from.extents.size());
  Box box;
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) {
    const TensorSlice::Extent &a = from.extents[i], &b = to.extents[i];
    const int64_t start = std::max(a.start, b.start);
    const int64_t end = std::min(a.start + a.length, b.start + b.length);
    if (end <= start) return 0;
    box.start.push_back(start);
    box.size.push_back(end - start);
    count *= end - start;
  }
  const int64_t row = rank == 0 ? 1 : box.size[rank - 1];
  // Rows along the last axis, in the order of an odometer over the others.
  std::vector<int64_t> at(rank, 0);
  for (int64_t done = 0; done < count; done += row) {
    int64_t in = 0, out = 0;
    for (int i = 0; i < rank; ++i) {
      const int64_t x = box.start[i] + at[i];
      in = in * from.extents[i].length + (x - from.extents[i].start);
      out = out * to.extents[i].length + (x - to.extents[i].start);
    }
    CopyRow(source, in, target, out, row);
    for (int i = rank - 2; i >= 0; --i) {
      if (++at[i] < box.size[i]) break;
      at[i] = 0;
    }
  }
  return count;
}

}  // namespace millrace
