// SPDX-License-Identifier: Apache-2.0
// The graph that the recordings of monitored sessions are about, and what programs leave behind.
#ifndef TESTS_MONITORED_SESSIONS_GOLDEN_H_
#define TESTS_MONITORED_SESSIONS_GOLDEN_H_

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "millrace/core.h"
#include "millrace/monitored_session.h"

namespace millrace::testing {

using Json = nlohmann::json;

// tests/goldens/training/sessions/hooks.json; ends the test program if it cannot be read.
const Json& Recordings();
// The entry of a list of cases with that name.
const Json& Recording(const std::string& list, const std::string& name);

// A global step, `train`, which adds 1 to it and yields the new value, and `loss`, 2 * train + 1.
// `train` waits for the read of the global step that the stock hooks fetch.
struct TrainingGraph {
  TrainingGraph();
  Graph graph;
  Variable step;
  Output train, loss;
};

// An empty directory for the test that runs, which is gone afterwards.
class TestDirectory {
 public:
  explicit TestDirectory(const std::string& name);
  ~TestDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  // Names in it, sorted, without event files. A checkpoint that took the place of one of the same
  // name has its data in "-of-00002" (io/bundle_files.h); named here as if it had not.
  std::vector<std::string> Files() const;
  std::string Read(const std::string& file) const;
  // `text` without the directory.
  std::string Cut(std::string text) const;

 private:
  std::string path_;
};

// [step, kind, ...] of all events of a directory's files, in the order in which they were written,
// as the recordings have them. A second training of a process has a file of its own, where
// TensorFlow goes on in the first: what it begins with, the version and the graph, is left out.
std::vector<Json> EventsIn(const TestDirectory& directory);

// A scalar, or a list of its elements.
Json ToJson(const Tensor& tensor);
// Of an error as the recordings name it.
StatusCode CodeOf(const std::string& exception);

}  // namespace millrace::testing

#endif  // TESTS_MONITORED_SESSIONS_GOLDEN_H_
