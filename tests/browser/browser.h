// SPDX-License-Identifier: Apache-2.0
// A browser without a window, driven by a test over its debugging pipe: no network is used.
#ifndef TESTS_BROWSER_BROWSER_H_
#define TESTS_BROWSER_BROWSER_H_

#include <sys/types.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace millrace::testing {

// How somebody looks at a page.
struct Look {
  const char* name;
  int width, height;
  bool is_phone, dark;
};
// At a desk and on a phone, light and dark.
inline constexpr Look kLooks[] = {{"desk_light", 1280, 800, false, false},
                                  {"desk_dark", 1280, 800, false, true},
                                  {"phone_light", 390, 844, true, false},
                                  {"phone_dark", 390, 844, true, true}};

// Speaks the DevTools protocol: JSON that ends with NUL, to file 3 of the browser and from its
// file 4. Not thread-safe. Every wait ends after 60 s, as a failure of the test.
class Browser {
 public:
  using Json = nlohmann::json;

  // Starts $MILLRACE_BROWSER, or the first of chromium, chromium-browser and google-chrome on the
  // PATH, with a page; `folder`, which is made, is for its files. Null, with a failure, if it
  // cannot. Where there is no browser the test that runs is skipped, or fails with
  // MILLRACE_REQUIRE_BROWSER in the environment.
  static std::unique_ptr<Browser> StartOrSkip(const std::string& folder);
  ~Browser();  // ends it
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  // Loads the page and waits until it is there.
  void Open(const std::string& url);
  // The window from now on.
  void Emulate(const Look& look);
  // What is in the window, as a PNG file.
  void Screenshot(const std::string& file);
  // The value of an expression of the page; null, with a failure, if it throws.
  Json Evaluate(const std::string& expression);
  // That as a text: itself if it is one, else JSON.
  std::string Text(const std::string& expression);
  // What a user does: a click in the middle of the first element that the selector finds (not if
  // another one lies over it), typed text, a key ("Enter").
  void Click(const std::string& selector);
  void Type(const std::string& text);
  void Press(const std::string& key);

  // So far: what the page complained about, and what it asked of a network or disk besides itself.
  const std::vector<std::string>& errors() const { return errors_; }
  const std::vector<std::string>& requests() const { return requests_; }

 private:
  static std::string Find();  // "": there is none
  static std::unique_ptr<Browser> Start(const std::string& program, const std::string& folder);
  Browser(pid_t pid, int to, int from) : pid_(pid), to_(to), from_(from) {}
  // The answer to a command; null, with a failure, if there is none or an error.
  Json Call(const std::string& method, Json params, bool to_page = true);
  bool Read(Json* message);  // false: nothing more comes
  void Notice(const Json& event);

  const pid_t pid_;
  const int to_, from_;
  std::string buffer_;  // read, but not a whole message yet
  std::string page_;    // the session of the page
  std::string url_;
  int last_id_ = 0;
  int loads_ = 0;
  std::vector<std::string> errors_, requests_;
};

}  // namespace millrace::testing

#endif  // TESTS_BROWSER_BROWSER_H_
