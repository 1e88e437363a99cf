// SPDX-License-Identifier: Apache-2.0
// Saves that are written beside training: what steps wait for, what is in the files, and where
// errors appear.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "io/file_root.h"
#include "io/filesystem.h"
#include "io/posix_files.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

using Floats = std::vector<float>;

// A file of which one call fails, as it does on a disk that is full or broken.
class FaultyFile : public WritableFile {
 public:
  FaultyFile(std::unique_ptr<WritableFile> file, std::string call, Status fault)
      : file_(std::move(file)), call_(std::move(call)), fault_(std::move(fault)) {}
  Status Append(std::string_view bytes) override {
    return call_ == "append" ? fault_ : file_->Append(bytes);
  }
  Status Flush() override { return call_ == "flush" ? fault_ : file_->Flush(); }
  Status Sync() override { return call_ == "sync" ? fault_ : file_->Sync(); }
  Status Close() override {
    const Status closed = file_->Close();
    return call_ == "close" ? fault_ : closed;
  }

 private:
  const std::unique_ptr<WritableFile> file_;
  const std::string call_;
  const Status fault_;
};

// The files of the machine, but for those with tensors, which cannot be opened for writing while
// the gate is shut: so long a write takes. Files whose names have some text may fail.
class GatedFiles : public FileSystem {
 public:
  explicit GatedFiles(FileSystem* files) : files_(files) {}

  void Shut(bool shut) {
    const std::lock_guard lock(mu_);
    shut_ = shut;
    changed_.notify_all();
  }
  // "": none.
  void Fail(const std::string& name, const std::string& call, const Status& fault) {
    const std::lock_guard lock(mu_);
    faulty_ = name;
    call_ = call;
    fault_ = fault;
  }

  StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    if (path.find(".data-") != std::string::npos) {
      std::unique_lock lock(mu_);
      if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return !shut_; })) {
        return errors::DeadlineExceeded("the gate stays shut");
      }
    }
    const std::lock_guard lock(mu_);
    const bool fails = !faulty_.empty() && path.find(faulty_) != std::string::npos;
    if (fails && call_ == "open") return fault_;
    auto file = files_->NewWritableFile(path);
    if (!file.ok() || !fails) return file;
    return std::unique_ptr<WritableFile>(new FaultyFile(*std::move(file), call_, fault_));
  }
  StatusOr<std::unique_ptr<WritableFile>> NewAppendableFile(const std::string& path) override {
    return files_->NewAppendableFile(path);
  }
  StatusOr<std::unique_ptr<RandomAccessFile>> NewRandomAccessFile(
      const std::string& path) override {
    return files_->NewRandomAccessFile(path);
  }
  StatusOr<uint64_t> FileSize(const std::string& path) override { return files_->FileSize(path); }
  bool FileExists(const std::string& path) override { return files_->FileExists(path); }
  bool IsDirectory(const std::string& path) override { return files_->IsDirectory(path); }
  Status Rename(const std::string& from, const std::string& to) override {
    return files_->Rename(from, to);
  }
  Status Link(const std::string& from, const std::string& to) override {
    return files_->Link(from, to);
  }
  Status SyncPath(const std::string& path) override { return files_->SyncPath(path); }
  Status DeleteFile(const std::string& path) override { return files_->DeleteFile(path); }
  StatusOr<bool> DeleteUnlessWritten(const std::string& path) override {
    return files_->DeleteUnlessWritten(path);
  }
  Status DeleteDirectory(const std::string& path) override { return files_->DeleteDirectory(path); }
  Status CreateDirectories(const std::string& path) override {
    return files_->CreateDirectories(path);
  }
  StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return files_->List(path);
  }

 private:
  FileSystem* const files_;
  std::mutex mu_;
  std::condition_variable changed_;
  bool shut_ = false;
  std::string faulty_, call_;  // of files with this in their names this call fails
  Status fault_;
};

GatedFiles& Gate() {
  static GatedFiles* const gate = [] {
    auto* const made = new GatedFiles(PosixFileSystem());
    ReplacePosixFileSystem(made);
    return made;
  }();
  return *gate;
}

class ShutGate {
 public:
  ShutGate() { Gate().Shut(true); }
  ~ShutGate() { Gate().Shut(false); }
};

