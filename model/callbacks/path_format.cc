// SPDX-License-Identifier: Apache-2.0
#include "model/callbacks/path_format.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <optional>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "model/numbers.h"

namespace millrace::model {
namespace {

constexpr int kMostDigits = 64;  // of a width or a precision

struct Spec {
  bool zeros = false;
  int width = 0, precision = -1;
  char type = 0;  // 0: none was given
};

bool ReadNumber(std::string_view* text, int* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc() || *number > kMostDigits) return false;
  text->remove_prefix(static_cast<std::size_t>(end - text->data()));
  return true;
}

std::optional<Spec> ParseSpec(std::string_view text) {
  Spec spec;
  if (text.starts_with('0')) {
    spec.zeros = true;
    text.remove_prefix(1);
  }
  if (!text.empty() && text[0] >= '1' && text[0] <= '9' && !ReadNumber(&text, &spec.width)) {
    return std::nullopt;
  }
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (text.empty() || text[0] < '0' || text[0] > '9' || !ReadNumber(&text, &spec.precision)) {
      return std::nullopt;
    }
  }
  if (!text.empty()) {
    spec.type = text[0];
    text.remove_prefix(1);
  }
  if (!text.empty() || std::string_view("\0dfeg", 5).find(spec.type) == std::string_view::npos) {
    return std::nullopt;
  }
  return spec;
}

std::string Padded(std::string digits, const Spec& spec) {
  const auto width = static_cast<std::size_t>(spec.width);
  if (digits.size() >= width) return digits;
  const std::size_t sign = spec.zeros && digits.starts_with('-') ? 1 : 0;
  digits.insert(sign, width - digits.size(), spec.zeros ? '0' : ' ');
  return digits;
}

StatusOr<std::string> FormatReal(double value, const Spec& spec) {
  if (spec.type == 'd') {
    return errors::InvalidArgument("Unknown format code 'd' for a number that is not whole");
  }
  if (spec.type == 0 && spec.precision < 0) return Padded(PythonNumber(value), spec);
  const char type = spec.type == 0 ? 'g' : spec.type;
  const char* const format = type == 'f' ? "%.*f" : type == 'e' ? "%.*e" : "%.*g";
  constexpr int kUsual = 6;
  std::array<char, 512> text;
  const int size = std::snprintf(text.data(), text.size(), format,
                                 spec.precision < 0 ? kUsual : spec.precision, value);
  return Padded(std::string(text.data(), static_cast<std::size_t>(size)), spec);
}

StatusOr<std::string> FormatCount(int64_t value, const Spec& spec) {
  if (spec.type != 0 && spec.type != 'd') return FormatReal(static_cast<double>(value), spec);
  if (spec.precision >= 0) {
    return errors::InvalidArgument("Precision not allowed in integer format specifier");
  }
  return Padded(StrCat(value), spec);
}

StatusOr<std::string> FormatPlace(std::string_view place,
                                  const std::map<std::string, int64_t>& counts, const Logs& logs) {
  const std::size_t colon = place.find(':');
  const std::string name(place.substr(0, colon));
  const std::string_view text =
      colon == std::string_view::npos ? std::string_view() : place.substr(colon + 1);
  const std::optional<Spec> spec = ParseSpec(text);
  if (!spec) return errors::InvalidArgument("Invalid format specifier '", text, "'");
  if (const auto count = counts.find(name); count != counts.end()) {
    return FormatCount(count->second, *spec);
  }
  if (const std::optional<double> value = logs.Find(name)) return FormatReal(*value, *spec);
  std::string names;
  for (const auto& [known, value] : counts) StrAppend(&names, names.empty() ? "" : ", ", known);
  return errors::InvalidArgument("'", name, "' (there are ", names, logs.empty() ? "" : ", ",
                                 logs.Names(), ")");
}

}  // namespace

StatusOr<std::string> FormatPath(std::string_view path,
                                 const std::map<std::string, int64_t>& counts, const Logs& logs) {
  const auto failed = [&](std::string_view why) {
    return errors::InvalidArgument("Failed to format this callback filepath: \"", path,
                                   "\". Reason: ", why);
  };
  std::string formatted;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const char c = path[i];
    if ((c == '{' || c == '}') && i + 1 < path.size() && path[i + 1] == c) {
      formatted += c;
      ++i;
    } else if (c == '}') {
      return failed("Single '}' encountered in format string");
    } else if (c == '{') {
      const std::size_t end = path.find('}', i);
      if (end == std::string_view::npos) return failed("expected '}' before end of string");
      const StatusOr<std::string> number =
          FormatPlace(path.substr(i + 1, end - i - 1), counts, logs);
      if (!number.ok()) return failed(Message(number.status()));
      formatted += *number;
      i = end;
    } else {
      formatted += c;
    }
  }
  return formatted;
}

std::string PathOfWorker(const std::string& chiefs, int worker) {
  if (worker == 0) return chiefs;
  const std::size_t slash = chiefs.rfind('/');
  const std::size_t base = slash == std::string::npos ? 0 : slash + 1;
  return StrCat(chiefs.substr(0, base), "workertemp_", worker, "/", chiefs.substr(base));
}

}  // namespace millrace::model
