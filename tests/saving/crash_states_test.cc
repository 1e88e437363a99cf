// SPDX-License-Identifier: Apache-2.0
// Whatever ends the machine while checkpoints are saved, and whatever fails on its disk: the newest
// checkpoint that is complete is found, is whole, and is gone on from. Of savers, managers and
// saves aside, state files included; io/bundle_crash_test.cc has the files of one checkpoint.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/crash_disk.h"
#include "io/file_root.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

constexpr char kFolder[] = "ckpt";
constexpr int kMaxToKeep = 2;

// A file of a disk that several threads use.
class SharedFile : public WritableFile {
 public:
  SharedFile(Mutex* mu, std::unique_ptr<WritableFile> file) : mu_(mu), file_(std::move(file)) {}
  ~SharedFile() override {
    MutexLock lock(mu_);
    file_.reset();
  }
  Status Append(std::string_view bytes) override {
    MutexLock lock(mu_);
    return file_->Append(bytes);
  }
  Status Flush() override { return OkStatus(); }  // that disk has no buffers
  Status Sync() override {
    MutexLock lock(mu_);
    return file_->Sync();
  }
  Status Close() override {
    MutexLock lock(mu_);
    return file_->Close();
  }

 private:
  Mutex* const mu_;
  std::unique_ptr<WritableFile> file_;
};

// What this program has for the files of the machine: a disk in memory, or another one.
class SharedDisk : public FileSystem {
 public:
  void Use(CrashDisk* disk) {
    MutexLock lock(&mu_);
    disk_ = disk;
  }

  StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    MutexLock lock(&mu_);
    MR_ASSIGN_OR_RETURN(auto file, disk_->NewWritableFile(path));
    return std::unique_ptr<WritableFile>(new SharedFile(&mu_, std::move(file)));
  }
  StatusOr<std::unique_ptr<WritableFile>> NewAppendableFile(const std::string& path) override {
    MutexLock lock(&mu_);
    return disk_->NewAppendableFile(path);
  }
  StatusOr<std::unique_ptr<RandomAccessFile>> NewRandomAccessFile(
      const std::string& path) override {
    MutexLock lock(&mu_);
    return disk_->NewRandomAccessFile(path);
  }
  StatusOr<uint64_t> FileSize(const std::string& path) override {
    MutexLock lock(&mu_);
    return disk_->FileSize(path);
  }
  bool FileExists(const std::string& path) override {
    MutexLock lock(&mu_);
    return disk_->FileExists(path);
  }
  bool IsDirectory(const std::string& path) override {
    MutexLock lock(&mu_);
    return !disk_->FileExists(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    MutexLock lock(&mu_);
    return disk_->Rename(from, to);
  }
  Status Link(const std::string& from, const std::string& to) override {
    MutexLock lock(&mu_);
    return disk_->Link(from, to);
  }
  Status SyncPath(const std::string& path) override {
    MutexLock lock(&mu_);
    return disk_->SyncPath(path);
  }
  Status DeleteFile(const std::string& path) override {
    MutexLock lock(&mu_);
    return disk_->DeleteFile(path);
  }
  StatusOr<bool> DeleteUnlessWritten(const std::string& path) override {
    MutexLock lock(&mu_);
    return disk_->DeleteUnlessWritten(path);
  }
  Status DeleteDirectory(const std::string&) override { return OkStatus(); }
  Status CreateDirectories(const std::string&) override { return OkStatus(); }
  StatusOr<std::vector<std::string>> List(const std::string& path) override {
    MutexLock lock(&mu_);
    return disk_->List(path);
  }

 private:
  Mutex mu_;
  CrashDisk* disk_ ABSL_GUARDED_BY(mu_) = nullptr;
};

SharedDisk& Disk() {
  static SharedDisk* const disk = [] {
    auto* const made = new SharedDisk;
    ReplacePosixFileSystem(made);
    return made;
  }();
  return *disk;
}

// A program whose variables have the number of the checkpoint that is saved next.
class Program {
 public:
  enum class Way { kSaver, kSharded, kManager, kAside };

