#include "base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "base/clock.h"
#include "base/mutex.h"

namespace millrace {
namespace {

LogLevel LevelFromEnvironment() {
  const char* text = std::getenv("MILLRACE_LOG_LEVEL");
  const std::string_view name = text == nullptr ? "" : text;
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

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

char Letter(LogLevel level) {
  static constexpr std::array<char, 4> kLetters = {'D', 'I', 'W', 'E'};
  return kLetters[static_cast<std::size_t>(level)];
}

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

// One call, so that lines of different threads and processes do not mix.
void WriteToStderr(std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    if (written <= 0) return;
    line.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string FormatLine(char letter, std::source_location where, std::string_view text) {
  std::string task;
  {
    MutexLock lock(&Task().mu);
    task = Task().text;
  }
  return StrCat(TimeText(), " ", letter, " ", task, task.empty() ? "" : " ",
                FileName(where.file_name()), ":", where.line(), "] ", text, "\n");
}

}  // namespace

bool LogEnabled(LogLevel level) { return level >= Level().load(std::memory_order_relaxed); }

void SetLogLevel(LogLevel level) { Level().store(level, std::memory_order_relaxed); }

void SetLogTask(std::string task) {
  MutexLock lock(&Task().mu);
  Task().text = std::move(task);
}

void LogLine(LogLevel level, std::source_location where, std::string_view text) {
  WriteToStderr(FormatLine(Letter(level), where, text));
}

void Fatal(std::source_location where, std::string_view text) {
  WriteToStderr(FormatLine('F', where, text));
  std::abort();
}

}  // namespace millrace
