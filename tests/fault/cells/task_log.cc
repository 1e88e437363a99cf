// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/cells/task_log.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>

namespace millrace::testing {
namespace {

constexpr char kMark[] = "@ ";

// False at the end, and for a line that is not whole yet.
bool NextLine(std::istream& in, std::string* line) { return std::getline(in, *line) && !in.eof(); }

}  // namespace

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<Event> ReadEvents(const std::string& file) {
  std::vector<Event> events;
  std::ifstream in(file);
  for (std::string line; NextLine(in, &line);) {
    if (!line.starts_with(kMark)) continue;
    std::istringstream words(line.substr(sizeof(kMark) - 1));
    Event& event = events.emplace_back();
    words >> event.kind >> event.at >> event.took >> event.step >> event.loss >> event.code;
    std::getline(words >> std::ws, event.text);
  }
  return events;
}

int CountSteps(const std::vector<Event>& events, double since) {
  return static_cast<int>(std::count_if(events.begin(), events.end(), [since](const Event& event) {
    return event.kind == "step" && event.at >= since;
  }));
}

std::vector<Event> ErrorsBetween(const std::vector<Event>& events, double since, double until) {
  std::vector<Event> errors;
  for (const Event& event : events) {
    if (event.is_error() && event.at >= since && event.at <= until) errors.push_back(event);
  }
  return errors;
}

double LongestWait(const std::vector<Event>& events, double since, double until) {
  double longest = 0;
  for (const Event& event : events) {
    if (event.at >= since && event.at <= until) longest = std::max(longest, event.took);
  }
  return longest;
}

std::string OtherLines(const std::string& file) {
  constexpr std::size_t kMost = 4096;
  std::string text;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(kMark)) text += line + "\n";
  }
  return text.size() > kMost ? text.substr(text.size() - kMost) : text;
}

}  // namespace millrace::testing
