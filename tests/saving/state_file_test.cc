// SPDX-License-Identifier: Apache-2.0
// State files that are damaged, or cannot be written: who keeps the list goes on with what is
// there, and deletes nothing that the file on the disk names.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "millrace/checkpoint_layout.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// A variable, with a saver and a manager that keep two checkpoints in a folder.
struct Program {
  explicit Program(std::string f) : folder(std::move(f)) {
    v = FloatVariable(graph.root(), "v", {1, 2});
    saver = *Saver::Create(graph, {.max_to_keep = 2});
    checkpoint = *Checkpoint::Create(graph, {{"v", v}});
    const Operation init = InitializeVariables(graph.root());
    session.emplace(*Session::Create(graph));
    EXPECT_TRUE(session->RunTargets({init}).ok());
  }
  StatusOr<std::unique_ptr<CheckpointManager>> Manager() {
    return CheckpointManager::Create(checkpoint.get(), {.directory = folder, .max_to_keep = 2});
  }
  Status Save(int64_t step) {
    return saver->Save(*session, folder + "/model.ckpt", {.global_step = step}).status();
  }

  const std::string folder;
  Graph graph;
  Variable v;
  std::unique_ptr<Saver> saver;
  std::unique_ptr<Checkpoint> checkpoint;
  std::optional<Session> session;
};

// The names of the checkpoints that are there.
Names Indices(const std::string& folder) {
  Names names;
  for (const std::string& file : FilesIn(folder)) {
    if (file.ends_with(".index")) names.push_back(file.substr(0, file.size() - 6));
  }
  return names;
}
Names NamesOf(const Names& prefixes) {
  Names names;
  for (const std::string& prefix : prefixes) names.push_back(fs::path(prefix).filename());
  return names;
}

// While it lives, no state file can be written: a folder has its name.
class NoStateFile {
 public:
  explicit NoStateFile(const std::string& folder) : file_(folder + "/checkpoint") {
    fs::rename(file_, file_ + ".aside");
    fs::create_directories(file_);
  }
  ~NoStateFile() {
    fs::remove(file_);
    fs::rename(file_ + ".aside", file_);
  }

 private:
  const std::string file_;
};

constexpr const char* kDamage[] = {"", "model_checkpoint_path: \"ck", "\x01\x02\x03"};

TEST(ADamagedStateFile, IsMadeAnewOfTheCompleteCheckpoints) {
  const std::string folder = EmptyFolder("it");
  Program p(folder);
  const auto manager = p.Manager();
  ASSERT_TRUE(manager.ok()) << manager.status();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE((*manager)->Save(*p.session).ok());
  // Of somebody else, without a number, and one that is not whole.
  ASSERT_TRUE(WriteTensors(folder + "/other-7", {{"v", Tensor::Scalar(1.0f)}}).ok());
  ASSERT_TRUE(WriteTensors(folder + "/ckpt", {{"v", Tensor::Scalar(1.0f)}}).ok());
  ASSERT_TRUE(WriteTensors(folder + "/ckpt-9", {{"v", Tensor::Scalar(1.0f)}}).ok());
  WriteText(folder + "/ckpt-9.index", FileText(folder + "/ckpt-9.index").substr(0, 20));
  for (const char* text : kDamage) {
    SCOPED_TRACE(text);
    WriteText(folder + "/checkpoint", text);
    const auto state = RecoverCheckpointState(folder, "ckpt");
    ASSERT_TRUE(state.has_value());
    EXPECT_EQ(NamesOf(state->all_model_checkpoint_paths), (Names{"ckpt-1", "ckpt-2"}));
    EXPECT_EQ(state->model_checkpoint_path, folder + "/ckpt-2");
    EXPECT_EQ(state->all_model_checkpoint_timestamps.size(), 2u);
    EXPECT_FALSE(RecoverCheckpointState(folder, "none").has_value());
  }
  const auto by_uri = RecoverCheckpointState("file://" + folder, "ckpt");
  ASSERT_TRUE(by_uri.has_value());
  EXPECT_EQ(NamesOf(by_uri->all_model_checkpoint_paths), (Names{"ckpt-1", "ckpt-2"}));
  fs::remove(folder + "/checkpoint");
  EXPECT_FALSE(RecoverCheckpointState(folder, "ckpt").has_value()) << "there was none";
}

TEST(ADamagedStateFile, DoesNotStopAManager) {
  for (const char* text : kDamage) {
    SCOPED_TRACE(text);
    const std::string folder = EmptyFolder("it");
    {
      Program p(folder);
      const auto manager = p.Manager();
      for (int i = 0; i < 2; ++i) ASSERT_TRUE((*manager)->Save(*p.session).ok());
    }
    WriteText(folder + "/checkpoint", text);
    Program p(folder);
    const auto manager = p.Manager();
    ASSERT_TRUE(manager.ok()) << manager.status();
    EXPECT_EQ(NamesOf((*manager)->checkpoints()), (Names{"ckpt-1", "ckpt-2"}));
    EXPECT_EQ((*manager)->latest_checkpoint(), folder + "/ckpt-2");
    const auto restored = (*manager)->RestoreOrInitialize(*p.session);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(*restored, folder + "/ckpt-2");
    ASSERT_TRUE((*manager)->Save(*p.session).ok());
    // What was there before the damage is deleted in its turn.
    EXPECT_EQ(Indices(folder), (Names{"ckpt-2", "ckpt-3"}));
    const auto state = GetCheckpointState(folder);
    ASSERT_TRUE(state.ok() && state->has_value());
    EXPECT_EQ(NamesOf((*state)->all_model_checkpoint_paths), (Names{"ckpt-2", "ckpt-3"}));
  }
}

