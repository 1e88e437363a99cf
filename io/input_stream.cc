// SPDX-License-Identifier: Apache-2.0
#include "io/input_stream.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/crc32c.h"

namespace millrace {
namespace {

constexpr std::size_t kMaxLine = std::size_t{1} << 30;
// What is read of a record before its data is known to be there.
constexpr std::size_t kStep = 16 << 20;

class FileStream : public InputStream {
 public:
  explicit FileStream(std::unique_ptr<RandomAccessFile> file) : file_(std::move(file)) {}
  StatusOr<std::size_t> Read(std::size_t n, char* out) override {
    MR_ASSIGN_OR_RETURN(const std::size_t got, file_->Read(offset_, n, out));
    offset_ += got;
    return got;
  }

 private:
  const std::unique_ptr<RandomAccessFile> file_;
  uint64_t offset_ = 0;
};

class MemoryStream : public InputStream {
 public:
  explicit MemoryStream(std::string_view rest) : rest_(rest) {}
  StatusOr<std::size_t> Read(std::size_t n, char* out) override {
    n = std::min(n, rest_.size());
    std::copy_n(rest_.data(), n, out);
    rest_.remove_prefix(n);
    return n;
  }

 private:
  std::string_view rest_;
};

// Unpacks zlib and gzip; a gzip file may have several members.
class InflateStream : public InputStream {
 public:
  InflateStream(std::unique_ptr<InputStream> packed, std::string path, bool gzip,
                std::size_t buffer_bytes)
      : packed_(std::move(packed)), path_(std::move(path)), gzip_(gzip), in_(buffer_bytes, '\0') {
    ok_ = inflateInit2(&z_, gzip ? MAX_WBITS + 16 : MAX_WBITS) == Z_OK;
  }
  ~InflateStream() override {
    if (ok_) inflateEnd(&z_);
  }

  StatusOr<std::size_t> Read(std::size_t n, char* out) override {
    if (!ok_) return errors::ResourceExhausted("cannot set up unpacking of ", path_);
    std::size_t got = 0;
    while (got < n && !ended_) {
      if (z_.avail_in == 0) {
        MR_ASSIGN_OR_RETURN(const std::size_t more, packed_->Read(in_.size(), in_.data()));
        z_.next_in = reinterpret_cast<Bytef*>(in_.data());
        z_.avail_in = static_cast<uInt>(more);
        packed_bytes_ += more;
        if (more == 0) {
          ended_ = true;
          if (inside_) {
            return errors::DataLoss("packed data ends too early in ", path_, ": at ", packed_bytes_,
                                    " more of it was expected");
          }
          break;
        }
      }
      MR_RETURN_IF_ERROR(Inflate(n, out, &got));
    }
    return got;
  }

 private:
  Status Inflate(std::size_t n, char* out, std::size_t* got) {
    const auto room = static_cast<uInt>(std::min<std::size_t>(n - *got, 1 << 30));
    z_.next_out = reinterpret_cast<Bytef*>(out + *got);
    z_.avail_out = room;
    inside_ = true;
    const int code = inflate(&z_, Z_NO_FLUSH);
    *got += room - z_.avail_out;
    if (code == Z_STREAM_END) {
      inside_ = false;
      if (gzip_) {
        inflateReset(&z_);
      } else {
        ended_ = true;
      }
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return errors::DataLoss("inflate() failed with error ", code, ": ",
                              z_.msg == nullptr ? "damaged data" : z_.msg, " at ",
                              packed_bytes_ - z_.avail_in, " in ", path_, "; expected ",
                              gzip_ ? "GZIP" : "ZLIB");
    }
    return OkStatus();
  }

  const std::unique_ptr<InputStream> packed_;
  const std::string path_;
  const bool gzip_;
  bool ok_ = false, ended_ = false, inside_ = false;
  std::string in_;
  uint64_t packed_bytes_ = 0;  // packed bytes read so far
  z_stream z_{};
};

uint64_t LittleEndian(const char* data, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(data[i]);
  return value;
}

}  // namespace

Status CheckCompression(std::string_view compression) {
  if (compression.empty() || compression == "ZLIB" || compression == "GZIP") return OkStatus();
  return errors::InvalidArgument("Unsupported compression_type: ", compression, ".");
}

StatusOr<std::unique_ptr<InputStream>> OpenInputStream(FileSystem* files, const std::string& path,
                                                       std::string_view compression,
                                                       std::size_t buffer_bytes) {
  MR_RETURN_IF_ERROR(CheckCompression(compression));
  MR_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, files->NewRandomAccessFile(path));
  std::unique_ptr<InputStream> stream = std::make_unique<FileStream>(std::move(file));
  if (!compression.empty()) {
    stream = std::make_unique<InflateStream>(std::move(stream), path, compression == "GZIP",
                                             std::max<std::size_t>(buffer_bytes, 4096));
  }
  return stream;
}

