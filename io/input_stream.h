// SPDX-License-Identifier: Apache-2.0
// Reading a file from front to back, as it lies or unpacked, by bytes, lines and records.
#ifndef IO_INPUT_STREAM_H_
#define IO_INPUT_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "io/filesystem.h"
#include "millrace/status.h"

namespace millrace {

// Used by one thread at a time.
class InputStream {
 public:
  virtual ~InputStream() = default;
  // Up to `n` bytes; fewer only when the end comes first, 0 from then on.
  virtual StatusOr<std::size_t> Read(std::size_t n, char* out) = 0;
};

// "" (as it lies), "ZLIB" or "GZIP". InvalidArgument for another name.
Status CheckCompression(std::string_view compression);

// The content of a file, unpacked if so asked. NotFound with the path; DataLoss from Read if
// what is packed is damaged or ends too early.
StatusOr<std::unique_ptr<InputStream>> OpenInputStream(FileSystem* files, const std::string& path,
                                                       std::string_view compression,
                                                       std::size_t buffer_bytes = 256 << 10);

// What was packed so: InvalidArgument for other methods, DataLoss if it is damaged or ends too
// early, OutOfRange beyond `most` bytes.
StatusOr<std::string> Unpack(std::string_view packed, std::string_view compression,
                             std::size_t most);

// A stream with a buffer in front, read by lines or by counts. Used by one thread at a time.
class BufferedInput {
 public:
  explicit BufferedInput(std::unique_ptr<InputStream> stream, std::size_t buffer_bytes = 64 << 10);

  // Up to the next '\n', which is taken and not given, nor is a '\r' before it. OutOfRange at
  // the end; a last line without its '\n' counts. ResourceExhausted for a line above 1 GiB.
  Status ReadLine(std::string* line);
  // Exactly `n` bytes, or fewer at the end: *out has what there was.
  Status ReadUpTo(std::size_t n, std::string* out);
  // True if `n` bytes were there.
  StatusOr<bool> Skip(std::size_t n);
  // Bytes given out or skipped so far.
  uint64_t position() const { return position_; }

 private:
  // More bytes into an empty buffer; false at the end.
  StatusOr<bool> Fill();

  const std::unique_ptr<InputStream> stream_;
  std::string buffer_;
  std::size_t begin_ = 0, end_ = 0;
  uint64_t position_ = 0;
};

// TFRecord files: length, its checksum, data, its checksum.
class RecordReader {
 public:
  RecordReader(std::unique_ptr<InputStream> stream, std::string path)
      : input_(std::move(stream), 256 << 10), path_(std::move(path)) {}

  // OutOfRange at the end; DataLoss naming file and offset for a wrong checksum or a record
  // that is cut off.
  Status ReadRecord(std::string* record);
  uint64_t position() const { return input_.position(); }

 private:
  Status CheckCrc(std::string_view data, std::string_view stored_bytes, uint64_t at) const;

  BufferedInput input_;
  const std::string path_;
};

}  // namespace millrace

#endif  // IO_INPUT_STREAM_H_
