// SPDX-License-Identifier: Apache-2.0
// What TensorFlow's Saver leaves on the disk after every save, under a clock that is told the time.
#include <gtest/gtest.h>

#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

struct FakeClock {
  double now;
  CheckpointClock Get() {
    return [this] { return now; };
  }
};

SaverOptions OptionsOf(const Json& arguments, FakeClock& clock) {
  SaverOptions options;
  options.clock = clock.Get();
  options.max_to_keep = arguments.value("max_to_keep", options.max_to_keep);
  options.keep_checkpoint_every_n_hours =
      arguments.value("keep_checkpoint_every_n_hours", options.keep_checkpoint_every_n_hours);
  options.save_relative_paths = arguments.value("save_relative_paths", false);
  options.pad_step_number = arguments.value("pad_step_number", false);
  options.sharded = arguments.value("sharded", false);
  return options;
}

SaveOptions OptionsOf(const Json& arguments) {
  SaveOptions options;
  options.latest_filename = arguments.value("latest_filename", options.latest_filename);
  options.write_meta_graph = arguments.value("write_meta_graph", true);
  options.write_state = arguments.value("write_state", true);
  options.meta_graph_suffix = arguments.value("meta_graph_suffix", options.meta_graph_suffix);
  return options;
}

std::string Without(std::string text, const std::string& folder) {
  for (std::size_t at; (at = text.find(folder + "/")) != std::string::npos;) {
    text.erase(at, folder.size() + 1);
  }
  return text;
}

void RunCase(const Json& golden, const std::string& folder) {
  FakeClock clock{golden["created_at"].get<double>()};
  Graph graph;
  FloatVariable(graph.root(), "v", {1, 2});
  const auto saver = Saver::Create(graph, OptionsOf(golden["arguments"], clock));
  ASSERT_TRUE(saver.ok()) << saver.status();
  const Operation init = InitializeVariables(graph.root());
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({init}).ok());
  SaveOptions options = OptionsOf(golden["save_arguments"]);
  for (const Json& want : golden["saves"]) {
    clock.now += golden["seconds_between_saves"].get<double>();
    if (!golden["without_global_step"].get<bool>()) options.global_step = want["global_step"];
    const auto saved = (*saver)->Save(session, folder + "/model.ckpt", options);
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ(Without(*saved, folder), want["returned"]);
    EXPECT_EQ(FilesAsWrittenFirst(folder), want["files"].get<std::vector<std::string>>());
    std::vector<std::string> last;
    for (const std::string& path : (*saver)->last_checkpoints()) {
      last.push_back(Without(path, folder));
    }
    EXPECT_EQ(last, want["last_checkpoints"].get<std::vector<std::string>>());
    EXPECT_EQ(Without(FileText(folder + "/" + options.latest_filename), folder),
              want["state_file"]);
  }
  EXPECT_EQ(Without(LatestCheckpoint(folder, options.latest_filename), folder),
            golden["latest_checkpoint"].is_null() ? "" : golden["latest_checkpoint"]);
}

TEST(SaverGoldenTest, FilesStateAndListAreTensorFlowsAfterEverySave) {
  int passed = 0, left_out = 0, number = 0;
  const Json cases = LoadJson("training/callbacks/saver.json")["cases"];
  for (const Json& golden : cases) {
    SCOPED_TRACE(golden["arguments"].dump());
    ++number;
    if (golden["arguments"].value("write_version", 2) != 2) {
      ++left_out;  // the format before this one is not written
      continue;
    }
    RunCase(golden, EmptyFolder(std::to_string(number)));
    if (::testing::Test::HasFatalFailure()) return;
    ++passed;
  }
  std::printf("saver: %d of %zu run (%d left out)\n", passed, cases.size(), left_out);
  EXPECT_GT(passed, 0) << "there is nothing to compare with";
  EXPECT_EQ(left_out, 1);
}

// A checkpoint that TensorFlow's Saver wrote: variables, slices of a partitioned one, a resource.
TEST(SaverGoldenTest, TensorFlowsCheckpointIsRestored) {
  const std::string prefix = LatestCheckpoint(GoldenPath("checkpoints/saver"));
  ASSERT_NE(prefix, "");
  const auto reader = CheckpointReader::Open(prefix);
  ASSERT_TRUE(reader.ok()) << reader.status();
  Graph graph;
  std::vector<Variable> variables;
  for (const CheckpointReader::Entry& entry : (*reader)->entries()) {
    variables.push_back(MakeVariable(graph.root(), entry.name,
                                     Constant(graph.root(), Tensor(entry.dtype, entry.shape))));
  }
  const auto saver = Saver::Create(graph);
  ASSERT_TRUE(saver.ok()) << saver.status();
  Session session = *Session::Create(graph);
  const Status restored = (*saver)->Restore(session, prefix);
  ASSERT_TRUE(restored.ok()) << restored;
  for (const Variable& v : variables) {
    EXPECT_TRUE(TensorsEqual(*session.Eval(v.read), *(*reader)->Read(v.name()))) << v.name();
  }
  EXPECT_EQ(variables.size(), 4u);
}

}  // namespace
}  // namespace millrace::testing
