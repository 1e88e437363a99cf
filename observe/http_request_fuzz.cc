// SPDX-License-Identifier: Apache-2.0
// What a visitor of a page may send: any bytes are a request, with a target and headers that have
// no control characters, or are refused. Of a target that is taken to pieces no escape is left, and
// there is an answer to it.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "observe/http_server.h"
#include "observe/page.h"

namespace millrace {

std::vector<std::string> FuzzSeeds() {
  return {"GET /statusz?x=1 HTTP/1.1\r\nHost: localhost:80\r\nAuthorization: Bearer t\r\n\r\n",
          "HEAD / HTTP/1.0\n\n",
          "GET /graphz?session=0123456789abcdef HTTP/1.1\r\na:b\r\n\r\n",
          "POST / HTTP/1.1\r\n\r\n",
          "GET /%73tatusz?a=%3Cb%3E&c+d=%2541&&=x HTTP/1.1\r\n\r\n",
          "GET /<b>%zz?%4 HTTP/1.1\r\n\r\n"};
}

namespace {

// As long as the escapes in it make it.
std::size_t SizeWithoutEscapes(std::string_view text) {
  return text.size() - 2 * static_cast<std::size_t>(std::count(text.begin(), text.end(), '%'));
}

void CheckPieces(std::string_view target, const PageRequest& request) {
  const std::size_t mark = target.find('?');
  MR_CHECK(request.path.starts_with('/'));
  MR_CHECK(request.path.size() == SizeWithoutEscapes(target.substr(0, mark)));
  if (mark == std::string_view::npos) {
    MR_CHECK(request.query.empty());
    return;
  }
  const std::string_view query = target.substr(mark + 1);
  std::size_t bytes = 0;
  for (const auto& [name, value] : request.query) bytes += name.size() + value.size();
  MR_CHECK(bytes <= SizeWithoutEscapes(query));
  // Of one pair nothing gets lost but the sign in its middle.
  if (query.find('&') != std::string_view::npos) return;
  const bool has_value = query.find('=') != std::string_view::npos;
  MR_CHECK(request.query.size() == 1);
  MR_CHECK(bytes + (has_value ? 1 : 0) == SizeWithoutEscapes(query));
}

void CheckAnswer(const PageRequest& request) {
  static const auto* const table = [] {
    auto* const made = new PageTable;
    made->Add("/statusz", "Status", [made](const PageRequest& asked) {
      HtmlTable rows({"name", "value"});
      for (const auto& [name, value] : asked.query) rows.Row({name, value});
      return Page{200, kHtmlType, made->Frame("Status", asked.path, rows.Take("none"))};
    });
    return made;
  }();
  const Page page = table->Make(request);
  MR_CHECK(page.status == (request.path == "/statusz" ? 200 : 404));
  // What a visitor sends comes back as text, not as elements of the page.
  MR_CHECK(page.type != kHtmlType || page.body.find("<b>") == std::string::npos);
}

}  // namespace

}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace millrace;  // NOLINT: the entry's name is fixed, its scope is this function
  const std::string_view head(reinterpret_cast<const char*>(data), size);
  HttpRequest request;
  const int status = ParseHttpRequest(head, &request);
  MR_CHECK(status == 200 || status == 400 || status == 405 || status == 505);
  if (status != 200) return 0;
  MR_CHECK(request.method == "GET" || request.method == "HEAD" || request.method == "POST");
  MR_CHECK(request.target.starts_with('/'));
  std::vector<std::string_view> texts = {request.target};
  for (const auto& [name, value] : request.headers) {
    MR_CHECK(!name.empty() && request.Header(name).size() <= size);
    texts.push_back(name);
    texts.push_back(value);
  }
  for (const std::string_view text : texts) {
    MR_CHECK(std::none_of(text.begin(), text.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 && c != '\t';
    }));
  }
  PageRequest page;
  if (!PageRequest::Parse(request.target, &page)) return 0;
  CheckPieces(request.target, page);
  CheckAnswer(page);
  return 0;
}
