// SPDX-License-Identifier: Apache-2.0
#include "observe/page.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/strings.h"
#include "base/text/markup.h"

namespace millrace {
namespace {

// One style for all: follows the reader's light or dark, and is as wide as the screen.
constexpr char kStyle[] =
    ":root{color-scheme:light dark;--ink:#1b1f24;--dim:#5a6472;--paper:#fff;--line:#d8dee6;"
    "--band:#f4f6f9;--link:#0b57d0;--bad:#b3261e}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--dim:#9aa5b4;--paper:#14171c;"
    "--line:#333b47;--band:#1c2128;--link:#8ab4f8;--bad:#f2b8b5}}"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:72rem;padding:1rem;font:15px/1.45 system-ui,sans-serif;"
    "color:var(--ink);background:var(--paper)}"
    "h1{font-size:1.4rem;margin:.6rem 0 0}h2{font-size:1.1rem;margin:1.6rem 0 .5rem}"
    "p{margin:.4rem 0}.dim{color:var(--dim)}.bad{color:var(--bad);font-weight:600}"
    "a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}"
    "nav{display:flex;flex-wrap:wrap;gap:.2rem 1rem;padding-bottom:.6rem;"
    "border-bottom:1px solid var(--line)}nav a{padding:.35rem 0}"
    ".box{overflow-x:auto;border:1px solid var(--line);border-radius:6px}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{padding:.35rem .7rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}"
    "th{color:var(--dim);font-weight:600;white-space:nowrap}"
    "tr+tr td,tbody tr td{border-top:1px solid var(--line)}"
    "tbody tr:nth-child(even){background:var(--band)}"
    ".n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
    "pre{overflow-x:auto;padding:.7rem;background:var(--band);border-radius:6px}";

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool Decode(std::string_view text, bool plus_is_space, std::string* out) {
  out->clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      *out += ' ';
    } else if (text[i] == '%') {
      if (i + 2 >= text.size()) return false;
      const int high = HexDigit(text[i + 1]), low = HexDigit(text[i + 2]);
      if (high < 0 || low < 0) return false;
      *out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      *out += text[i];
    }
  }
  return true;
}

// Three digits that count.
std::string Short(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.3g", value);
  return buffer;
}

}  // namespace

bool PageRequest::Parse(std::string_view target, PageRequest* request) {
  if (!target.starts_with('/')) return false;
  const std::size_t mark = target.find('?');
  if (!Decode(target.substr(0, mark), false, &request->path)) return false;
  if (mark == std::string_view::npos) return true;
  for (const std::string_view pair : StrSplit(target.substr(mark + 1), '&')) {
    const std::size_t equals = pair.find('=');
    std::string name, value;
    if (!Decode(pair.substr(0, equals), true, &name)) return false;
    if (equals != std::string_view::npos && !Decode(pair.substr(equals + 1), true, &value)) {
      return false;
    }
    request->query[std::move(name)] = std::move(value);
  }
  return true;
}

void PageTable::Add(std::string path, std::string title, Maker maker, bool open) {
  entries_.push_back({std::move(path), std::move(title), std::move(maker), open});
}

const PageTable::Entry* PageTable::Find(std::string_view path) const {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [path](const Entry& entry) { return entry.path == path; });
  return it == entries_.end() ? nullptr : &*it;
}

bool PageTable::IsOpen(std::string_view path) const {
  const Entry* const entry = Find(path);
  return entry != nullptr && entry->open;
}

Page PageTable::Make(const PageRequest& request) const {
  const Entry* const entry = Find(request.path);
  if (entry == nullptr) {
    return {404, kHtmlType, Frame("Not found", StrCat("there is no page ", request.path), "")};
  }
  {
    MutexLock lock(&mu_);
    if (closed_) return {503, kTextType, "the task is stopping\n"};
    ++making_;
  }
  Page page;
  try {
    page = entry->maker(request);
  } catch (...) {
    page = {500, kTextType, StrCat(Message(CaughtStatus()), "\n")};
  }
  MutexLock lock(&mu_);
  if (--making_ == 0) none_.SignalAll();
  return page;
}

void PageTable::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  while (making_ > 0) none_.Wait(&mu_);
}

std::string PageTable::Frame(std::string_view title, std::string_view subtitle,
                             std::string_view body, int refresh_seconds) const {
  std::string links;
  for (const Entry& entry : entries_) {
    if (entry.title.empty()) continue;
    StrAppend(&links, "<a href=\"", entry.path, "\">", MarkupText(entry.title), "</a>");
  }
  return StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">",
      refresh_seconds > 0
          ? StrCat("<meta http-equiv=\"refresh\" content=\"", refresh_seconds, "\">")
          : std::string(),
      "<link rel=\"icon\" href=\"data:,\"><title>", MarkupText(title), "</title><style>", kStyle,
      "</style></head>\n<body><nav>", links, "</nav>\n<h1>", MarkupText(title),
      "</h1>\n<p class=\"dim\">", MarkupText(subtitle), "</p>\n", body, "</body></html>\n");
}

HtmlTable::HtmlTable(std::vector<std::string_view> columns) {
  html_ = "<div class=\"box\"><table><thead><tr>";
  for (std::string_view column : columns) {
    numbers_.push_back(column.starts_with('#'));
    if (numbers_.back()) column.remove_prefix(1);
    StrAppend(&html_, numbers_.back() ? "<th class=\"n\">" : "<th>", MarkupText(column), "</th>");
  }
  html_ += "</tr></thead><tbody>";
}

void HtmlTable::Cells(std::string_view link, const std::vector<std::string>& cells) {
  ++rows_;
  html_ += "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    html_ += i < numbers_.size() && numbers_[i] ? "<td class=\"n\">" : "<td>";
    const bool linked = i == 0 && !link.empty();
    if (linked) StrAppend(&html_, "<a href=\"", MarkupText(link), "\">");
    html_ += MarkupText(cells[i]);
    html_ += linked ? "</a></td>" : "</td>";
  }
  html_ += "</tr>";
}

void HtmlTable::Row(const std::vector<std::string>& cells) { Cells("", cells); }
void HtmlTable::LinkedRow(std::string_view link, const std::vector<std::string>& cells) {
  Cells(link, cells);
}

std::string HtmlTable::Take(std::string_view none) {
  if (rows_ == 0) return StrCat("<p class=\"dim\">", MarkupText(none), "</p>");
  return html_ + "</tbody></table></div>\n";
}

std::string DurationText(double seconds) {
  if (seconds < 1e-3) return StrCat(Short(seconds * 1e6), " us");
  if (seconds < 1) return StrCat(Short(seconds * 1e3), " ms");
  if (seconds < 100) return StrCat(Short(seconds), " s");
  const auto whole = static_cast<int64_t>(seconds);
  if (whole < 2 * 3600) return StrCat(whole / 60, " min ", whole % 60, " s");
  if (whole < 48 * 3600) return StrCat(whole / 3600, " h ", whole / 60 % 60, " min");
  return StrCat(whole / 86400, " days ", whole / 3600 % 24, " h");
}

std::string BytesText(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return StrCat(unit == 0 ? StrCat(static_cast<int64_t>(bytes)) : Short(bytes), " ", kUnits[unit]);
}

}  // namespace millrace
