// SPDX-License-Identifier: Apache-2.0
// What is in checkpoints: lists, values, checks and comparisons.
#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/millrace/ckpt_command.h"
#include "tools/millrace/offline.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Entry = CheckpointReader::Entry;

Json ShapeJson(const Shape& shape) {
  return Json(std::vector<int64_t>(shape.dims().begin(), shape.dims().end()));
}

Json EntryJson(const Entry& e) {
  return {{"name", e.name},
          {"dtype", DataTypeName(e.dtype)},
          {"shape", ShapeJson(e.shape)},
          {"bytes", e.bytes},
          {"parts", e.parts},
          {"files", e.files}};
}

std::string Pad(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

template <typename T>
void Append(const Tensor& t, std::vector<double>* out) {
  for (const T& v : t.flat<T>()) out->push_back(static_cast<double>(v));
}

template <typename T>
void AppendComplex(const Tensor& t, std::vector<double>* out) {
  for (const auto& v : t.flat<std::complex<T>>()) {
    out->push_back(v.real());
    out->push_back(v.imag());
  }
}

template <typename T>
void AppendHalf(const Tensor& t, std::vector<double>* out) {
  for (const T& v : t.flat<T>()) out->push_back(static_cast<double>(static_cast<float>(v)));
}

struct Summary {
  double least = 0, greatest = 0, mean = 0, norm = 0;
  int64_t not_finite = 0;
};

Summary Summarize(const std::vector<double>& values) {
  Summary s;
  double sum = 0, squares = 0;
  int64_t count = 0;
  for (const double v : values) {
    if (!std::isfinite(v)) {
      ++s.not_finite;
      continue;
    }
    s.least = count == 0 ? v : std::min(s.least, v);
    s.greatest = count == 0 ? v : std::max(s.greatest, v);
    sum += v;
    squares += v * v;
    ++count;
  }
  if (count > 0) s.mean = sum / static_cast<double>(count);
  s.norm = std::sqrt(squares);
  return s;
}

// How many numbers of the type lie between two of them.
template <typename Bits, typename T>
double UlpsBetween(T a, T b) {
  const auto rank = [](T v) {
    const Bits bits = std::bit_cast<Bits>(v);
    constexpr Bits kSign = Bits{1} << (sizeof(Bits) * 8 - 1);
    const double size = static_cast<double>(bits & ~kSign);
    return (bits & kSign) != 0 ? -size : size;
  };
  return std::abs(rank(a) - rank(b));
}

template <typename Bits, typename T>
double MostUlps(const Tensor& a, const Tensor& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.flat<T>().size(); ++i) {
    most = std::max(most, UlpsBetween<Bits>(a.flat<T>()[i], b.flat<T>()[i]));
  }
  return most;
}

struct Difference {
  std::string name, what;  // what: "", or why the two cannot be compared by elements
  double greatest = 0, norm = 0, relative = 0, ulps = 0;
  int64_t elements = 0;
  bool same = true;
};

Difference Compare(const std::string& name, const Tensor& a, const Tensor& b, double tolerance) {
  Difference d{.name = name, .what = ""};
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) {
    d.same = false;
    d.what = StrCat(DataTypeName(a.dtype()), a.shape().DebugString(), " and ",
                    DataTypeName(b.dtype()), b.shape().DebugString());
    return d;
  }
  d.same = TensorsEqual(a, b);
  if (d.same) return d;
  const std::vector<double> x = NumbersOf(a), y = NumbersOf(b);
  if (x.empty()) {
    d.what = "other texts";
    return d;
  }
  double squares = 0, base = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    ++d.elements;
    const double difference = std::abs(x[i] - y[i]);
    d.greatest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                        : std::max(d.greatest, difference);
    squares += difference * difference;
  }
  for (const double v : x) base += v * v;
  d.norm = std::sqrt(squares);
  d.relative = base > 0 ? d.norm / std::sqrt(base) : d.norm;
  if (a.dtype() == kFloat) d.ulps = MostUlps<uint32_t, float>(a, b);
  if (a.dtype() == kDouble) d.ulps = MostUlps<uint64_t, double>(a, b);
  if (d.greatest <= tolerance) d.same = true;
  return d;
}

std::string DifferenceText(const Difference& d) {
  if (!d.what.empty()) return StrCat(d.name, ": ", d.what, "\n");
  return StrCat(d.name, ": ", d.elements, " elements differ, by at most ", d.greatest, " (", d.ulps,
                " ulps); norm of the difference ", d.norm, ", ", d.relative, " of the first's\n");
}

