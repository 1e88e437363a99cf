// SPDX-License-Identifier: Apache-2.0
#include "tests/browser/browser.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/strings.h"

namespace millrace::testing {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kLimit(60);
constexpr int kReadEnd = 3, kWriteEnd = 4;  // of the browser

// In the child: the pipes become files 3 and 4, whatever numbers they have now.
[[noreturn]] void Exec(const std::string& program, const std::string& folder, int in, int out) {
  // First out of the way of each other.
  const int high_in = fcntl(in, F_DUPFD, 10), high_out = fcntl(out, F_DUPFD, 10);
  dup2(high_in, kReadEnd);
  dup2(high_out, kWriteEnd);
  close(high_in);
  close(high_out);
  const int quiet = open(StrCat(folder, "/browser.log").c_str(), O_CREAT | O_WRONLY, 0600);
  if (quiet >= 0) {
    dup2(quiet, STDOUT_FILENO);
    dup2(quiet, STDERR_FILENO);
  }
  setpgid(0, 0);
  setenv("HOME", folder.c_str(), 1);
  const std::string profile = StrCat("--user-data-dir=", folder, "/profile");
  execlp(program.c_str(), program.c_str(), "--headless", "--remote-debugging-pipe", "--no-sandbox",
         "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
         "--disable-background-networking", "--disable-sync", "--window-size=1400,900",
         profile.c_str(), nullptr);
  _exit(127);
}

}  // namespace

std::string Browser::Find() {
  if (const char* named = std::getenv("MILLRACE_BROWSER"); named != nullptr && *named != '\0') {
    return named;
  }
  const char* const path = std::getenv("PATH");
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    for (const std::string_view folder : StrSplit(path == nullptr ? "" : path, ':')) {
      const std::string program = StrCat(folder, "/", name);
      if (access(program.c_str(), X_OK) == 0) return program;
    }
  }
  return "";
}

std::unique_ptr<Browser> Browser::StartOrSkip(const std::string& folder) {
  const std::string program = Find();
  if (!program.empty()) return Start(program, folder);
  if (std::getenv("MILLRACE_REQUIRE_BROWSER") != nullptr) {
    ADD_FAILURE() << "there is no browser";
  } else {
    [] {
      GTEST_SKIP() << "there is no browser: install chromium, or name one in MILLRACE_BROWSER";
    }();
  }
  return nullptr;
}

std::unique_ptr<Browser> Browser::Start(const std::string& program, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);  // the browser says so if it is not there
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
    ADD_FAILURE() << "no pipes";
    return nullptr;
  }
  signal(SIGPIPE, SIG_IGN);
  const pid_t pid = fork();
  if (pid == 0) Exec(program, folder, to[0], from[1]);
  close(to[0]);
  close(from[1]);
  std::unique_ptr<Browser> browser(new Browser(pid, to[1], from[0]));
  const Json target = browser->Call("Target.createTarget", {{"url", "about:blank"}}, false);
  if (!target.contains("targetId")) return nullptr;
  const Json session = browser->Call("Target.attachToTarget",
                                     {{"targetId", target["targetId"]}, {"flatten", true}}, false);
  if (!session.contains("sessionId")) return nullptr;
  browser->page_ = session["sessionId"].get<std::string>();
  for (const char* domain : {"Page", "Runtime", "Log", "Network"}) {
    browser->Call(StrCat(domain, ".enable"), Json::object());
  }
  browser->Call("Emulation.setDeviceMetricsOverride",
                {{"width", 1400}, {"height", 900}, {"deviceScaleFactor", 1}, {"mobile", false}});
  return browser;
}

