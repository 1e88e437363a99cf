// SPDX-License-Identifier: Apache-2.0
// Format of npy files: numpy.org, "NumPy Enhancement Proposal 1".
#include <algorithm>
#include <cstring>
#include <optional>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "data/pipeline/array_bytes.h"

namespace millrace {
namespace {

// The parts of a number that have a byte order of their own.
std::size_t WordSize(DataType dtype) {
  return IsComplex(dtype) ? DataTypeSize(dtype) / 2 : DataTypeSize(dtype);
}

void SwapBytes(std::size_t word, char* data, std::size_t size) {
  for (std::size_t at = 0; at + word <= size; at += word) std::reverse(data + at, data + at + word);
}

// Moves elements of `size` bytes from column-major to row-major order.
void Transpose(const Shape& shape, std::size_t size, const char* from, char* to) {
  const int rank = shape.rank();
  Dims at(rank, 0), step(rank, 1);  // steps of `to`
  for (int i = rank - 2; i >= 0; --i) step[i] = step[i + 1] * shape.dim(i + 1);
  for (int64_t k = 0; k < shape.num_elements(); ++k) {
    int64_t index = 0;
    for (int i = 0; i < rank; ++i) index += at[i] * step[i];
    std::memcpy(to + static_cast<std::size_t>(index) * size, from + k * size, size);
    for (int i = 0; i < rank && ++at[i] == shape.dim(i); ++i) at[i] = 0;
  }
}

// ---- npy
// -----------------------------------------------------------------------------------------

// What the header, a Python dictionary, says.
struct NpyHeader {
  std::string type;  // "<f4"
  bool column_major = false;
  Dims shape;
};

// The text behind 'key': in the dictionary.
StatusOr<std::string_view> ValueOf(std::string_view header, std::string_view key,
                                   std::string_view name) {
  const std::size_t at = header.find(StrCat("'", key, "'"));
  const std::size_t colon = at == std::string_view::npos ? at : header.find(':', at);
  if (colon == std::string_view::npos) {
    return errors::DataLoss(name, " has no '", key, "' in its header: ", header);
  }
  std::string_view rest = header.substr(colon + 1);
  while (!rest.empty() && rest[0] == ' ') rest.remove_prefix(1);
  return rest;
}

StatusOr<NpyHeader> ParseHeader(std::string_view text, std::string_view name) {
  NpyHeader header;
  MR_ASSIGN_OR_RETURN(const std::string_view type, ValueOf(text, "descr", name));
  const std::size_t end = type.find('\'', 1);
  if (type.empty() || type[0] != '\'' || end == std::string_view::npos) {
    return errors::Unimplemented(name, " has elements of several fields, which no tensor has");
  }
  header.type = std::string(type.substr(1, end - 1));
  MR_ASSIGN_OR_RETURN(const std::string_view order, ValueOf(text, "fortran_order", name));
  header.column_major = order.starts_with("True");
  MR_ASSIGN_OR_RETURN(std::string_view sizes, ValueOf(text, "shape", name));
  const std::size_t close = sizes.find(')');
  if (!sizes.starts_with("(") || close == std::string_view::npos) {
    return errors::DataLoss(name, " has no shape in its header: ", text);
  }
  sizes = sizes.substr(1, close - 1);
  while (!sizes.empty()) {
    const std::size_t comma = std::min(sizes.find(','), sizes.size());
    std::string_view size = sizes.substr(0, comma);
    sizes.remove_prefix(std::min(comma + 1, sizes.size()));
    while (!size.empty() && size.front() == ' ') size.remove_prefix(1);
    if (size.empty()) continue;
    int64_t value = 0;
    if (!ParseInt64(size, &value) || value < 0) {
      return errors::DataLoss(name, " has a size in its header that is no number: ", size);
    }
    header.shape.push_back(value);
  }
  return header;
}

std::optional<DataType> NumberType(char kind, std::size_t size) {
  const auto one_of = [size](std::initializer_list<DataType> types) -> std::optional<DataType> {
    for (const DataType dtype : types) {
      if (DataTypeSize(dtype) == size) return dtype;
    }
    return std::nullopt;
  };
  switch (kind) {
    case 'f':
      return one_of({kHalf, kFloat, kDouble});
    case 'i':
      return one_of({DataType::kInt8, DataType::kInt16, kInt32, kInt64});
    case 'u':
      return one_of({kUint8, kUint16, kUint32, kUint64});
    case 'c':
      return one_of({kComplex64, kComplex128});
    case 'b':
      return one_of({kBool});
    default:
      return std::nullopt;
  }
}

void AppendUtf8(uint32_t c, std::string* text) {
  if (c < 0x80) {
    text->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    text->push_back(static_cast<char>(0xc0 | (c >> 6)));
    text->push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else if (c < 0x10000) {
    text->push_back(static_cast<char>(0xe0 | (c >> 12)));
    text->push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3f)));
    text->push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else {
    text->push_back(static_cast<char>(0xf0 | ((c >> 18) & 7)));
    text->push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3f)));
    text->push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3f)));
    text->push_back(static_cast<char>(0x80 | (c & 0x3f)));
  }
}