Json DifferenceJson(const Difference& d) {
  if (!d.what.empty()) return {{"name", d.name}, {"what", d.what}};
  return {{"name", d.name}, {"elements", d.elements}, {"greatest", d.greatest},
          {"ulps", d.ulps}, {"norm", d.norm},         {"relative_norm", d.relative}};
}

std::string ValuesText(const Tensor& t, int most) {
  std::vector<std::string> shown;
  const int64_t count = std::min<int64_t>(t.num_elements(), most);
  if (t.dtype() == kString) {
    for (int64_t i = 0; i < count; ++i) {
      shown.push_back(StrCat("\"", CEscape(t.flat<std::string>()[i].substr(0, 60)), "\""));
    }
  } else {
    const std::vector<double> values = NumbersOf(t);
    for (std::size_t i = 0; i < values.size() && static_cast<int>(i) < most; ++i) {
      shown.push_back(StrCat(values[i]));
    }
  }
  return StrCat(StrJoin(shown, " "), t.num_elements() > count ? " ..." : "");
}

}  // namespace

std::vector<double> NumbersOf(const Tensor& t) {
  std::vector<double> out;
  switch (t.dtype()) {
    case kFloat:
      Append<float>(t, &out);
      break;
    case kDouble:
      Append<double>(t, &out);
      break;
    case kHalf:
      AppendHalf<Half>(t, &out);
      break;
    case kBfloat16:
      AppendHalf<BFloat16>(t, &out);
      break;
    case kInt8:
      Append<int8_t>(t, &out);
      break;
    case kInt16:
      Append<int16_t>(t, &out);
      break;
    case kInt32:
      Append<int32_t>(t, &out);
      break;
    case kInt64:
      Append<int64_t>(t, &out);
      break;
    case kUint8:
      Append<uint8_t>(t, &out);
      break;
    case kUint16:
      Append<uint16_t>(t, &out);
      break;
    case kUint32:
      Append<uint32_t>(t, &out);
      break;
    case kUint64:
      Append<uint64_t>(t, &out);
      break;
    case kBool:
      Append<bool>(t, &out);
      break;
    case kComplex64:
      AppendComplex<float>(t, &out);
      break;
    case kComplex128:
      AppendComplex<double>(t, &out);
      break;
    default:
      break;
  }
  return out;
}

Status CkptList(const CkptFlags& flags, std::string* text, int* code) {
  Json all = Json::array();
  for (const std::string& prefix : flags.prefixes) {
    MR_ASSIGN_OR_RETURN(const OpenCheckpoint open, OpenPrefix(prefix, /*with_data=*/false));
    Json tensors = Json::array();
    std::size_t width = 0;
    int64_t bytes = 0, elements = 0;
    for (const Entry& e : open.reader->entries()) {
      width = std::max(width, e.name.size());
      bytes += e.bytes;
      elements += e.shape.num_elements();
      tensors.push_back(EntryJson(e));
    }
    all.push_back({{"prefix", open.prefix},
                   {"files", open.reader->num_files()},
                   {"object_based", open.reader->ObjectGraph().ok()},
                   {"tensors", tensors}});
    if (flags.as_json) continue;
    StrAppend(text, open.prefix, "\n");
    for (const Entry& e : open.reader->entries()) {
      StrAppend(text, "  ", Pad(CEscape(e.name), width), "  ", Pad(DataTypeName(e.dtype), 8), " ",
                Pad(e.shape.DebugString(), 14), " ", e.bytes, " bytes, file ",
                StrJoin(e.files, ","), e.parts > 1 ? StrCat(", ", e.parts, " parts") : "", "\n");
    }
    StrAppend(text, "  ", open.reader->entries().size(), " tensors, ", elements, " elements, ",
              bytes, " bytes in ", open.reader->num_files(), " data file(s)\n");
  }
  if (flags.as_json) *text = all.dump(2) + "\n";
  return OkStatus();
}

