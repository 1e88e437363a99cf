// SPDX-License-Identifier: Apache-2.0
#include "training/sharding/part_marks.h"

#include <algorithm>

#include "base/strings.h"
#include "frontend/graph_builder.h"

namespace millrace {
namespace {

constexpr char kName[] = "_save_name", kSlice[] = "_save_slice";

// As names of optimizers' variables have it: "table/part_0" is "table_part_0".
std::string Flat(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

}  // namespace

std::string SliceOf(const Shape& whole, int64_t begin, int64_t rows) {
  std::string slice = StrCat(StrJoin(whole.dims(), " "), " ", begin, ",", rows);
  for (int axis = 1; axis < whole.rank(); ++axis) slice += ":-";
  return slice;
}

void MarkPart(const Variable& part, const PartMark& mark) {
  AttrMap& attrs = part.handle.op().node()->mutable_attrs();
  attrs.Set(kName, mark.whole);
  attrs.Set(kSlice, mark.slice);
}

std::optional<PartMark> MarkOf(const Variable& variable) {
  if (!variable.handle.valid()) return std::nullopt;
  const AttrMap& attrs = variable.handle.op().node()->attrs();
  std::string slice = attrs.GetOr<std::string>(kSlice, "");
  if (slice.empty()) return std::nullopt;
  return PartMark{attrs.GetOr<std::string>(kName, variable.name()), std::move(slice)};
}

void MarkLike(const Variable& part, const Variable& kept) {
  const std::optional<PartMark> mark = MarkOf(part);
  if (!mark || !kept.handle.valid() || kept.shape().DebugString() != part.shape().DebugString()) {
    return;
  }
  const std::string whole = NameOfWhole(kept.name(), part.name(), mark->whole);
  if (!whole.empty()) MarkPart(kept, {whole, mark->slice});
}

std::string NameOfWhole(const std::string& kept, const std::string& part,
                        const std::string& whole) {
  if (kept.starts_with(StrCat(part, "/"))) return whole + kept.substr(part.size());
  const std::size_t leaf = kept.rfind('/') == std::string::npos ? 0 : kept.rfind('/') + 1;
  const std::string flat = Flat(part);
  if (!kept.substr(leaf).starts_with(StrCat(flat, "_"))) return "";
  return StrCat(kept.substr(0, leaf), Flat(whole), kept.substr(leaf + flat.size()));
}

}  // namespace millrace
