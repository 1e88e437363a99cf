// SPDX-License-Identifier: Apache-2.0
#include "observe/open_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/errors.h"
#include "base/strings.h"
#include "base/text/utf8.h"

namespace millrace {
namespace {

// Text of a label or a help: backslash, quote and newline are escaped. Clients name what labels
// tell of; a byte that belongs to no character becomes U+FFFD, or nobody reads the page.
void AppendEscaped(std::string* out, std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = Utf8Length(text);
    const char c = text[0];
    if (length == 0) {
      *out += "\xEF\xBF\xBD";
    } else if (c == '\n') {
      *out += "\\n";
    } else {
      if (c == '\\' || c == '"') *out += '\\';
      out->append(text, 0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
}

std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return StrCat(static_cast<int64_t>(value));
  }
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.9g", value);
  return buffer;
}

// Takes a text in quotes off the front of `rest`; false if there is none.
bool TakeQuoted(std::string_view* rest, std::string* text) {
  if (!rest->starts_with('"')) return false;
  for (std::size_t i = 1; i < rest->size(); ++i) {
    const char c = (*rest)[i];
    if (c == '"') {
      rest->remove_prefix(i + 1);
      return true;
    }
    if (c == '\\' && i + 1 < rest->size()) {
      ++i;
      *text += (*rest)[i] == 'n' ? '\n' : (*rest)[i];
    } else {
      *text += c;
    }
  }
  return false;
}

bool ParseNumber(std::string_view text, double* value) {
  if (text == "+Inf") *value = HUGE_VAL;
  return text == "+Inf" || ParseDouble(text, value);
}

bool ParseSample(std::string_view line, MetricSample* sample) {
  const std::size_t end = line.find_first_of("{ ");
  if (end == 0 || end == std::string_view::npos) return false;
  sample->name = line.substr(0, end);
  std::string_view rest = line.substr(end);
  if (rest.starts_with('{')) {
    while (!rest.starts_with("} ")) {
      rest.remove_prefix(1);  // the brace, or a comma
      const std::size_t equals = rest.find('=');
      if (equals == std::string_view::npos) return false;
      auto& [name, text] = sample->labels.emplace_back(std::string(rest.substr(0, equals)), "");
      rest.remove_prefix(equals + 1);
      if (!TakeQuoted(&rest, &text) || rest.empty()) return false;
    }
    rest.remove_prefix(1);
  }
  return ParseNumber(rest.substr(1), &sample->value);
}

}  // namespace

MetricsDialect ChooseDialect(std::string_view accept) {
  return accept.find("application/openmetrics-text") != std::string_view::npos
             ? MetricsDialect::kOpenMetrics
             : MetricsDialect::kPrometheus;
}

const char* ContentType(MetricsDialect dialect) {
  return dialect == MetricsDialect::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

void OpenMetricsWriter::Family(std::string_view name, std::string_view type, std::string_view unit,
                               std::string_view help) {
  name_ = name;
  suffix_ = type == "counter" ? "_total" : type == "info" ? "_info" : "";
  const bool open = dialect_ == MetricsDialect::kOpenMetrics;
  const std::string shown = open ? name_ : StrCat(name, suffix_);
  StrAppend(&text_, "# TYPE ", shown, " ", !open && type == "info" ? "gauge" : type, "\n");
  if (open && !unit.empty()) StrAppend(&text_, "# UNIT ", name, " ", unit, "\n");
  StrAppend(&text_, "# HELP ", shown, " ");
  AppendEscaped(&text_, help);
  text_ += '\n';
}

void OpenMetricsWriter::Line(std::string_view suffix, Labels labels, std::string_view le,
                             double value) {
  StrAppend(&text_, name_, suffix);
  char before = '{';
  const auto add = [&](std::string_view name, std::string_view text) {
    text_ += before;
    StrAppend(&text_, name, "=\"");
    AppendEscaped(&text_, text);
    text_ += '"';
    before = ',';
  };
  for (const auto& [name, text] : labels) add(name, text);
  if (!le.empty()) add("le", le);
  if (before == ',') text_ += '}';
  StrAppend(&text_, " ", NumberText(value), "\n");
}

void OpenMetricsWriter::Sample(Labels labels, double value) { Line(suffix_, labels, "", value); }

void OpenMetricsWriter::Sample(Labels labels, const Histogram::Snapshot& value) {
  int64_t below = 0;
  for (int i = 0; i < Histogram::kNumBounds; ++i) {
    below += value.buckets[static_cast<std::size_t>(i)];
    Line("_bucket", labels, NumberText(Histogram::BoundOf(i)), static_cast<double>(below));
  }
  Line("_bucket", labels, "+Inf", static_cast<double>(value.count));
  Line("_count", labels, "", static_cast<double>(value.count));
  Line("_sum", labels, "", value.total_seconds);
}

std::string OpenMetricsWriter::Take() {
  if (dialect_ == MetricsDialect::kOpenMetrics) text_ += "# EOF\n";
  return std::move(text_);
}

std::string_view MetricSample::Label(std::string_view name) const {
  for (const auto& [label, text] : labels) {
    if (label == name) return text;
  }
  return "";
}

StatusOr<std::vector<MetricSample>> ParseOpenMetrics(std::string_view text) {
  std::vector<MetricSample> samples;
  for (const std::string_view line : StrSplit(text, '\n')) {
    if (line.empty() || line.starts_with('#')) continue;
    if (!ParseSample(line, &samples.emplace_back())) {
      return errors::InvalidArgument("this line is no metric: '", CEscape(line), "'");
    }
  }
  return samples;
}

}  // namespace millrace