  explicit Program(Way way) : way_(way) {
    a_ = FloatVariable(graph_.root(), "a", {0, 0});
    b_ = FloatVariable(graph_.root(), "b", {0, 0, 0}, /*use_resource=*/true);
    const Operation init = InitializeVariables(graph_.root());
    if (way == Way::kSaver || way == Way::kSharded) {
      saver_ = *Saver::Create(graph_, {.sharded = way == Way::kSharded, .max_to_keep = kMaxToKeep});
    } else {
      checkpoint_ = *Checkpoint::Create(graph_, {{"a", a_}, {"b", b_}});
    }
    if (way == Way::kManager) {
      manager_ = *CheckpointManager::Create(checkpoint_.get(),
                                            {.directory = kFolder, .max_to_keep = kMaxToKeep});
    }
    session_.emplace(*Session::Create(graph_));
    EXPECT_TRUE(session_->RunTargets({init}).ok());
  }

  // The checkpoint of number `number`, by the count of a Checkpoint.
  Status Save(int64_t number) {
    const float value = static_cast<float>(number);
    MR_RETURN_IF_ERROR(SetFloats(graph_, *session_, a_, {value, value}));
    MR_RETURN_IF_ERROR(SetFloats(graph_, *session_, b_, {value, value, value}));
    const std::string prefix = StrCat(kFolder, "/model");
    switch (way_) {
      case Way::kSaver:
      case Way::kSharded:
        return saver_->Save(*session_, prefix, {.global_step = number}).status();
      case Way::kManager:
        return manager_->Save(*session_, number).status();
      case Way::kAside:
        MR_RETURN_IF_ERROR(checkpoint_->SaveAsync(*session_, prefix).status());
        return checkpoint_->Sync();
    }
    return OkStatus();
  }
  Status Restore(const std::string& prefix) {
    if (saver_ != nullptr) return saver_->Restore(*session_, prefix);
    MR_ASSIGN_OR_RETURN(const LoadStatus status, checkpoint_->Restore(*session_, prefix));
    return status.AssertConsumed();
  }
  std::vector<float> Values() {
    std::vector<float> values = FloatsOf(*session_, a_);
    for (const float value : FloatsOf(*session_, b_)) values.push_back(value);
    return values;
  }

 private:
  const Way way_;
  Graph graph_;
  Variable a_, b_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<CheckpointManager> manager_;
  std::optional<Session> session_;
};

std::string Names(const CrashDisk::Contents& contents) {
  std::string names;
  for (const auto& [name, content] : contents)
    StrAppend(&names, " ", name, "(", content.size(), ")");
  return names;
}

// The number of the checkpoint that LatestCheckpoint finds, 0 for none. All of it must be there,
// and of one save.
int64_t NewestNumber() {
  const std::string newest = LatestCheckpoint(kFolder);
  if (newest.empty()) return 0;
  int64_t number = -1;
  EXPECT_TRUE(ParseInt64(std::string_view(newest).substr(newest.rfind('-') + 1), &number));
  const auto tensors = ReadTensors(newest);
  EXPECT_TRUE(tensors.ok()) << tensors.status();
  if (!tensors.ok()) return -1;
  int floats = 0;
  for (const auto& [name, tensor] : *tensors) {
    if (tensor.dtype() != kFloat) continue;
    ++floats;
    for (const float value : tensor.flat<float>()) {
      EXPECT_EQ(value, static_cast<float>(number)) << name << " of " << newest;
    }
  }
  EXPECT_EQ(floats, 2) << newest;
  return number;
}

class CrashStates : public ::testing::TestWithParam<Program::Way> {
 protected:
  ~CrashStates() override { Disk().Use(nullptr); }

  // A program that starts on such a disk restores the newest checkpoint and saves the next one.
  void ExpectGoesOn(int64_t number) {
    Program program(GetParam());
    if (number > 0) {
      const Status restored = program.Restore(LatestCheckpoint(kFolder));
      ASSERT_TRUE(restored.ok()) << restored;
      EXPECT_EQ(program.Values(), std::vector<float>(5, static_cast<float>(number)));
    }
    const Status saved = program.Save(number + 1);
    ASSERT_TRUE(saved.ok()) << saved;
    EXPECT_EQ(NewestNumber(), number + 1);
  }
};

