// SPDX-License-Identifier: Apache-2.0
#include "tools/install/exports.h"

#include <cctype>

namespace millrace::exports {
namespace {

bool StartsWord(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool InWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The end of the comment, literal or single character at `at`.
std::size_t SkipOne(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("//")) return std::min(text.find('\n', at), text.size());
  if (rest.starts_with("/*")) {
    const std::size_t end = text.find("*/", at + 2);
    return end == std::string_view::npos ? text.size() : end + 2;
  }
  if (text[at] != '"' && text[at] != '\'') return at + 1;
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == text[at] || text[i] == '\n') {
      return i + 1;
    }
  }
  return text.size();
}

// Identifiers, numbers and single characters, in order.
std::vector<std::string> Tokens(std::string_view text) {
  std::vector<std::string> tokens;
  std::size_t at = 0;
  while (at < text.size()) {
    if (InWord(text[at])) {
      std::size_t end = at;
      // The ' of 1'000'000 is part of the number, not the start of a literal.
      const bool number = !StartsWord(text[at]);
      while (end < text.size() && (InWord(text[end]) || (number && text[end] == '\''))) ++end;
      tokens.emplace_back(text.substr(at, end - at));
      at = end;
      continue;
    }
    const std::size_t end = SkipOne(text, at);
    if (end == at + 1 && std::isspace(static_cast<unsigned char>(text[at])) == 0) {
      tokens.emplace_back(1, text[at]);
    }
    at = end;
  }
  return tokens;
}

// Where `text`, from `at` on, has what follows a balanced <...> that begins there.
std::size_t PastAngles(std::string_view text, std::size_t at) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    if (text[at] == '<') ++depth;
    if (text[at] == '>' && text[at - 1] != '-' && --depth == 0) return at + 1;
  }
  return text.size();
}

// "millrace::StatusOr<millrace::Tensor>::value() const" without arguments of templates and ABI
// tags, up to the parameters, after a result: the components "millrace", "StatusOr", "value".
std::vector<std::string> Components(std::string_view text) {
  std::vector<std::string> parts(1);
  for (std::size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with("operator") && parts.back().empty()) {
      parts.back() = "operator";
      break;
    }
    if (text[at] == '(') break;
    if (text[at] == '<') {
      at = PastAngles(text, at);
    } else if (text[at] == '[') {
      at = std::min(text.find(']', at), text.size() - 1) + 1;
    } else if (text[at] == ' ') {
      parts.assign(1, "");  // what came before was the result of a template
      ++at;
    } else if (text.substr(at).starts_with("::")) {
      parts.emplace_back();
      at += 2;
    } else {
      parts.back() += text[at++];
    }
  }
  return parts;
}

constexpr std::string_view kAboutAClass[] = {"vtable for ", "VTT for ", "typeinfo for ",
                                             "typeinfo name for "};
constexpr std::string_view kAboutAFunction[] = {"guard variable for ", "non-virtual thunk to ",
                                                "virtual thunk to "};
constexpr std::string_view kForeign[] = {"(anonymous namespace)", "absl::", "google::", "grpc",
                                         "tensorflow::",          "llvm::", "{lambda"};

// Whether the text names no class of ours but those that the headers mention.
bool HasOnlyPublicTypes(std::string_view text, const PublicNames& names) {
  constexpr std::string_view kOurs = "millrace::";
  const bool data = text.find('(') == std::string_view::npos;  // named by itself, without types
  for (std::size_t at = text.find(kOurs); at != std::string_view::npos; at = text.find(kOurs, at)) {
    at += kOurs.size();
    std::size_t end = at;
    while (end < text.size() && InWord(text[end])) ++end;
    const std::string_view name = text.substr(at, end - at);
    if (!name.empty() && !names.scopes.contains(name) && !names.declared.contains(name) &&
        !names.called.contains(name) && !data) {
      return false;
    }
  }
  return true;
}

bool ScopesArePublic(const std::vector<std::string>& parts, std::size_t count,
                     const PublicNames& names) {
  if (parts.empty() || parts[0] != "millrace") return false;
  for (std::size_t i = 1; i < count; ++i) {
    if (!names.scopes.contains(parts[i])) return false;
  }
  return true;
}

}  // namespace

void ReadHeader(std::string_view text, PublicNames& names) {
  const std::vector<std::string> tokens = Tokens(text);
  const auto at = [&](std::size_t i) -> std::string_view {
    return i < tokens.size() ? std::string_view(tokens[i]) : std::string_view();
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!StartsWord(tokens[i][0])) continue;
    names.words.insert(tokens[i]);
    if (at(i + 1) == "(") names.called.insert(tokens[i]);
    if (tokens[i] == "namespace") {
      for (std::size_t j = i + 1; at(j) != "{" && at(j) != ";" && j < tokens.size(); ++j) {
        if (StartsWord(tokens[j][0])) names.scopes.insert(tokens[j]);
      }
    }
    if (tokens[i] != "class" && tokens[i] != "struct" && tokens[i] != "enum") continue;
    std::size_t name = i + 1;
    if (at(name) == "class" || at(name) == "struct") ++name;  // enum class
    if (at(name) == "[") {                                    // [[nodiscard]]
      while (name < tokens.size() && at(name) != "]") ++name;
      name += 2;
    }
    if (at(name).empty() || !StartsWord(at(name)[0])) continue;
    const std::string_view next = at(name + 1);
    if (next == "{" || next == ":" || next == "final" || next == "<") {
      names.scopes.emplace(at(name));
    } else if (next == ";") {
      names.declared.emplace(at(name));
    }
  }
}

bool IsPublic(std::string_view demangled, const PublicNames& names) {
  for (const std::string_view other : kForeign) {
    if (demangled.find(other) != std::string_view::npos) return false;
  }
  if (!HasOnlyPublicTypes(demangled, names)) return false;
  for (const std::string_view prefix : kAboutAClass) {
    if (!demangled.starts_with(prefix)) continue;
    const std::vector<std::string> parts = Components(demangled.substr(prefix.size()));
    return ScopesArePublic(parts, parts.size(), names);
  }
  for (const std::string_view prefix : kAboutAFunction) {
    if (demangled.starts_with(prefix)) return IsPublic(demangled.substr(prefix.size()), names);
  }
  const std::vector<std::string> parts = Components(demangled);
  if (parts.size() < 2 || !ScopesArePublic(parts, parts.size() - 1, names)) return false;
  std::string_view last = parts.back();
  if (last.starts_with("operator")) return true;
  if (last.starts_with("~")) last.remove_prefix(1);
  const bool function = demangled.find('(') != std::string_view::npos;
  return function ? names.called.contains(last) || names.scopes.contains(last)
                  : names.words.contains(last);
}

std::string VersionScript(std::string_view node, const std::vector<std::string>& mangled) {
  std::string text(node);
  text += " {\n  global:\n";
  for (const std::string& symbol : mangled) text += "    " + symbol + ";\n";
  text += "  local:\n    *;\n};\n";
  return text;
}

std::string LinkFlags(const std::vector<std::string>& mangled) {
  std::string text;
  for (const std::string& symbol : mangled) {
    text += "-Wl,-u," + symbol + "\n-Wl,--export-dynamic-symbol=" + symbol + "\n";
  }
  return text;
}

}  // namespace millrace::exports
