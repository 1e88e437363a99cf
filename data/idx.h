// SPDX-License-Identifier: Apache-2.0
// The idx format of the MNIST files: big-endian magic and sizes, then bytes.
#ifndef DATA_IDX_H_
#define DATA_IDX_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/status.h"

namespace millrace {

struct IdxArray {
  std::vector<int64_t> dims;
  std::vector<uint8_t> values;
};

// Parses unsigned bytes of `rank` dimensions. DataLoss, naming `name`, if magic, sizes and
// length do not agree.
StatusOr<IdxArray> ParseIdx(std::string_view bytes, int rank, std::string_view name);

// The content of `path`, or of `path`.gz inflated. NotFound if neither exists; DataLoss if the
// archive is damaged; ResourceExhausted beyond `max_bytes`.
StatusOr<std::string> ReadMaybeGzipped(const std::string& path, std::size_t max_bytes);

}  // namespace millrace

#endif  // DATA_IDX_H_