std::string NameOfWay(const ::testing::TestParamInfo<Program::Way>& info) {
  constexpr const char* kNames[] = {"Saver", "Sharded", "Manager", "Aside"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(All, CrashStates,
                         ::testing::Values(Program::Way::kSaver, Program::Way::kSharded,
                                           Program::Way::kManager, Program::Way::kAside),
                         NameOfWay);

TEST_P(CrashStates, AfterEveryLossOfPowerTheNewestCompleteCheckpointIsRestored) {
  constexpr int64_t kSaves = 5;
  constexpr std::size_t kGoOnEvery = 40;
  CrashDisk disk;
  Disk().Use(&disk);
  Program program(GetParam());
  // What may be left, and the newest that must be: one whose save had returned.
  std::map<CrashDisk::Contents, int64_t> states;
  int64_t saved = 0;
  const auto collect = [&] {
    for (const CrashDisk::Contents& contents : disk.AfterPowerLoss(kFolder)) {
      int64_t& least = states[contents];
      least = std::max(least, saved);
    }
  };
  std::size_t checked = 0;
  while (saved < kSaves) {
    disk.after_change = collect;
    const Status status = program.Save(saved + 1);
    disk.after_change = nullptr;
    ASSERT_TRUE(status.ok()) << status;
    ++saved;
    collect();  // all that the save promises is on the disk
    for (const auto& [contents, least] : states) {
      SCOPED_TRACE(Names(contents));
      CrashDisk after(contents);
      Disk().Use(&after);
      const int64_t number = NewestNumber();
      ASSERT_GE(number, least);
      ASSERT_LE(number, saved);
      if (checked++ % kGoOnEvery == 0) ExpectGoesOn(number);
      ASSERT_FALSE(HasFailure());
    }
    states.clear();
    Disk().Use(&disk);
  }
  RecordProperty("states", static_cast<int>(checked));
  EXPECT_GE(checked, 200u);
}

TEST_P(CrashStates, ADiskThatFailsOrIsFullCostsAtMostTheCheckpointThatIsBeingSaved) {
  CrashDisk::Contents before;
  {
    CrashDisk disk;
    Disk().Use(&disk);
    Program program(GetParam());
    for (const int64_t number : {1, 2}) ASSERT_TRUE(program.Save(number).ok());
    before = disk.Now();
  }
  for (const auto failure : {CrashDisk::Failure::kOnce, CrashDisk::Failure::kFull}) {
    int failed = 0;
    for (int fails_at = 0;; ++fails_at) {
      SCOPED_TRACE(
          StrCat("operation ", fails_at, failure == CrashDisk::Failure::kFull ? ", full" : ""));
      CrashDisk disk(before);
      Disk().Use(&disk);
      Program program(GetParam());
      ASSERT_TRUE(program.Restore(LatestCheckpoint(kFolder)).ok());
      disk.operations = 0;
      disk.failure = failure;
      disk.fails_at = fails_at;
      const Status status = program.Save(3);
      const int operations = disk.operations;
      disk.fails_at = -1;
      failed += status.ok() ? 0 : 1;
      if (!status.ok()) {
        EXPECT_EQ(errors::IsResourceExhausted(status), failure == CrashDisk::Failure::kFull)
            << status;
        EXPECT_NE(status.message().find(kFolder), std::string::npos)
            << "it names the file: " << status;
      }
      const int64_t number = NewestNumber();
      EXPECT_TRUE(status.ok() ? number == 3 : number == 2 || number == 3) << number;
      const Status next = program.Save(4);
      ASSERT_TRUE(next.ok()) << next;
      EXPECT_EQ(NewestNumber(), 4);
      ASSERT_FALSE(HasFailure());
      if (operations <= fails_at) break;
    }
    EXPECT_GE(failed, 4);
  }
}

}  // namespace
}  // namespace millrace::testing
