// SPDX-License-Identifier: Apache-2.0
#include "data/idx.h"

#include <sys/stat.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

uint32_t BigEndian(std::string_view bytes, std::size_t at) {
  uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = (value << 8) | static_cast<uint8_t>(bytes[at + i]);
  }
  return value;
}

bool Exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

StatusOr<IdxArray> ParseIdx(std::string_view bytes, int rank, std::string_view name) {
  const std::size_t header = 4 + 4 * static_cast<std::size_t>(rank);
  if (bytes.size() < header) {
    return errors::DataLoss(name, " is truncated: ", bytes.size(),
                            " bytes are too few for a "
                            "header of ",
                            header);
  }
  const uint32_t magic = BigEndian(bytes, 0), expected = 0x0800u + static_cast<uint32_t>(rank);
  if (magic != expected) {
    return errors::DataLoss(name, " is not an idx file of bytes with ", rank,
                            " dimension(s): its magic number is ", magic, ", expected ", expected);
  }
  IdxArray array;
  uint64_t count = 1;
  for (int i = 0; i < rank; ++i) {
    const uint32_t dim = BigEndian(bytes, 4 + 4 * static_cast<std::size_t>(i));
    array.dims.push_back(dim);
    if (dim != 0 && count > (uint64_t{1} << 40) / dim) {
      return errors::DataLoss(name, " claims an impossible size");
    }
    count *= dim;
  }
  if (bytes.size() - header != count) {
    return errors::DataLoss(
        name, bytes.size() - header < count ? " is truncated: " : " is too long: ",
        "its header promises ", count, " values, but ", bytes.size() - header, " follow");
  }
  array.values.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end());
  return array;
}

StatusOr<std::string> ReadMaybeGzipped(const std::string& path, std::size_t max_bytes) {
  const std::string zipped = path + ".gz";
  const std::string chosen = Exists(path) ? path : zipped;
  if (!Exists(chosen)) {
    return errors::NotFound("neither ", path, " nor ", zipped, " exists");
  }
  // gzread passes plain files through unchanged.
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(chosen.c_str(), "rb"), gzclose);
  if (!file) return errors::NotFound("cannot open ", chosen, ": ", std::strerror(errno));
  std::string content;
  std::vector<char> chunk(1 << 18);
  while (true) {
    const int n = gzread(file.get(), chunk.data(), static_cast<unsigned>(chunk.size()));
    if (n < 0) {
      int code = 0;
      return errors::DataLoss(chosen, " is damaged: ", gzerror(file.get(), &code));
    }
    if (n == 0) break;
    if (content.size() + static_cast<std::size_t>(n) > max_bytes) {
      return errors::ResourceExhausted(chosen, " holds more than ", max_bytes, " bytes");
    }
    content.append(chunk.data(), static_cast<std::size_t>(n));
  }
  int code = 0;
  const char* reason = gzerror(file.get(), &code);
  if (code != Z_OK && code != Z_STREAM_END) {
    return errors::DataLoss(chosen, " is truncated or damaged: ", reason);
  }
  return content;
}

}  // namespace millrace
