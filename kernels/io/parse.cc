// SPDX-License-Identifier: Apache-2.0
// Text and bytes to numbers: DecodeRaw, DecodeCSV, StringToNumber, Base64, serialised tensors,
// JSON.
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/type_resolver_util.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/message_text.h"
#include "kernels/common/variant_codec.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "proto/example.pb.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

// The whole of `text`, white space at its ends aside, as a number.
template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  const std::string copy(StripWhitespace(text));
  if (copy.empty()) return false;
  char* end = nullptr;
  errno = 0;
  if constexpr (std::is_floating_point_v<T>) {
    // Values out of range become infinities or zeros, as for TensorFlow.
    *value = sizeof(T) == 4 ? static_cast<T>(std::strtof(copy.c_str(), &end))
                            : static_cast<T>(std::strtod(copy.c_str(), &end));
  } else if constexpr (std::is_signed_v<T>) {
    const long long parsed = std::strtoll(copy.c_str(), &end, 10);
    if (errno == ERANGE || parsed < std::numeric_limits<T>::min() ||
        parsed > std::numeric_limits<T>::max()) {
      return false;
    }
    *value = static_cast<T>(parsed);
  } else {
    if (copy[0] == '-') return false;
    const unsigned long long parsed = std::strtoull(copy.c_str(), &end, 10);
    if (errno == ERANGE || parsed > std::numeric_limits<T>::max()) return false;
    *value = static_cast<T>(parsed);
  }
  return end == copy.c_str() + copy.size();
}

using ParsedTypes = TypeList<float, double, int32_t, int64_t, uint32_t, uint64_t>;

class StringToNumberKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    int64_t bad = -1;
    DispatchType(ParsedTypes(), out->dtype(), [&]<typename T>() {
      for (int64_t i = 0; bad < 0 && i < in.num_elements(); ++i) {
        if (!ParseNumber(in.data<std::string>()[i], &out->data<T>()[i])) bad = i;
      }
    });
    if (bad < 0) return OkStatus();
    return errors::InvalidArgument("StringToNumberOp could not correctly convert string: ",
                                   in.data<std::string>()[bad]);
  }
};

// --- Raw bytes --------------------------------------------------------------------------------

void SwapBytes(char* data, std::size_t size, int64_t n) {
  for (int64_t i = 0; i < n; ++i) std::reverse(data + i * size, data + (i + 1) * size);
}

// DecodeRaw and DecodePaddedRaw.
class DecodeRawKernel : public Kernel {
 public:
  explicit DecodeRawKernel(KernelConstruction& c)
      : Kernel(c),
        padded_(c.def().name() == "DecodePaddedRaw"),
        little_(c.attr<bool>("little_endian")),
        dtype_(c.attr<DataType>("out_type")) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    const auto size = static_cast<int64_t>(DataTypeSize(dtype_));
    int64_t length = 0;
    if (padded_) {
      MR_ASSIGN_OR_RETURN(length, IntScalar(ctx.input(1), "fixed_length"));
      if (length <= 0 || length > std::numeric_limits<int32_t>::max()) {
        return errors::InvalidArgument("fixed_length (", length, ") must be greater than zero.");
      }
    } else if (in.num_elements() > 0) {
      length = static_cast<int64_t>(in.data<std::string>()[0].size());
    }
    if (length % size != 0) {
      return errors::InvalidArgument("Input to ", def().name(), " has length ", length,
                                     " that is not a multiple of ", size, ", the size of ",
                                     DataTypeName(dtype_));
    }
    for (int64_t i = 0; !padded_ && i < in.num_elements(); ++i) {
      const std::size_t here = in.data<std::string>()[i].size();
      if (here != static_cast<std::size_t>(length)) {
        return errors::InvalidArgument("DecodeRaw requires input strings to all be the same size, ",
                                       "but element ", i, " has size ", here, " != ", length);
      }
    }
    Dims dims(in.shape().dims().begin(), in.shape().dims().end());
    // TensorFlow cannot tell the length of no strings.
    dims.push_back(in.num_elements() == 0 && !padded_ ? 0 : length / size);
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    for (int64_t i = 0; i < in.num_elements(); ++i) {
      if (length == 0) break;
      const std::string& bytes = in.data<std::string>()[i];
      char* to = static_cast<char*>(out->raw_data()) + i * length;
      const std::size_t n = std::min<std::size_t>(bytes.size(), length);
      std::memcpy(to, bytes.data(), n);
      std::memset(to + n, 0, length - n);
      if (!little_) {
        const std::size_t part = IsComplex(dtype_) ? size / 2 : size;
        SwapBytes(to, part, length / static_cast<int64_t>(part));
      }
      if (dtype_ == kBool) {  // any byte but 0 and 1 in a bool is undefined behaviour
        for (int64_t k = 0; k < length; ++k) to[k] = to[k] != 0;
      }
    }
    return OkStatus();
  }

 private:
  const bool padded_, little_;
  const DataType dtype_;
};

