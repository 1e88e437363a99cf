// SPDX-License-Identifier: Apache-2.0
// Pages about a task: what they are called, who makes them, and what they are made of.
#ifndef OBSERVE_PAGE_H_
#define OBSERVE_PAGE_H_

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace millrace {

inline constexpr char kHtmlType[] = "text/html; charset=utf-8";
inline constexpr char kTextType[] = "text/plain; charset=utf-8";

struct PageRequest {
  std::string path;                            // "/statusz"
  std::map<std::string, std::string> query{};  // what follows '?', decoded
  std::string accept{};                        // the types that the visitor wants, as HTTP says it

  // "/graphz?session=1a" in its pieces. False if it does not begin with a slash or an escape in it
  // is none.
  static bool Parse(std::string_view target, PageRequest* request);
};

struct Page {
  int status = 200;  // as HTTP has them
  std::string type = kTextType;
  std::string body;
};

// The pages of one task. Thread-safe.
class PageTable {
 public:
  using Maker = std::function<Page(const PageRequest&)>;

  // Before it is shown to others. `title` is what the list of pages says of it; "": it is not in
  // the list. A page that is `open` is shown without credentials.
  void Add(std::string path, std::string title, Maker maker, bool open = false);
  // 404, with the list of pages, if there is no such one; 503 once it was closed.
  Page Make(const PageRequest& request) const;
  bool IsOpen(std::string_view path) const;
  // Waits for the pages that are being made, and makes no more: what they read may go.
  void Close();

  // A whole HTML page, with links to the others. `title` and `subtitle` are plain text, `body` is
  // HTML. `refresh_seconds` 0: it stays as it is.
  std::string Frame(std::string_view title, std::string_view subtitle, std::string_view body,
                    int refresh_seconds = 0) const;

 private:
  struct Entry {
    std::string path, title;
    Maker maker;
    bool open = false;
  };
  const Entry* Find(std::string_view path) const;

  std::vector<Entry> entries_;  // constant once shown
  mutable Mutex mu_;
  mutable CondVar none_;
  mutable int making_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

// A table, row by row. Cells are plain text.
class HtmlTable {
 public:
  // Columns whose name begins with '#' hold numbers, and are aligned to the right.
  explicit HtmlTable(std::vector<std::string_view> columns);
  void Row(const std::vector<std::string>& cells);
  // A row whose first cell is a link.
  void LinkedRow(std::string_view link, const std::vector<std::string>& cells);
  bool empty() const { return rows_ == 0; }
  // The table in a box that scrolls; `none` instead if it has no rows.
  std::string Take(std::string_view none);

 private:
  void Cells(std::string_view link, const std::vector<std::string>& cells);

  std::vector<bool> numbers_;
  int rows_ = 0;
  std::string html_;
};

// "1.5 ms", "3 min 20 s"; "12.3 MB"; for people.
std::string DurationText(double seconds);
std::string BytesText(double bytes);

}  // namespace millrace

#endif  // OBSERVE_PAGE_H_
