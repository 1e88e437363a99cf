// SPDX-License-Identifier: Apache-2.0
#include "millrace/history.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/strings.h"
#include "model/numbers.h"

namespace millrace {

namespace model {

std::string PythonNumber(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[40];
  const double size = std::abs(value);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(text, text + sizeof(text), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string result(text, end);
  if (fixed && result.find('.') == std::string::npos) result += ".0";
  return result;
}

std::string ConsoleNumber(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), std::abs(value) > 1e-3 || std::isnan(value) ? "%.4f" : "%.4e",
                value);
  return text;
}

}  // namespace model

void Logs::Set(std::string_view name, double value) {
  for (Entry& entry : entries_) {
    if (entry.first == name) {
      entry.second = value;
      return;
    }
  }
  entries_.emplace_back(name, value);
}

std::optional<double> Logs::Find(std::string_view name) const {
  for (const Entry& entry : entries_) {
    if (entry.first == name) return entry.second;
  }
  return std::nullopt;
}

double Logs::operator[](std::string_view name) const {
  return Find(name).value_or(std::numeric_limits<double>::quiet_NaN());
}

std::string Logs::Names() const {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries_) names.push_back(entry.first);
  return StrJoin(names, ", ");
}

std::vector<std::string> History::names() const {
  std::vector<std::string> names;
  for (const Epoch& epoch : epochs_) {
    for (const auto& [name, value] : epoch.logs) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::vector<double> History::values(std::string_view name) const {
  std::vector<double> values;
  for (const Epoch& epoch : epochs_) {
    if (const auto value = epoch.logs.Find(name)) values.push_back(*value);
  }
  return values;
}

std::string History::ToTable() const {
  const std::vector<std::string> names = this->names();
  std::vector<std::vector<std::string>> rows = {{"epoch"}};
  rows[0].insert(rows[0].end(), names.begin(), names.end());
  for (const Epoch& epoch : epochs_) {
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(StrCat(epoch.epoch + 1));
    for (const std::string& name : names) {
      const auto value = epoch.logs.Find(name);
      row.push_back(value ? model::ConsoleNumber(*value) : "");
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::size_t width = 0;
      for (const auto& other : rows) width = std::max(width, other[i].size());
      if (i > 0) line += "  ";
      line.append(width - row[i].size(), ' ').append(row[i]);
    }
    text += line + "\n";
  }
  return text;
}

std::string History::ToCsv() const {
  const std::vector<std::string> names = this->names();
  std::string text = "epoch";
  for (const std::string& name : names) text += "," + name;
  text += "\n";
  for (const Epoch& epoch : epochs_) {
    StrAppend(&text, epoch.epoch);
    for (const std::string& name : names) {
      const auto value = epoch.logs.Find(name);
      text += "," + (value ? model::PythonNumber(*value) : "");
    }
    text += "\n";
  }
  return text;
}

std::string History::ToJson() const {
  std::string text = "{\"epoch\": [";
  for (std::size_t i = 0; i < epochs_.size(); ++i) {
    StrAppend(&text, i == 0 ? "" : ", ", epochs_[i].epoch);
  }
  text += "]";
  for (const std::string& name : names()) {
    text += ", \"" + CEscape(name) + "\": [";
    for (std::size_t i = 0; i < epochs_.size(); ++i) {
      if (i > 0) text += ", ";
      const auto value = epochs_[i].logs.Find(name);
      text += value && std::isfinite(*value) ? model::PythonNumber(*value) : "null";
    }
    text += "]";
  }
  return text + "}\n";
}

}  // namespace millrace