Browser::~Browser() {
  close(to_);
  close(from_);
  // It and all that it started; it has nothing to save.
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Browser::Read(Json* message) {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (true) {
    if (const std::size_t nul = buffer_.find('\0'); nul != std::string::npos) {
      *message = Json::parse(buffer_.substr(0, nul), nullptr, /*allow_exceptions=*/false);
      buffer_.erase(0, nul + 1);
      return message->is_object();
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd waits{from_, POLLIN, 0};
    if (left.count() <= 0 || poll(&waits, 1, static_cast<int>(left.count())) <= 0) return false;
    char bytes[65536];
    const ssize_t n = read(from_, bytes, sizeof(bytes));
    if (n <= 0) return false;
    buffer_.append(bytes, static_cast<std::size_t>(n));
  }
}

void Browser::Notice(const Json& event) {
  const std::string method = event.value("method", "");
  if (method == "Page.loadEventFired") ++loads_;
  if (method == "Runtime.exceptionThrown") errors_.push_back(event["params"].dump());
  if (method == "Runtime.consoleAPICalled" && event["params"]["type"] == "error") {
    errors_.push_back(event["params"]["args"].dump());
  }
  if (method == "Log.entryAdded" && event["params"]["entry"]["level"] == "error") {
    errors_.push_back(event["params"]["entry"]["text"].get<std::string>());
  }
  if (method == "Network.requestWillBeSent") {
    const std::string url = event["params"]["request"]["url"].get<std::string>();
    if (url != url_ && !url.starts_with("data:")) requests_.push_back(url);
  }
}

Browser::Json Browser::Call(const std::string& method, Json params, bool to_page) {
  Json command = {{"id", ++last_id_}, {"method", method}, {"params", std::move(params)}};
  if (to_page) command["sessionId"] = page_;
  const std::string text = command.dump() + '\0';
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = write(to_, text.data() + at, text.size() - at);
    if (n <= 0) {
      ADD_FAILURE() << "the browser does not listen";
      return nullptr;
    }
    at += static_cast<std::size_t>(n);
  }
  Json message;
  while (Read(&message)) {
    if (message.value("id", 0) != last_id_) {
      Notice(message);
    } else if (message.contains("result")) {
      return message["result"];
    } else {
      ADD_FAILURE() << method << ": " << message.dump();
      return nullptr;
    }
  }
  ADD_FAILURE() << "the browser does not answer " << method;
  return nullptr;
}

void Browser::Open(const std::string& url) {
  url_ = url;
  const int before = loads_;
  Call("Page.navigate", {{"url", url}});
  Json event;
  while (loads_ == before && Read(&event)) Notice(event);
  EXPECT_GT(loads_, before) << url << " is not loaded";
}

void Browser::Emulate(const Look& look) {
  Call("Emulation.setDeviceMetricsOverride", {{"width", look.width},
                                              {"height", look.height},
                                              {"deviceScaleFactor", look.is_phone ? 2 : 1},
                                              {"mobile", look.is_phone}});
  Call("Emulation.setEmulatedMedia",
       {{"features",
         {{{"name", "prefers-color-scheme"}, {"value", look.dark ? "dark" : "light"}}}}});
}

void Browser::Screenshot(const std::string& file) {
  const Json picture = Call("Page.captureScreenshot", {{"format", "png"}});
  std::string bytes;
  if (!picture.contains("data") ||
      !absl::Base64Unescape(picture["data"].get<std::string>(), &bytes)) {
    ADD_FAILURE() << "no picture for " << file;
    return;
  }
  std::ofstream(file, std::ios::binary) << bytes;
}

Browser::Json Browser::Evaluate(const std::string& expression) {
  const Json answer =
      Call("Runtime.evaluate", {{"expression", expression}, {"returnByValue", true}});
  if (!answer.is_object()) return nullptr;
  if (answer.contains("exceptionDetails")) {
    ADD_FAILURE() << expression << ": " << answer["exceptionDetails"].dump();
    return nullptr;
  }
  return answer["result"].value("value", Json());
}

std::string Browser::Text(const std::string& expression) {
  const Json value = Evaluate(expression);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void Browser::Click(const std::string& selector) {
  const Json point = Evaluate(StrCat("(() => { const e = document.querySelector(`", selector,
                                     "`); if (!e) return null; const r = "
                                     "e.getBoundingClientRect(); const x = r.x + r.width / 2, y = "
                                     "r.y + r.height / 2; const top = document.elementFromPoint(x, "
                                     "y); return e.contains(top) || (top && top.contains(e)) ? "
                                     "[x, y] : null; })()"));
  if (!point.is_array()) {
    ADD_FAILURE() << "nothing to click at: " << selector;
    return;
  }
  for (const char* type : {"mouseMoved", "mousePressed", "mouseReleased"}) {
    Call("Input.dispatchMouseEvent",
         {{"type", type}, {"x", point[0]}, {"y", point[1]}, {"button", "left"}, {"clickCount", 1}});
  }
}

void Browser::Type(const std::string& text) { Call("Input.insertText", {{"text", text}}); }

void Browser::Press(const std::string& key) {
  for (const char* type : {"keyDown", "keyUp"}) {
    Call("Input.dispatchKeyEvent", {{"type", type}, {"key", key}, {"code", key}});
  }
}

}  // namespace millrace::testing
