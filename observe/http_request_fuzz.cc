// What a visitor of a page may send: any bytes are a request, with a target and headers that have
// no control characters, or are refused.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "observe/http_server.h"

namespace millrace {

std::vector<std::string> FuzzSeeds() {
  return {"GET /statusz?x=1 HTTP/1.1\r\nHost: localhost:80\r\nAuthorization: Bearer t\r\n\r\n",
          "HEAD / HTTP/1.0\n\n", "GET /graphz?session=0123456789abcdef HTTP/1.1\r\na:b\r\n\r\n",
          "POST / HTTP/1.1\r\n\r\n"};
}

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
  return 0;
}
