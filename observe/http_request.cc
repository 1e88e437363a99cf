// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/strings.h"
#include "observe/http_server.h"

namespace millrace {
namespace {

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return lower;
}

// Without the CR that lines end with; false if control characters are within.
bool TakeLine(std::string_view* rest, std::string_view* line) {
  const std::size_t end = rest->find('\n');
  *line = rest->substr(0, end);
  rest->remove_prefix(end == std::string_view::npos ? rest->size() : end + 1);
  if (line->ends_with('\r')) line->remove_suffix(1);
  return std::none_of(line->begin(), line->end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\t'; });
}

}  // namespace

std::string_view HttpRequest::Header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_case_name) return value;
  }
  return "";
}

int ParseHttpRequest(std::string_view head, HttpRequest* request) {
  std::string_view line;
  if (!TakeLine(&head, &line)) return 400;
  const std::vector<std::string_view> words = StrSplit(line, ' ');
  if (words.size() != 3 || !words[1].starts_with('/') || !words[2].starts_with("HTTP/")) return 400;
  if (!words[2].starts_with("HTTP/1.")) return 505;
  request->method = words[0];
  request->target = words[1];
  while (!head.empty()) {
    if (!TakeLine(&head, &line)) return 400;
    if (line.empty()) break;
    const std::size_t colon = line.find(':');
    if (colon == 0 || colon == std::string_view::npos) return 400;
    request->headers.emplace_back(LowerCase(line.substr(0, colon)),
                                  StripWhitespace(line.substr(colon + 1)));
  }
  const std::string& method = request->method;
  return method == "GET" || method == "HEAD" || method == "POST" ? 200 : 405;
}

}  // namespace millrace
