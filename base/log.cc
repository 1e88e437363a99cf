// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/text/utf8.h"

namespace millrace {

bool LogIsJson();
int64_t& RequestOfThread();

namespace {

LogLevel LevelFromEnvironment();

std::atomic<LogLevel>& Level() {
  static std::atomic<LogLevel> level{LevelFromEnvironment()};
  return level;
}

struct TaskName {
  Mutex mu;
  std::string text ABSL_GUARDED_BY(mu);
};

TaskName& Task() {
  static auto* const task = new TaskName;
  return *task;
}

constexpr std::array<std::string_view, 5> kSeverities = {"DEBUG", "INFO", "WARNING", "ERROR",
                                                         "FATAL"};

// "2026-01-31 23:59:59.123456", in UTC so that lines of many machines sort together.
std::string TimeText() {
  const int64_t micros = WallMicros();
  const std::time_t seconds = micros / 1'000'000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char date[32];
  const std::size_t length = std::strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &parts);
  char fraction[16];
  std::snprintf(fraction, sizeof(fraction), ".%06d", static_cast<int>(micros % 1'000'000));
  return std::string(date, length) + fraction;
}

std::string_view FileName(const char* path) {
  const std::string_view text = path;
  const std::size_t slash = text.rfind('/');
  return slash == std::string_view::npos ? text : text.substr(slash + 1);
}

// A pipe with room for this many bytes takes them at once, in one piece.
constexpr std::size_t kPieceBytes = PIPE_BUF;
// How long a line waits for whoever reads. After that lines are dropped until there is room: logs
// are written by threads on which others depend, that of the deadlines among them.
constexpr int kPatienceMillis = 200;

struct Output {
  Mutex mu;
  int64_t dropped ABSL_GUARDED_BY(mu) = 0;  // lines, since the last one that was written
};

Output& Stderr() {
  static auto* const output = new Output;
  return *output;
}

bool HasRoom(int millis) {
  pollfd polled{STDERR_FILENO, POLLOUT, 0};
  int ready;
  do {
    ready = poll(&polled, 1, millis);
  } while (ready < 0 && errno == EINTR);
  return ready != 0;  // an error is one of write(), too
}

// False if not all of it could be written. Lines of different threads and processes do not mix, but
// for very long ones.
bool WriteToStderr(std::string_view line, int patience_millis) {
  while (!line.empty()) {
    if (!HasRoom(patience_millis)) return false;
    const ssize_t written = write(STDERR_FILENO, line.data(), std::min(line.size(), kPieceBytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return false;
    if (written <= 0) return true;  // closed: nobody will ever read it
    line.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// A string of JSON. A byte that belongs to no character becomes U+FFFD.
void AppendQuoted(std::string_view text, std::string* line) {
  *line += '"';
  while (!text.empty()) {
    const std::size_t length = Utf8Length(text);
    const char c = text[0];
    if (length == 0) {
      *line += "\xEF\xBF\xBD";
    } else if (c == '"' || c == '\\') {
      *line += '\\';
      *line += c;
    } else if (c == '\n') {
      *line += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(c));
      *line += escaped;
    } else {
      line->append(text, 0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  *line += '"';
}

// Of the request that this thread works for; "" for none.
std::string RequestHex() {
  const int64_t id = RequestOfThread();
  return id == 0 ? "" : Hex16(static_cast<uint64_t>(id));
}

std::string JsonLine(std::string_view severity, std::source_location where, std::string_view task,
                     std::string_view text) {
  std::string time = TimeText();
  time[10] = 'T';  // RFC 3339
  std::string line = StrCat("{\"time\":\"", time, "Z\",\"severity\":\"", severity, "\",\"file\":");
  AppendQuoted(FileName(where.file_name()), &line);
  StrAppend(&line, ",\"line\":", where.line());
  if (!task.empty()) {
    line += ",\"task\":";
    AppendQuoted(task, &line);
  }
  if (const std::string request = RequestHex(); !request.empty()) {
    StrAppend(&line, ",\"request\":\"", request, "\"");
  }
  line += ",\"message\":";
  AppendQuoted(text, &line);
  line += "}\n";
  return line;
}

std::string FormatLine(std::string_view severity, std::source_location where,
                       std::string_view text) {
  std::string task;
  {
    MutexLock lock(&Task().mu);
    task = Task().text;
  }
  if (LogIsJson()) return JsonLine(severity, where, task, text);
  std::string request = RequestHex();
  // Some texts, errors above all, name it themselves.
  if (!request.empty()) request = StrCat(" [request ", request, "]");
  if (text.find(request) != std::string_view::npos) request.clear();
  return StrCat(TimeText(), " ", severity.substr(0, 1), " ", task, task.empty() ? "" : " ",
                FileName(where.file_name()), ":", where.line(), "] ", text, request, "\n");
}

// The complaint of a variable that says something else than the words that there are.
std::string NoSuchWord(std::string_view variable, std::string_view value, std::string_view words) {
  std::string shown(value.substr(0, 40));
  std::replace_if(shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return StrCat(variable, "=", shown, " is none of ", words);
}

LogLevel LevelFromEnvironment() {
  const char* text = std::getenv("MILLRACE_LOG_LEVEL");
  const std::string_view name = text == nullptr ? "" : text;
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  if (!name.empty() && name != "info") {
    const std::string why =
        NoSuchWord("MILLRACE_LOG_LEVEL", name, "debug, info, warning, error; it is info");
    (void)WriteToStderr(FormatLine("WARNING", std::source_location::current(), why),
                        kPatienceMillis);
  }
  return LogLevel::kInfo;
}

// The complaint is text: that is what the log is then.
bool JsonFromEnvironment() {
  const char* const text = std::getenv("MILLRACE_LOG_FORMAT");
  const std::string_view format = text == nullptr ? "" : text;
  if (!format.empty() && format != "text" && format != "json") {
    const std::string why = NoSuchWord("MILLRACE_LOG_FORMAT", format, "text, json; it is text");
    (void)WriteToStderr(StrCat(TimeText(), " W log.cc] ", why, "\n"), kPatienceMillis);
  }
  return format == "json";
}

}  // namespace

// Of base/text/log_format.h. Read at the first line, so that a program's --log_format may still set
// it.
bool LogIsJson() {
  static const bool is_json = JsonFromEnvironment();
  return is_json;
}

// Of base/engine_thread.h, which stands on this.
int64_t& RequestOfThread() {
  constinit thread_local int64_t id = 0;
  return id;
}

bool LogEnabled(LogLevel level) { return level >= Level().load(std::memory_order_relaxed); }

void SetLogLevel(LogLevel level) { Level().store(level, std::memory_order_relaxed); }

void SetLogTask(std::string task) {
  MutexLock lock(&Task().mu);
  Task().text = std::move(task);
}

void LogLine(LogLevel level, std::source_location where, std::string_view text) {
  const std::string line = FormatLine(kSeverities[static_cast<std::size_t>(level)], where, text);
  Output& output = Stderr();
  MutexLock lock(&output.mu);
  if (output.dropped > 0) {
    if (!HasRoom(0)) {
      ++output.dropped;
      return;
    }
    const std::string said = StrCat(output.dropped, " lines were lost: nobody read the log");
    const std::string lost = LogIsJson()
                                 ? FormatLine("WARNING", std::source_location::current(), said)
                                 : StrCat("(", said, ")\n");
    if (!WriteToStderr(lost, kPatienceMillis)) return;
    output.dropped = 0;
  }
  if (!WriteToStderr(line, kPatienceMillis)) output.dropped = 1;
}

void Fatal(std::source_location where, std::string_view text) {
  (void)WriteToStderr(FormatLine(kSeverities.back(), where, text), 10 * kPatienceMillis);
  std::abort();
}

}  // namespace millrace