// Variables of both kinds, on as many parameter servers as there are (0: in this process), and a
// step that adds 1 to each.
struct Training {
  explicit Training(int num_ps = 0) {
    if (num_ps > 0) cluster.emplace(num_ps, 1);
    std::vector<Operation> updates;
    for (int i = 0; i < 4; ++i) {
      const Scope scope =
          num_ps == 0 ? graph.root()
                      : graph.root().WithDevice(StrCat("/job:ps/task:", i % num_ps, "/cpu:0"));
      const auto value = static_cast<float>(10 * i);
      variables.push_back(FloatVariable(scope, StrCat("v", i), {value, value}, i % 2 == 1));
      updates.push_back(AssignAdd(scope, variables.back(), Tensor::FromValues<float>({1, 1}, {2})));
    }
    step = Group(graph.root(), updates);
    init = InitializeVariables(graph.root());
  }
  void Start() {
    SessionOptions options;
    if (cluster) options.target = cluster->Target("worker", 0);
    session.emplace(*Session::Create(graph, options));
    EXPECT_TRUE(session->RunTargets({init}).ok());
  }
  void Steps(int count) {
    for (int i = 0; i < count; ++i) {
      const Status status = session->RunTargets({step});
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  void ExpectStep(int count) {
    for (int i = 0; i < 4; ++i) {
      const auto value = static_cast<float>(10 * i + count);
      EXPECT_EQ(FloatsOf(*session, variables[i]), (Floats{value, value})) << "variable " << i;
    }
  }
  std::map<std::string, Trackable> Objects() const {
    std::map<std::string, Trackable> objects;
    for (const Variable& v : variables) objects.emplace(v.name(), v);
    return objects;
  }

  std::optional<InProcessCluster> cluster;
  Graph graph;
  std::vector<Variable> variables;
  Operation step, init;
  std::optional<Session> session;
};

std::unique_ptr<Saver> MakeSaver(Graph& graph, SaverOptions options = {}) {
  options.asynchronous = true;
  auto saver = Saver::Create(graph, std::move(options));
  EXPECT_TRUE(saver.ok()) << saver.status();
  return *std::move(saver);
}

class Aside : public ::testing::Test {
 protected:
  Aside() { Gate(); }
};

TEST_F(Aside, StepsGoOnWhileASaverWritesTheValuesOfTheMoment) {
  const std::string folder = EmptyFolder("it");
  Training t;
  const auto saver = MakeSaver(t.graph);
  t.Start();
  t.Steps(3);
  std::optional<ShutGate> gate(std::in_place);
  const auto saved = saver->Save(*t.session, folder + "/m", {.global_step = 3});
  ASSERT_TRUE(saved.ok()) << saved.status();
  t.Steps(20);
  EXPECT_EQ(LatestCheckpoint(folder), "") << "it is not written yet";
  gate.reset();
  const Status written = saver->Sync();
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_EQ(LatestCheckpoint(folder), *saved);
  EXPECT_EQ(FilesIn(folder), (std::vector<std::string>{"checkpoint", "m-3.data-00000-of-00001",
                                                       "m-3.index", "m-3.meta"}));
  t.ExpectStep(23);
  ASSERT_TRUE(saver->Restore(*t.session, *saved).ok());
  t.ExpectStep(3);
}

TEST_F(Aside, EveryTaskWritesWhatItHasTaken) {
  const std::string folder = EmptyFolder("it");
  Training t(2);
  const auto saver = MakeSaver(t.graph, {.sharded = true});
  const auto checkpoint =
      Checkpoint::Create(t.graph, t.Objects(), {.counter_device = "/job:ps/task:0/cpu:0"});
  t.Start();
  t.Steps(1);
  std::optional<ShutGate> gate(std::in_place);
  const auto saved = saver->Save(*t.session, folder + "/m", {.global_step = 1});
  ASSERT_TRUE(saved.ok()) << saved.status();
  t.Steps(5);
  const auto objects = (*checkpoint)->SaveAsync(*t.session, folder + "/c");
  ASSERT_TRUE(objects.ok()) << objects.status();
  t.Steps(5);
  gate.reset();
  ASSERT_TRUE(saver->Sync().ok());
  ASSERT_TRUE((*checkpoint)->Sync().ok());
  EXPECT_EQ((*CheckpointReader::Open(*saved))->num_files(), 2);
  EXPECT_EQ((*CheckpointReader::Open(*objects))->num_files(), 2);
  ASSERT_TRUE(saver->Restore(*t.session, *saved).ok());
  t.ExpectStep(1);
  auto status = (*checkpoint)->Restore(*t.session, *objects);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_TRUE(status->AssertConsumed().ok()) << status->AssertConsumed();
  t.ExpectStep(6);
  for (const std::string& name : FilesIn(folder)) {
    EXPECT_EQ(name.find("_temp_"), std::string::npos) << name;
  }
}

TEST_F(Aside, TheErrorOfAWriteIsThatOfTheNextSave) {
  const std::string folder = EmptyFolder("it");
  Training t;
  const auto saver = MakeSaver(t.graph);
  t.Start();
  WriteText(folder + "/file", "");
  ASSERT_TRUE(saver->Save(*t.session, folder + "/file/m").ok());
  const Status before = saver->Save(*t.session, folder + "/m").status();
  EXPECT_TRUE(errors::IsInvalidArgument(before)) << before;
  EXPECT_NE(before.message().find("/file/m"), std::string::npos) << before;
  EXPECT_EQ(FilesIn(folder), std::vector<std::string>{"file"});
  ASSERT_TRUE(saver->Save(*t.session, folder + "/m").ok());
  EXPECT_TRUE(saver->Sync().ok());
  EXPECT_TRUE(CheckpointIsComplete(folder + "/m"));
}

// A disk that is full, or broken, at any moment of a write: the step that was to wait for nothing
// has not failed, the next save tells it once and saves nothing, and the one after it is whole.
TEST_F(Aside, AFullOrBrokenDiskIsToldOnceByTheNextSave) {
  const std::string folder = EmptyFolder("it");
  Training t(1);
  const auto saver = MakeSaver(t.graph, {.sharded = true});
  const auto checkpoint =
      Checkpoint::Create(t.graph, t.Objects(), {.counter_device = "/job:ps/task:0/cpu:0"});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  t.Start();
  // Unavailable would be a task that is lost.
  EXPECT_EQ(FileError(EIO, "write", "a file").code(), StatusCode::kUnknown);
  const Status faults[] = {
      FileError(ENOSPC, "write", "a file"),
      FileError(EIO, "write", "a file"),
  };
  const std::pair<const char*, std::vector<const char*>> places[] = {
      {".data-", {"open", "append", "sync"}},
      {".index", {"open", "append", "sync"}},
  };
  int64_t step = 0;
  const auto expect_told = [&](const Status& told, const Status& fault) {
    EXPECT_EQ(told.code(), fault.code()) << told;
    EXPECT_NE(told.message().find(fault.message()), std::string::npos) << told;
  };
  for (const Status& fault : faults) {
    for (const auto& [name, calls] : places) {
      for (const char* call : calls) {
        SCOPED_TRACE(StrCat(fault.message(), " at ", call, " of ", name));
        const std::string lost = StrCat(folder, "/lost-", ++step), kept = StrCat(folder, "/m");
        Gate().Fail(name, call, fault);
        ASSERT_TRUE(saver->Save(*t.session, lost, {.write_meta_graph = false}).ok());
        t.Steps(1);
        const Status told = saver->Save(*t.session, lost + "_too").status();
        Gate().Fail("", "", OkStatus());
        expect_told(told, fault);
        EXPECT_FALSE(CheckpointExists(lost)) << "nothing is left of it";
        EXPECT_FALSE(CheckpointExists(lost + "_too"));
        const auto saved =
            saver->Save(*t.session, kept, {.global_step = step, .write_meta_graph = false});
        ASSERT_TRUE(saved.ok()) << "told a second time: " << saved.status();
        ASSERT_TRUE(saver->Sync().ok());
        EXPECT_TRUE(CheckpointIsComplete(*saved));
        EXPECT_EQ(LatestCheckpoint(folder), *saved);
        // Of objects; and who saves no more hears it from Sync.
        Gate().Fail(name, call, fault);
        ASSERT_TRUE((*checkpoint)->WriteAsync(*t.session, lost).ok());
        expect_told((*checkpoint)->Sync(), fault);
        Gate().Fail("", "", OkStatus());
        EXPECT_TRUE((*checkpoint)->Sync().ok()) << "told a second time";
        ASSERT_TRUE((*checkpoint)->WriteAsync(*t.session, folder + "/c").ok());
        ASSERT_TRUE((*checkpoint)->Sync().ok());
        EXPECT_TRUE(CheckpointIsComplete(folder + "/c"));
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

TEST_F(Aside, OldCheckpointsGoWhenTheNewOneIsComplete) {
  const std::string folder = EmptyFolder("it");
  Training t;
  const auto saver = MakeSaver(t.graph, {.max_to_keep = 2});
  t.Start();
  for (int64_t step = 1; step <= 4; ++step) {
    ASSERT_TRUE(saver->Save(*t.session, folder + "/m", {.global_step = step}).ok());
  }
  EXPECT_EQ(saver->last_checkpoints(),
            (std::vector<std::string>{folder + "/m-3", folder + "/m-4"}));
  EXPECT_FALSE(CheckpointExists(folder + "/m-2"));
  std::optional<ShutGate> gate(std::in_place);
  ASSERT_TRUE(saver->Save(*t.session, folder + "/m", {.global_step = 5}).ok());
  EXPECT_TRUE(CheckpointIsComplete(folder + "/m-3"));
  gate.reset();
  ASSERT_TRUE(saver->Sync().ok());
  EXPECT_FALSE(CheckpointExists(folder + "/m-3"));
}

TEST_F(Aside, AManagerKeepsItsNumberAndIsGoneOnWith) {
  const std::string folder = EmptyFolder("it");
  Training t;
  const auto checkpoint = Checkpoint::Create(t.graph, t.Objects());
  t.Start();
  const CheckpointManagerOptions options{
      .directory = folder, .max_to_keep = 2, .asynchronous = true};
  {
    auto manager = CheckpointManager::Create(checkpoint->get(), options);
    ASSERT_TRUE(manager.ok()) << manager.status();
    for (int i = 0; i < 3; ++i) {
      t.Steps(1);
      {
        const ShutGate gate;
        const auto saved = (*manager)->Save(*t.session);
        ASSERT_TRUE(saved.ok()) << saved.status();
        t.Steps(1);
      }
      ASSERT_TRUE((*manager)->Sync().ok());
    }
    EXPECT_EQ((*manager)->latest_checkpoint(), folder + "/ckpt-3");
    ASSERT_TRUE((*manager)->Save(*t.session).ok());
  }
  auto manager = CheckpointManager::Create(checkpoint->get(), options);
  EXPECT_EQ((*manager)->checkpoints(),
            (std::vector<std::string>{folder + "/ckpt-3", folder + "/ckpt-4"}));
  t.Steps(5);
  EXPECT_EQ(*(*manager)->RestoreOrInitialize(*t.session), folder + "/ckpt-4");
  t.ExpectStep(6);
}

TEST_F(Aside, ASessionThatIsClosedLeavesTheOlderCheckpoint) {
  const std::string folder = EmptyFolder("it");
  Training t;
  const auto saver = MakeSaver(t.graph);
  t.Start();
  ASSERT_TRUE(saver->Save(*t.session, folder + "/m", {.global_step = 1}).ok());
  ASSERT_TRUE(saver->Sync().ok());
  {
    const ShutGate gate;
    ASSERT_TRUE(saver->Save(*t.session, folder + "/m", {.global_step = 2}).ok());
    std::thread closing([&] { EXPECT_TRUE(t.session->Close().ok()); });
    Gate().Shut(false);
    closing.join();
  }
  const Status written = saver->Sync();  // it may have been faster
  if (!written.ok()) {
    // Cancelled when it was all but done: whole, and in no state file.
    EXPECT_TRUE(!CheckpointExists(folder + "/m-2") || CheckpointIsComplete(folder + "/m-2"))
        << written;
    EXPECT_EQ(LatestCheckpoint(folder), folder + "/m-1");
  }
  EXPECT_TRUE(CheckpointIsComplete(LatestCheckpoint(folder)));
}

TEST_F(Aside, OfTwoThatWriteToOnePrefixTheSecondIsRefused) {
  const std::string folder = EmptyFolder("it");
  Training t;
  const auto first = MakeSaver(t.graph), second = MakeSaver(t.graph, {.name = "second"});
  t.Start();
  std::optional<ShutGate> gate(std::in_place);
  ASSERT_TRUE(first->Save(*t.session, folder + "/m").ok());
  // The first has begun.
  for (int i = 0; i < 6000 && !PosixFileSystem()->FileExists(folder + "/m.writer"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(second->Save(*t.session, folder + "/m").ok());
  const Status refused = second->Sync();
  EXPECT_TRUE(errors::IsFailedPrecondition(refused)) << refused;
  EXPECT_NE(refused.message().find("is writing the checkpoint"), std::string::npos) << refused;
  gate.reset();
  EXPECT_TRUE(first->Sync().ok());
  EXPECT_TRUE(CheckpointIsComplete(folder + "/m"));
}

TEST_F(Aside, AVariableWithoutAValueIsNamedAtOnce) {
  const std::string folder = EmptyFolder("it");
  Training t;
  const auto saver = MakeSaver(t.graph);
  t.session.emplace(*Session::Create(t.graph));
  const Status status = saver->Save(*t.session, folder + "/m").status();
  EXPECT_TRUE(errors::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(FilesIn(folder), std::vector<std::string>());
}

}  // namespace
}  // namespace millrace::testing