// --- CSV --------------------------------------------------------------------------------------

class DecodeCsvKernel : public Kernel {
 public:
  explicit DecodeCsvKernel(KernelConstruction& c)
      : Kernel(c),
        types_(c.attr<std::vector<DataType>>("OUT_TYPE")),
        quotes_(c.attr<bool>("use_quote_delim")),
        na_(c.attr<std::string>("na_value")),
        columns_(c.attr<std::vector<int64_t>>("select_cols")) {
    const std::string delimiter = c.attr<std::string>("field_delim");
    if (delimiter.size() != 1) {
      c.SetError(errors::InvalidArgument("field_delim should be only 1 char"));
    } else {
      delimiter_ = delimiter[0];
    }
    if (!columns_.empty() && columns_.size() != types_.size()) {
      c.SetError(errors::InvalidArgument("select_cols should match output size"));
    }
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i] < 0 || (i > 0 && columns_[i] <= columns_[i - 1])) {
        c.SetError(errors::InvalidArgument("select_cols should be strictly increasing indices"));
      }
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& records = ctx.input(0);
    const int n = static_cast<int>(types_.size());
    for (int i = 0; i < n; ++i) {
      const Tensor& standard = ctx.input(i + 1);
      if (standard.rank() > 1 || standard.num_elements() > 1) {
        return errors::InvalidArgument("There should only be 1 default per field but field ", i,
                                       " has ", standard.num_elements());
      }
    }
    std::vector<Tensor*> outputs(n);
    for (int i = 0; i < n; ++i) {
      MR_ASSIGN_OR_RETURN(outputs[i], ctx.AllocateOutput(i, records.shape()));
    }
    std::vector<std::string> fields;
    for (int64_t r = 0; r < records.num_elements(); ++r) {
      MR_RETURN_IF_ERROR(Split(records.data<std::string>()[r], &fields));
      if (fields.size() != types_.size()) {
        return errors::InvalidArgument("Expect ", types_.size(), " fields but have ", fields.size(),
                                       " in record ", r);
      }
      for (int i = 0; i < n; ++i) {
        MR_RETURN_IF_ERROR(Store(fields[i], ctx.input(i + 1), i, r, outputs[i]));
      }
    }
    return OkStatus();
  }

 private:
  Status Store(const std::string& field, const Tensor& standard, int column, int64_t record,
               Tensor* out) const {
    if (field.empty() || field == na_) {
      if (standard.num_elements() == 0) {
        return errors::InvalidArgument("Field ", column, " is required but missing in record ",
                                       record, "!");
      }
      CopyRange(standard, 0, out, record, 1);
      return OkStatus();
    }
    if (out->dtype() == kString) {
      out->data<std::string>()[record] = field;
      return OkStatus();
    }
    bool good = false;
    DispatchType(ParsedTypes(), out->dtype(),
                 [&]<typename T>() { good = ParseNumber(field, &out->data<T>()[record]); });
    if (good) return OkStatus();
    return errors::InvalidArgument("Field ", column, " in record ", record, " is not a valid ",
                                   DataTypeName(out->dtype()), ": ", field);
  }

  // The selected fields of a record, by the rules of RFC 4180.
  Status Split(const std::string& record, std::vector<std::string>* fields) const {
    fields->clear();
    std::size_t at = 0, selected = 0;
    int64_t index = 0;
    const auto keep = [&](std::string text) {
      const bool wanted =
          columns_.empty() || (selected < columns_.size() && columns_[selected] == index);
      if (wanted) {
        fields->push_back(std::move(text));
        ++selected;
      }
      ++index;
    };
    if (record.empty()) {
      keep("");
      return OkStatus();
    }
    for (;;) {
      if (at < record.size() && (record[at] == '\n' || record[at] == '\r')) {
        ++at;
        if (at >= record.size()) return OkStatus();
        continue;
      }
      std::string field;
      if (quotes_ && at < record.size() && record[at] == '"') {
        MR_RETURN_IF_ERROR(Quoted(record, &at, &field));
      } else {
        while (at < record.size() && record[at] != delimiter_) {
          const char c = record[at];
          if (c == '\n' || c == '\r' || (quotes_ && c == '"')) {
            // A line's end may close the record.
            const bool end = c != '"' && record.find_first_not_of("\r\n", at) == std::string::npos;
            if (!end) {
              return errors::InvalidArgument("Unquoted fields cannot have quotes/CRLFs inside");
            }
            at = record.size();
            break;
          }
          field += c;
          ++at;
        }
      }
      keep(std::move(field));
      if (at >= record.size()) return OkStatus();
      ++at;  // the delimiter
      if (at == record.size()) {
        keep("");
        return OkStatus();
      }
    }
  }

  Status Quoted(const std::string& record, std::size_t* at, std::string* field) const {
    for (++*at;; ++*at) {
      if (*at >= record.size()) {
        return errors::InvalidArgument("Quoted field has to end with quote followed by delim or ",
                                       "end");
      }
      if (record[*at] != '"') {
        *field += record[*at];
        continue;
      }
      ++*at;
      if (*at < record.size() && record[*at] == '"') {
        *field += '"';
        continue;
      }
      while (*at < record.size() && (record[*at] == '\r' || record[*at] == '\n')) ++*at;
      if (*at >= record.size() || record[*at] == delimiter_) return OkStatus();
      return errors::InvalidArgument("Quote inside a string has to be escaped by another quote");
    }
  }

  const std::vector<DataType> types_;
  const bool quotes_;
  const std::string na_;
  const std::vector<int64_t> columns_;
  char delimiter_ = ',';
};

