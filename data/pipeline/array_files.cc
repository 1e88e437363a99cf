// SPDX-License-Identifier: Apache-2.0
// Format of idx files: the MNIST database.
#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "data/idx.h"
#include "data/pipeline/array_bytes.h"
#include "io/filesystem.h"
#include "millrace/data.h"

namespace millrace {
namespace {

constexpr std::size_t kMaxIdxBytes = std::size_t{1} << 32;

}  // namespace

StatusOr<Tensor> ReadNpy(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string bytes, PosixFileSystem()->ReadFile(path));
  return ParseNpy(bytes, path);
}

StatusOr<std::map<std::string, Tensor>> ReadNpz(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string bytes, PosixFileSystem()->ReadFile(path));
  MR_ASSIGN_OR_RETURN(const auto files, ParseZip(bytes, path));
  std::map<std::string, Tensor> arrays;
  for (const auto& [file, content] : files) {
    constexpr std::string_view kSuffix = ".npy";
    if (!file.ends_with(kSuffix)) continue;
    MR_ASSIGN_OR_RETURN(arrays[file.substr(0, file.size() - kSuffix.size())],
                        ParseNpy(content, StrCat(path, "(", file, ")")));
  }
  return arrays;
}

StatusOr<Tensor> ReadIdx(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string bytes, ReadMaybeGzipped(path, kMaxIdxBytes));
  const auto byte = [&](std::size_t i) { return static_cast<uint8_t>(bytes[i]); };
  static constexpr std::pair<uint8_t, DataType> kTypes[] = {
      {0x08, kUint8}, {0x09, DataType::kInt8}, {0x0b, DataType::kInt16},
      {0x0c, kInt32}, {0x0d, kFloat},          {0x0e, kDouble}};
  if (bytes.size() < 4 || byte(0) != 0 || byte(1) != 0 || bytes.size() < 4 + 4u * byte(3)) {
    return errors::DataLoss(path, " is not an idx file: it does not begin as one");
  }
  const auto* const type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                        [&](const auto& known) { return known.first == byte(2); });
  if (type == std::end(kTypes)) {
    return errors::DataLoss(path, " is not an idx file: its elements have type ", int{byte(2)});
  }
  Dims dims;
  for (std::size_t i = 0; i < byte(3); ++i) {
    const std::size_t at = 4 + 4 * i;
    dims.push_back((int64_t{byte(at)} << 24) | (byte(at + 1) << 16) | (byte(at + 2) << 8) |
                   byte(at + 3));
  }
  const StatusOr<Shape> shape = MakeShape(dims);
  if (!shape.ok()) return errors::DataLoss(path, ": ", Message(shape.status()));
  return TensorFromBytes(type->second, *shape,
                         std::string_view(bytes).substr(4 + 4 * std::size_t{byte(3)}),
                         /*big_endian=*/true, /*column_major=*/false, path);
}

}  // namespace millrace