StatusOr<std::string> Unpack(std::string_view packed, std::string_view compression,
                             std::size_t most) {
  MR_RETURN_IF_ERROR(CheckCompression(compression));
  if (compression.empty()) return std::string(packed);
  InflateStream stream(std::make_unique<MemoryStream>(packed), "the text", compression == "GZIP",
                       64 << 10);
  std::string all, part(64 << 10, '\0');
  while (true) {
    MR_ASSIGN_OR_RETURN(const std::size_t got, stream.Read(part.size(), part.data()));
    if (got == 0) return all;
    if (got > most - all.size()) {
      return errors::OutOfRange("more than ", most, " bytes are packed in ", packed.size());
    }
    all.append(part, 0, got);
  }
}

BufferedInput::BufferedInput(std::unique_ptr<InputStream> stream, std::size_t buffer_bytes)
    : stream_(std::move(stream)), buffer_(std::max<std::size_t>(buffer_bytes, 1), '\0') {}

StatusOr<bool> BufferedInput::Fill() {
  begin_ = end_ = 0;
  MR_ASSIGN_OR_RETURN(end_, stream_->Read(buffer_.size(), buffer_.data()));
  return end_ > 0;
}

Status BufferedInput::ReadLine(std::string* line) {
  line->clear();
  bool any = false;
  for (;;) {
    if (begin_ == end_) {
      MR_ASSIGN_OR_RETURN(const bool more, Fill());
      if (!more) return any ? OkStatus() : errors::OutOfRange("end of file");
    }
    any = true;
    const char* from = buffer_.data() + begin_;
    const auto* newline = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
    const std::size_t n = newline == nullptr ? end_ - begin_ : newline - from;
    if (line->size() + n > kMaxLine) {
      return errors::ResourceExhausted("a line of more than ", kMaxLine, " bytes");
    }
    line->append(from, n);
    begin_ += n;
    position_ += n;
    if (newline == nullptr) continue;
    ++begin_;
    ++position_;
    if (line->ends_with('\r')) line->pop_back();
    return OkStatus();
  }
}

Status BufferedInput::ReadUpTo(std::size_t n, std::string* out) {
  out->clear();
  while (out->size() < n) {
    if (begin_ == end_) {
      MR_ASSIGN_OR_RETURN(const bool more, Fill());
      if (!more) return OkStatus();
    }
    const std::size_t part = std::min(n - out->size(), end_ - begin_);
    out->append(buffer_.data() + begin_, part);
    begin_ += part;
    position_ += part;
  }
  return OkStatus();
}

StatusOr<bool> BufferedInput::Skip(std::size_t n) {
  while (n > 0) {
    if (begin_ == end_) {
      MR_ASSIGN_OR_RETURN(const bool more, Fill());
      if (!more) return false;
    }
    const std::size_t part = std::min(n, end_ - begin_);
    begin_ += part;
    position_ += part;
    n -= part;
  }
  return true;
}

Status RecordReader::CheckCrc(std::string_view data, std::string_view stored_bytes,
                              uint64_t at) const {
  const auto stored = static_cast<uint32_t>(LittleEndian(stored_bytes.data(), 4));
  const uint32_t actual = MaskCrc(Crc32c(data));
  if (stored == actual) return OkStatus();
  return errors::DataLoss("corrupted record at ", at, " in ", path_, ": the stored checksum is ",
                          stored, ", that of the data ", actual);
}

Status RecordReader::ReadRecord(std::string* record) {
  const uint64_t at = input_.position();
  std::string header, part;
  MR_RETURN_IF_ERROR(input_.ReadUpTo(12, &header));
  // A header that is cut off ends the file, as it does for TensorFlow.
  if (header.size() < 12) return errors::OutOfRange("eof");
  MR_RETURN_IF_ERROR(CheckCrc({header.data(), 8}, {header.data() + 8, 4}, at));
  const uint64_t length = LittleEndian(header.data(), 8);
  record->clear();
  // The length may be a lie: take no more memory at once than a step.
  while (record->size() < length) {
    const std::size_t want = std::min<uint64_t>(kStep, length - record->size());
    MR_RETURN_IF_ERROR(input_.ReadUpTo(want, &part));
    record->append(part);
    if (part.size() < want) break;
  }
  MR_RETURN_IF_ERROR(input_.ReadUpTo(4, &part));
  if (record->size() < length || part.size() < 4) {
    return errors::DataLoss("truncated record at ", at, " in ", path_, ": ", length,
                            " bytes and a checksum were expected, ", record->size() + part.size(),
                            " bytes are there");
  }
  return CheckCrc(*record, part, at);
}

}  // namespace millrace
