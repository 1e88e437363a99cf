// SPDX-License-Identifier: Apache-2.0
#include "tests/monitored_sessions/golden.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "base/strings.h"
#include "io/filesystem.h"
#include "io/input_stream.h"
#include "proto/event.pb.h"

namespace millrace::testing {

const Json& Recordings() {
  static const Json* const recordings = [] {
    const char* const given = std::getenv("MILLRACE_GOLDENS");
    const std::string folder = given != nullptr ? given : "tests/goldens/training";
    const std::string path = folder + "/sessions/hooks.json";
    std::ifstream file(path);
    auto* json = new Json(Json::parse(file, nullptr, /*allow_exceptions=*/false));
    if (json->is_discarded()) {
      std::cerr << "cannot read " << path << "\n";
      std::exit(1);
    }
    return json;
  }();
  return *recordings;
}

const Json& Recording(const std::string& list, const std::string& name) {
  for (const Json& entry : Recordings().at(list)) {
    if (entry.at("name") == name) return entry;
  }
  std::cerr << "there is no recording \"" << name << "\" in " << list << "\n";
  std::exit(1);
}

TrainingGraph::TrainingGraph() {
  const Scope root = graph.root();
  step = GlobalStep(root);
  const Scope after = root.WithControlDependencies({step.read});
  train = ops::AssignAdd(after.WithOpName("train"), step.handle, Input(int64_t{1}));
  const Output twice = ops::Mul(root, ops::Cast(root, train, kFloat), 2.0f);
  loss = ops::Add(root.WithOpName("loss"), twice, 1.0f);
}

TestDirectory::TestDirectory(const std::string& name) {
  std::string safe = name;
  std::replace_if(safe.begin(), safe.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  path_ = StrCat(::testing::TempDir(), "/monitored_", getpid(), "_", safe);
  std::filesystem::remove_all(path_);
  std::filesystem::create_directories(path_);
}

std::vector<std::string> TestDirectory::Files() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    std::string name = entry.path().filename();
    if (name.ends_with("-of-00002")) name.back() = '1';
    if (!name.starts_with("events.out.tfevents.")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string TestDirectory::Read(const std::string& file) const {
  std::ifstream in(path_ + "/" + file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string TestDirectory::Cut(std::string text) const {
  const std::string prefix = path_ + "/";
  for (std::size_t at; (at = text.find(prefix)) != std::string::npos;)
    text.erase(at, prefix.size());
  return text;
}

namespace {

const char* NameOf(pb::SessionLog::SessionStatus status) {
  switch (status) {
    case pb::SessionLog::START:
      return "START";
    case pb::SessionLog::STOP:
      return "STOP";
    case pb::SessionLog::CHECKPOINT:
      return "CHECKPOINT";
    default:
      return "";
  }
}

void AddEvent(const pb::Event& event, const TestDirectory& directory, std::vector<Json>* events) {
  if (event.has_session_log()) {
    const pb::SessionLog& log = event.session_log();
    events->push_back(
        {event.step(), "session_log", NameOf(log.status()), directory.Cut(log.checkpoint_path())});
  }
  const std::pair<bool, const char*> kinds[] = {
      {event.what_case() == pb::Event::kFileVersion, "file_version"},
      {event.what_case() == pb::Event::kGraphDef, "graph_def"},
      {event.what_case() == pb::Event::kMetaGraphDef, "meta_graph_def"}};
  for (const auto& [is_of_kind, kind] : kinds) {
    if (is_of_kind) events->push_back({event.step(), kind});
  }
  for (const auto& value : event.summary().value()) {
    events->push_back({event.step(), "summary", value.tag(), value.simple_value()});
  }
}

}  // namespace

std::vector<Json> EventsIn(const TestDirectory& directory) {
  constexpr std::size_t kBeginning = 3;
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    const std::string name = entry.path().filename();
    if (name.starts_with("events.out.tfevents.")) files[name] = entry.path();
  }
  std::vector<Json> events;
  for (const auto& [name, path] : files) {
    auto stream = OpenInputStream(PosixFileSystem(), path, "");
    EXPECT_TRUE(stream.ok()) << stream.status();
    RecordReader records(*std::move(stream), path);
    std::vector<Json> of_file;
    std::string record;
    while (records.ReadRecord(&record).ok()) {
      pb::Event event;
      EXPECT_TRUE(event.ParseFromString(record));
      AddEvent(event, directory, &of_file);
    }
    const std::size_t skipped = events.empty() ? 0 : std::min(kBeginning, of_file.size());
    events.insert(events.end(), of_file.begin() + static_cast<int64_t>(skipped), of_file.end());
  }
  return events;
}

Json ToJson(const Tensor& tensor) {
  Json list = Json::array();
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    if (tensor.dtype() == kInt64) {
      list.push_back(tensor.flat<int64_t>()[i]);
    } else {
      list.push_back(tensor.flat<float>()[i]);
    }
  }
  return tensor.rank() == 0 ? list[0] : list;
}

StatusCode CodeOf(const std::string& exception) {
  if (exception == "AbortedError") return StatusCode::kAborted;
  if (exception == "UnavailableError") return StatusCode::kUnavailable;
  if (exception == "OutOfRangeError" || exception == "StopIteration") {
    return StatusCode::kOutOfRange;
  }
  if (exception == "CancelledError") return StatusCode::kCancelled;
  if (exception == "InternalError") return StatusCode::kInternal;
  if (exception == "ValueError" || exception == "NanLossDuringTrainingError") {
    return StatusCode::kInvalidArgument;
  }
  return StatusCode::kFailedPrecondition;  // RuntimeError
}

}  // namespace millrace::testing