// --- Base64 (the alphabet for URLs) -------------------------------------------------------------

constexpr std::size_t kMostShown = 96;  // bytes of what cannot be parsed
constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::string EncodeBase64(std::string_view bytes, bool pad) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k) {
      word = word << 8 | (k < n ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k <= n; ++k) text += kAlphabet[word >> (18 - 6 * k) & 63];
    if (pad) text.append(3 - n, '=');
  }
  return text;
}

Status DecodeBase64(std::string_view text, std::string* bytes) {
  while (text.ends_with('=')) text.remove_suffix(1);
  uint32_t word = 0;
  int bits = 0;
  if (text.size() % 4 == 1)
    return errors::InvalidArgument("Base64 string length must not be 1 mod 4");
  for (const char c : text) {
    const std::size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) {
      return errors::InvalidArgument("Invalid character found in base64.");
    }
    word = word << 6 | static_cast<uint32_t>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      *bytes += static_cast<char>(word >> bits & 0xff);
    }
  }
  return OkStatus();
}

class Base64Kernel : public Kernel {
 public:
  explicit Base64Kernel(KernelConstruction& c)
      : Kernel(c),
        encode_(c.def().name() == "EncodeBase64"),
        pad_(c.attrs().GetOr<bool>("pad", false)) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    for (int64_t i = 0; i < in.num_elements(); ++i) {
      const std::string& from = in.data<std::string>()[i];
      std::string& to = out->data<std::string>()[i];
      if (encode_) {
        to = EncodeBase64(from, pad_);
      } else {
        MR_RETURN_IF_ERROR(DecodeBase64(from, &to));
      }
    }
    return OkStatus();
  }

 private:
  const bool encode_, pad_;
};