Status CkptShow(const CkptFlags& flags, std::string* text, int* code) {
  MR_ASSIGN_OR_RETURN(const OpenCheckpoint open, OpenPrefix(flags.prefixes[0]));
  if (!flags.tensor.empty() && open.reader->Find(flags.tensor) == nullptr) {
    return errors::NotFound("Key ", flags.tensor, " not found in checkpoint ", open.prefix,
                            "; `millrace ckpt list` names those that there are");
  }
  Json all = Json::array();
  for (const Entry& e : open.reader->entries()) {
    if (!flags.tensor.empty() && e.name != flags.tensor) continue;
    MR_ASSIGN_OR_RETURN(const Tensor value, open.reader->Read(e.name));
    Json json = EntryJson(e);
    StrAppend(text, CEscape(e.name), " ", DataTypeName(e.dtype), e.shape.DebugString(), "\n");
    const std::vector<double> numbers = NumbersOf(value);
    if (!numbers.empty()) {
      const Summary s = Summarize(numbers);
      StrAppend(text, "  least ", s.least, ", greatest ", s.greatest, ", mean ", s.mean, ", norm ",
                s.norm, s.not_finite > 0 ? StrCat(", ", s.not_finite, " not finite") : "", "\n");
      json["least"] = s.least;
      json["greatest"] = s.greatest;
      json["mean"] = s.mean;
      json["norm"] = s.norm;
      json["not_finite"] = s.not_finite;
    }
    json["values"] = ValuesText(value, flags.values);
    StrAppend(text, "  ", ValuesText(value, flags.values), "\n");
    all.push_back(std::move(json));
  }
  if (flags.as_json) *text = all.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
  return OkStatus();
}

Status CkptVerify(const CkptFlags& flags, std::string* text, int* code) {
  Json all = Json::array();
  for (const std::string& prefix : flags.prefixes) {
    const StatusOr<OpenCheckpoint> open = OpenPrefix(prefix);
    if (!open.ok() && !errors::IsDataLoss(open.status())) return open.status();
    std::vector<std::string> wrong;
    int64_t bytes = 0;
    if (!open.ok()) {
      wrong.push_back(StrCat("index: ", Message(open.status())));
    } else {
      for (const Entry& e : open->reader->entries()) {
        const Status status = open->reader->Read(e.name).status();
        if (status.ok()) {
          bytes += e.bytes;
        } else {
          wrong.push_back(StrCat(e.name, ": ", Message(status)));
        }
      }
    }
    if (!wrong.empty()) *code = kImpossible;
    all.push_back({{"prefix", prefix}, {"ok", wrong.empty()}, {"bytes", bytes}, {"wrong", wrong}});
    StrAppend(text, prefix, ": ",
              wrong.empty() ? StrCat("whole, ", bytes, " bytes\n")
                            : StrCat("damaged\n  ", StrJoin(wrong, "\n  "), "\n"));
  }
  if (flags.as_json) *text = all.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
  return OkStatus();
}

Status CkptDiff(const CkptFlags& flags, std::string* text, int* code) {
  MR_ASSIGN_OR_RETURN(const OpenCheckpoint a, OpenPrefix(flags.prefixes[0]));
  MR_ASSIGN_OR_RETURN(const OpenCheckpoint b, OpenPrefix(flags.prefixes[1]));
  Json different = Json::array(), only_first = Json::array(), only_second = Json::array();
  int64_t same = 0;
  for (const Entry& e : a.reader->entries()) {
    if (b.reader->Find(e.name) == nullptr) {
      only_first.push_back(e.name);
      StrAppend(text, "only in ", a.prefix, ": ", e.name, "\n");
      continue;
    }
    MR_ASSIGN_OR_RETURN(const Tensor x, a.reader->Read(e.name));
    MR_ASSIGN_OR_RETURN(const Tensor y, b.reader->Read(e.name));
    const Difference d = Compare(e.name, x, y, flags.tolerance);
    if (d.same) {
      ++same;
    } else {
      different.push_back(DifferenceJson(d));
      *text += DifferenceText(d);
    }
  }
  for (const Entry& e : b.reader->entries()) {
    if (a.reader->Find(e.name) != nullptr) continue;
    only_second.push_back(e.name);
    StrAppend(text, "only in ", b.prefix, ": ", e.name, "\n");
  }
  StrAppend(text, same, " tensors are the same\n");
  if (!different.empty() || !only_first.empty() || !only_second.empty()) *code = kDifferent;
  if (flags.as_json) {
    const Json all = {{"same", same},
                      {"different", different},
                      {"only_in_first", only_first},
                      {"only_in_second", only_second}};
    *text = all.dump(2) + "\n";
  }
  return OkStatus();
}

}  // namespace millrace
