// SPDX-License-Identifier: Apache-2.0
#include "tools/check_layers/names.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace millrace::layers {
namespace {

// Takes `prefix` off the text; false if it does not begin so.
bool Take(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

std::string_view TakeWord(std::string_view* text) {
  size_t end = 0;
  const auto is_part = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':';
  };
  while (end < text->size() && is_part((*text)[end])) ++end;
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(end);
  return word;
}

// The name of the type that begins with this line, written at its very start; "" if none does.
std::string_view TypeOf(std::string_view line) {
  if (!Take(&line, "struct ") && !Take(&line, "class ") && !Take(&line, "enum class ") &&
      !Take(&line, "enum ")) {
    return "";
  }
  while (Take(&line, "[[nodiscard]] ")) {
  }
  const std::string_view name = TakeWord(&line);
  // Declarations, and specializations of templates.
  return line.starts_with(';') || line.starts_with('<') ? std::string_view() : name;
}

struct Place {
  std::string path;
  int line = 0;
};

class Names {
 public:
  void Read(const std::string& path, std::string_view text) {
    spaces_.clear();
    int number = 0;
    for (size_t start = 0; start < text.size();) {
      const size_t end = std::min(text.find('\n', start), text.size());
      ReadLine(path, ++number, text.substr(start, end - start));
      start = end + 1;
    }
  }
  std::vector<Violation> violations() && { return std::move(violations_); }

 private:
  void ReadLine(const std::string& path, int number, std::string_view line) {
    if (Take(&line, "namespace")) {
      Take(&line, " ");
      const std::string_view name = TakeWord(&line);
      if (line.find('=') == std::string_view::npos) spaces_.emplace_back(name);  // no alias
    } else if (line.starts_with("}  // namespace")) {
      if (!spaces_.empty()) spaces_.pop_back();
    } else if (const std::string_view type = TypeOf(line); !type.empty()) {
      Add(path, number, type);
    }
  }

  void Add(const std::string& path, int number, std::string_view type) {
    std::string name;
    for (const std::string& space : spaces_) {
      if (space.empty()) return;  // of this file alone
      name += space + "::";
    }
    if (name.empty()) return;  // of a program's main
    name += type;
    const auto [it, is_new] = places_.emplace(name, Place{path, number});
    if (is_new || it->second.path == path) return;
    violations_.push_back({path, number,
                           name + " is the name of a type of " + it->second.path + ":" +
                               std::to_string(it->second.line) +
                               ", too: give one of them another"});
  }

  std::vector<std::string> spaces_;  // around the line
  std::map<std::string, Place> places_;
  std::vector<Violation> violations_;
};

}  // namespace

std::vector<Violation> CheckNames(const Tree& tree) {
  Names names;
  for (const auto& [path, text] : tree) names.Read(path, text);
  return std::move(names).violations();
}

}  // namespace millrace::layers