// Elements of `length` bytes ('S') or four-byte characters ('U').
StatusOr<Tensor> StringsFromBytes(const NpyHeader& header, std::size_t length, const Shape& shape,
                                  std::string_view bytes, std::string_view name) {
  const bool wide = header.type[1] == 'U';
  const std::size_t size = wide ? 4 * length : length;
  if (header.column_major && shape.rank() > 1) {
    return errors::Unimplemented(name, " has strings in Fortran order");
  }
  const auto count = static_cast<std::size_t>(shape.num_elements());
  if (size == 0 ? !bytes.empty() : bytes.size() / size != count || bytes.size() % size != 0) {
    return errors::DataLoss(name, " has ", bytes.size(), " bytes, not ", count, " times ", size);
  }
  MR_ASSIGN_OR_RETURN(Tensor strings, Tensor::Allocate(kString, shape));
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view raw = bytes.substr(i * size, size);
    std::string& text = strings.data<std::string>()[i];
    if (!wide) {
      text = std::string(raw.substr(0, raw.find_last_not_of('\0') + 1));
      continue;
    }
    for (std::size_t at = 0; at < size; at += 4) {
      uint32_t c = 0;
      for (std::size_t b = 0; b < 4; ++b) {
        const std::size_t byte = header.type[0] == '>' ? b : 3 - b;
        c = (c << 8) | static_cast<uint8_t>(raw[at + byte]);
      }
      if (c == 0) break;
      AppendUtf8(c, &text);
    }
  }
  return strings;
}

}  // namespace

StatusOr<Tensor> TensorFromBytes(DataType dtype, const Shape& shape, std::string_view bytes,
                                 bool big_endian, bool column_major, std::string_view name) {
  const std::size_t size = DataTypeSize(dtype);
  if (!shape.is_valid() || bytes.size() / size != static_cast<std::size_t>(shape.num_elements()) ||
      bytes.size() % size != 0) {
    return errors::DataLoss(name, " is damaged: its header promises ", shape.DebugString(), " of ",
                            DataTypeName(dtype), ", but ", bytes.size(), " bytes follow");
  }
  MR_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(dtype, shape));
  if (bytes.empty()) return tensor;
  char* const data = static_cast<char*>(tensor.raw_data());
  if (column_major && shape.rank() > 1) {
    Transpose(shape, size, bytes.data(), data);
  } else {
    std::memcpy(data, bytes.data(), bytes.size());
  }
  if (big_endian && WordSize(dtype) > 1) SwapBytes(WordSize(dtype), data, bytes.size());
  return tensor;
}

StatusOr<Tensor> ParseNpy(std::string_view bytes, std::string_view name) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  if (!bytes.starts_with(kMagic) || bytes.size() < 12) {
    return errors::DataLoss(name, " is not an npy file: it does not begin as one");
  }
  const std::size_t width = bytes[6] == 1 ? 2 : 4;
  std::size_t length = 0;
  for (std::size_t i = 0; i < width; ++i) {
    length |= static_cast<std::size_t>(static_cast<uint8_t>(bytes[8 + i])) << (8 * i);
  }
  const std::size_t start = 8 + width;
  if (length > bytes.size() - start) {
    return errors::DataLoss(name, " is truncated within its header");
  }
  MR_ASSIGN_OR_RETURN(const NpyHeader header, ParseHeader(bytes.substr(start, length), name));
  const StatusOr<Shape> shape = MakeShape(header.shape);
  if (!shape.ok()) return errors::DataLoss(name, ": ", Message(shape.status()));
  int64_t size = 0;
  if (header.type.size() < 3 || !ParseInt64(std::string_view(header.type).substr(2), &size) ||
      size < 0 || size > (int64_t{1} << 30)) {
    return errors::Unimplemented(name, " has elements of type '", header.type,
                                 "', which no tensor has");
  }
  const std::string_view content = bytes.substr(start + length);
  if (header.type[1] == 'S' || header.type[1] == 'U') {
    return StringsFromBytes(header, static_cast<std::size_t>(size), *shape, content, name);
  }
  const auto dtype = NumberType(header.type[1], static_cast<std::size_t>(size));
  if (!dtype) {
    return errors::Unimplemented(name, " has elements of type '", header.type,
                                 "', which no tensor has");
  }
  return TensorFromBytes(*dtype, *shape, content, header.type[0] == '>', header.column_major, name);
}

}  // namespace millrace