TEST(AStateFileThatCannotBeWritten, FailsTheSaveOfASaverAndCostsNothingThatItNames) {
  const std::string folder = EmptyFolder("it");
  Program p(folder);
  for (const int64_t step : {1, 2}) ASSERT_TRUE(p.Save(step).ok());
  {
    const NoStateFile none(folder);
    for (const int64_t step : {3, 4}) {
      const Status failed = p.Save(step);
      EXPECT_FALSE(failed.ok());
      EXPECT_NE(failed.message().find(StrCat(folder, "/model.ckpt-", step, " is on the disk")),
                std::string::npos)
          << failed;
    }
  }
  EXPECT_EQ(NamesOf(p.saver->last_checkpoints()), (Names{"model.ckpt-1", "model.ckpt-2"}));
  EXPECT_EQ(NamesOf((*GetCheckpointState(folder))->all_model_checkpoint_paths),
            (Names{"model.ckpt-1", "model.ckpt-2"}));
  EXPECT_EQ(LatestCheckpoint(folder), folder + "/model.ckpt-2");
  EXPECT_TRUE(CheckpointIsComplete(folder + "/model.ckpt-1"));
  // The next one that is named takes away what the failed ones have left.
  ASSERT_TRUE(p.Save(5).ok());
  EXPECT_EQ(NamesOf(p.saver->last_checkpoints()), (Names{"model.ckpt-2", "model.ckpt-5"}));
  EXPECT_EQ(Indices(folder), (Names{"model.ckpt-2", "model.ckpt-5"}));
}

TEST(AStateFileThatCannotBeWritten, FailsTheSaveOfAManagerAndCostsNothingThatItNames) {
  const std::string folder = EmptyFolder("it");
  Graph graph;
  const Variable step = GlobalStep(graph.root());
  const auto checkpoint = Checkpoint::Create(graph, {{"step", step}});
  const auto manager = CheckpointManager::Create(
      checkpoint->get(), {.directory = folder, .max_to_keep = 2, .step_counter = step});
  ASSERT_TRUE(manager.ok()) << manager.status();
  const Operation init = InitializeVariables(graph.root());
  const Operation count = AssignAdd(graph.root(), step, Tensor::Scalar<int64_t>(1));
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({init}).ok());
  const auto save = [&](int64_t number) { return (*manager)->Save(session, number); };
  for (const int64_t number : {1, 2}) {
    ASSERT_TRUE(session.RunTargets({count}).ok());
    ASSERT_TRUE(save(number).ok());
  }
  ASSERT_TRUE(session.RunTargets({count}).ok());
  {
    const NoStateFile none(folder);
    EXPECT_FALSE(save(3).ok());
  }
  EXPECT_EQ(NamesOf((*manager)->checkpoints()), (Names{"ckpt-1", "ckpt-2"}));
  EXPECT_EQ((*manager)->latest_checkpoint(), folder + "/ckpt-2");
  EXPECT_EQ(NamesOf((*GetCheckpointState(folder))->all_model_checkpoint_paths),
            (Names{"ckpt-1", "ckpt-2"}));
  EXPECT_TRUE(CheckpointIsComplete(folder + "/ckpt-1"));
  // The step has not been saved: it is not taken for one that has.
  const auto again = save(4);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, folder + "/ckpt-4");
  EXPECT_EQ(Indices(folder), (Names{"ckpt-2", "ckpt-4"}));
  EXPECT_EQ(*save(5), "") << "the step has been saved now";
}

TEST(AWorkersOwnFolder, LosesOnlyTheFilesOfThePrefix) {
  const std::string folder = EmptyFolder("it");
  const std::string own = folder + "/workertemp_1";
  fs::create_directories(own);
  const Names others = {"model.ckpt-10.index",  "model.ckpt-10.data-00000-of-00001",
                        "model.index",          "model-2.index",
                        "model_b.index",        "model.ckpt-1x.index",
                        "model.ckpt-1-b.index", "model.ckpt-1.b-5.index",
                        "model.ckpt-1.b.index"};
  const std::string digits(32, 'a');
  const Names of_prefix = {"model.ckpt-1.index",
                           "model.ckpt-1.data-00000-of-00001",
                           "model.ckpt-1.meta",
                           "model.ckpt-1.writer",
                           "model.ckpt-1-7.index",
                           "model.ckpt-1-7.data-00000-of-00002",
                           "model.ckpt-1-7.data-00000-of-00002.tempstate12",
                           "model.ckpt-1.index.tempstate345"};
  for (const std::string& name : others) WriteText(own + "/" + name, "other");
  {
    const WorkerPrefix prefix(/*is_chief=*/false, 1, folder + "/model.ckpt-1");
    EXPECT_EQ(prefix.path(), own + "/model.ckpt-1");
    for (const std::string& name : of_prefix) WriteText(own + "/" + name, "own");
    fs::create_directories(own + "/model.ckpt-1_temp_" + digits);
    fs::create_directories(own + "/model.ckpt-1-7_temp_" + digits);
  }
  Names want = others;
  std::sort(want.begin(), want.end());
  EXPECT_EQ(FilesIn(own), want);
  for (const std::string& name : others) fs::remove(own + "/" + name);
  {
    const WorkerPrefix prefix(/*is_chief=*/false, 1, "file://" + folder + "/model.ckpt-1");
  }
  EXPECT_FALSE(fs::exists(own)) << "nothing else is in it";
}

}  // namespace
}  // namespace millrace::testing