// --- Messages as JSON ---------------------------------------------------------------------------

class DecodeJsonExampleKernel : public Kernel {
 public:
  explicit DecodeJsonExampleKernel(KernelConstruction& c)
      : Kernel(c),
        resolver_(google::protobuf::util::NewTypeResolverForDescriptorPool(
            kTypes, pb::Example::descriptor()->file()->pool())),
        type_(StrCat(kTypes, "/", pb::Example::descriptor()->full_name())) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    for (int64_t i = 0; i < in.num_elements(); ++i) {
      const auto status = google::protobuf::util::JsonToBinaryString(
          resolver_.get(), type_, in.data<std::string>()[i], &out->data<std::string>()[i]);
      if (!status.ok()) {
        return errors::InvalidArgument(
            "Error while parsing JSON: ",
            std::string(status.message().data(), status.message().size()), " (element ", i, ")");
      }
    }
    return OkStatus();
  }

 private:
  static constexpr char kTypes[] = "type.googleapis.com";

  const std::unique_ptr<google::protobuf::util::TypeResolver> resolver_;
  const std::string type_;
};

// --- Tensors as messages ------------------------------------------------------------------------

class ParseTensorKernel : public Kernel {
 public:
  explicit ParseTensorKernel(KernelConstruction& c)
      : Kernel(c), dtype_(c.attr<DataType>("out_type")) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    if (in.rank() != 0) {
      return errors::InvalidArgument("Expected `serialized` to be a scalar, got shape: ",
                                     in.shape().DebugString());
    }
    pb::TensorProto proto;
    if (!proto.ParseFromString(in.scalar<std::string>())) {
      // The ordinary alphabet, and not all of what may be long.
      std::string text = EncodeBase64(
          std::string_view(in.scalar<std::string>()).substr(0, kMostShown), /*pad=*/true);
      std::replace(text.begin(), text.end(), '-', '+');
      std::replace(text.begin(), text.end(), '_', '/');
      return errors::InvalidArgument("Could not parse `serialized` as TensorProto, base64: ", text);
    }
    if (static_cast<DataType>(proto.dtype()) != dtype_) {
      return errors::InvalidArgument("Type mismatch between parsed tensor (",
                                     DataTypeName(static_cast<DataType>(proto.dtype())),
                                     ") and dtype (", DataTypeName(dtype_), ")");
    }
    MR_ASSIGN_OR_RETURN(const Tensor value, TensorFromProto(proto));
    MR_ASSIGN_OR_RETURN(Tensor decoded, DecodedObjects(value));
    ctx.SetOutput(0, std::move(decoded));
    return OkStatus();
  }

 private:
  const DataType dtype_;
};

class SerializeTensorKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Tensor value, EncodedObjects(ctx.locked_input(0)));
    if (IsMemcpyable(value.dtype())) MR_RETURN_IF_ERROR(CheckMessageBytes(value.num_bytes()));
    pb::TensorProto proto;
    if (value.dtype() == kString) {
      TensorToReadableProto(value, &proto);
    } else {
      TensorToProto(value, &proto);
    }
    MR_ASSIGN_OR_RETURN(std::string text, MessageText(proto));
    ctx.SetOutput(0, Tensor::String(std::move(text)));
    return OkStatus();
  }
};

}  // namespace

void RegisterParseKernels(KernelRegistry& r) {
  RegisterCpu<StringToNumberKernel>(r, "StringToNumber");
  RegisterCpu<DecodeRawKernel>(r, "DecodeRaw");
  RegisterCpu<DecodeRawKernel>(r, "DecodePaddedRaw");
  RegisterCpu<DecodeCsvKernel>(r, "DecodeCSV");
  RegisterCpu<Base64Kernel>(r, "EncodeBase64");
  RegisterCpu<Base64Kernel>(r, "DecodeBase64");
  RegisterCpu<DecodeJsonExampleKernel>(r, "DecodeJSONExample");
  RegisterCpu<ParseTensorKernel>(r, "ParseTensor");
  RegisterCpu<SerializeTensorKernel>(r, "SerializeTensor");
}

}  // namespace millrace
