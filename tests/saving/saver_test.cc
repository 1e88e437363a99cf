// SPDX-License-Identifier: Apache-2.0
// Variables written by their names and read back, in this process and from servers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>
#include <thread>

#include "base/errors.h"
#include "proto/meta_graph.pb.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

using Floats = std::vector<float>;

// A reference and a resource variable, and a session in which they have values.
struct Program {
  explicit Program(Floats w_values = {1, 2}, Floats r_values = {3}) {
    w = FloatVariable(graph.root(), "w", std::move(w_values));
    r = FloatVariable(graph.root(), "r", std::move(r_values), /*use_resource=*/true);
  }
  void Start(SessionOptions options = {}) {
    const Operation init = InitializeVariables(graph.root());
    session.emplace(*Session::Create(graph, options));
    EXPECT_TRUE(session->RunTargets({init}).ok());
  }
  Graph graph;
  Variable w, r;
  std::optional<Session> session;
};

std::unique_ptr<Saver> MakeSaver(Graph& graph, SaverOptions options = {}) {
  auto saver = Saver::Create(graph, std::move(options));
  EXPECT_TRUE(saver.ok()) << saver.status();
  return *std::move(saver);
}

TEST(SaverTest, RestoredVariablesHaveTheValuesThatTheyHadWhenTheyWereSaved) {
  for (const bool sharded : {false, true}) {
    Program p;
    const auto saver = MakeSaver(p.graph, {.sharded = sharded});
    p.Start();
    const std::string prefix = EmptyFolder(sharded ? "sharded" : "whole") + "/model.ckpt";
    const auto saved = saver->Save(*p.session, prefix, {.global_step = 7});
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ(*saved, prefix + "-7");
    ASSERT_TRUE(SetFloats(p.graph, *p.session, p.w, {8, 9}).ok());
    ASSERT_TRUE(SetFloats(p.graph, *p.session, p.r, {10}).ok());
    const Status restored = saver->Restore(*p.session, *saved);
    ASSERT_TRUE(restored.ok()) << restored;
    EXPECT_EQ(FloatsOf(*p.session, p.w), (Floats{1, 2}));
    EXPECT_EQ(FloatsOf(*p.session, p.r), (Floats{3}));
  }
}

TEST(SaverTest, VariablesNeedNoInitialisationBeforeTheyAreRestored) {
  const std::string prefix = EmptyFolder("it") + "/model.ckpt";
  Program first;
  const auto saver = MakeSaver(first.graph);
  first.Start();
  ASSERT_TRUE(saver->Save(*first.session, prefix).ok());
  for (const bool sequentially : {false, true}) {
    Program second({0, 0}, {0});
    const auto restorer = MakeSaver(second.graph, {.restore_sequentially = sequentially});
    Session session = *Session::Create(second.graph);
    ASSERT_TRUE(restorer->Restore(session, prefix).ok());
    EXPECT_EQ(FloatsOf(session, second.w), (Floats{1, 2}));
    EXPECT_EQ(FloatsOf(session, second.r), (Floats{3}));
  }
}

TEST(SaverTest, NodesHaveTheNamesOfTensorFlows) {
  Program p;
  const auto saver = MakeSaver(p.graph);
  for (const char* name :
       {"save/filename/input", "save/filename", "save/Const", "save/SaveV2/tensor_names",
        "save/SaveV2/shape_and_slices", "save/SaveV2", "save/control_dependency",
        "save/RestoreV2/tensor_names", "save/RestoreV2/shape_and_slices", "save/RestoreV2",
        "save/Assign", "save/AssignVariableOp", "save/restore_all"}) {
    EXPECT_TRUE(p.graph.FindOperation(name).valid()) << name;
  }
  pb::SaverDef def;
  ASSERT_TRUE(def.ParseFromString(saver->ToSaverDef()));
  EXPECT_EQ(def.filename_tensor_name(), "save/Const:0");
  EXPECT_EQ(def.save_tensor_name(), "save/control_dependency:0");
  EXPECT_EQ(def.restore_op_name(), "save/restore_all");
  const auto second = MakeSaver(p.graph, {.sharded = true});
  ASSERT_TRUE(def.ParseFromString(second->ToSaverDef()));
  EXPECT_EQ(def.filename_tensor_name(), "save_1/Const:0");
  EXPECT_EQ(def.save_tensor_name(), "save_1/Identity:0");
  EXPECT_TRUE(p.graph.FindOperation("save_1/restore_shard").valid());
}

TEST(SaverTest, TheMetaGraphHasTheGraphItsVariablesAndTheSaver) {
  Program p;
  const auto saver = MakeSaver(p.graph);
  p.graph.AddToCollection("init_op", Output(InitializeVariables(p.graph.root()), 0));
  p.Start();
  const std::string prefix = EmptyFolder("it") + "/model.ckpt";
  ASSERT_TRUE(saver->Save(*p.session, prefix, {.global_step = 1}).ok());
  pb::MetaGraphDef meta;
  ASSERT_TRUE(meta.ParseFromString(FileText(prefix + "-1.meta")));
  EXPECT_EQ(meta.saver_def().restore_op_name(), "save/restore_all");
  EXPECT_EQ(meta.collection_def().at("variables").bytes_list().value_size(), 2);
  EXPECT_EQ(meta.collection_def().at("init_op").node_list().value(0), "init") << "has no outputs";
  Graph imported;
  EXPECT_TRUE(imported.ImportGraphDef(meta.graph_def().SerializeAsString()).ok());
}

TEST(SaverTest, TheMetaGraphIsWrittenWithoutDefaultsIfThatIsAskedFor) {
  Program p;
  const auto saver = MakeSaver(p.graph);
  p.Start();
  const std::string prefix = EmptyFolder("it") + "/model.ckpt";
  for (const bool strip : {false, true}) {
    ASSERT_TRUE(saver->Save(*p.session, prefix, {.strip_default_attrs = strip}).ok());
    pb::MetaGraphDef meta;
    ASSERT_TRUE(meta.ParseFromString(FileText(prefix + ".meta")));
    EXPECT_EQ(meta.meta_info_def().stripped_default_attrs(), strip);
    int found = 0;
    for (const auto& node : meta.graph_def().node()) {
      if (node.name() != "w") continue;
      ++found;
      EXPECT_EQ(node.attr().contains("container"), !strip);
      EXPECT_TRUE(node.attr().contains("dtype")) << "has no default";
    }
    EXPECT_EQ(found, 1);
    Graph imported;
    EXPECT_TRUE(imported.ImportGraphDef(meta.graph_def().SerializeAsString()).ok());
  }
}

TEST(SaverTest, SlicesAreStoredAsPartsOfOneTensor) {
  const std::string prefix = EmptyFolder("it") + "/model.ckpt";
  Program p({1, 2}, {3});
  const auto saver =
      MakeSaver(p.graph, {.variables = {{"both", p.w, "3 0,2"}, {"both", p.r, "3 2,1"}}});
  p.Start();
  ASSERT_TRUE(saver->Save(*p.session, prefix).ok());
  Graph graph;
  const Variable whole = FloatVariable(graph.root(), "both", {0, 0, 0});
  const auto restorer = MakeSaver(graph);
  Session session = *Session::Create(graph);
  const Status restored = restorer->Restore(session, prefix);
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_EQ(FloatsOf(session, whole), (Floats{1, 2, 3}));
  // And the other way, cut elsewhere.
  Program other({0}, {0, 0});
  const auto cut = MakeSaver(
      other.graph, {.variables = {{"both", other.w, "3 0,1"}, {"both", other.r, "3 1,2"}}});
  Session second = *Session::Create(other.graph);
  const Status parts = cut->Restore(second, prefix);
  ASSERT_TRUE(parts.ok()) << parts;
  EXPECT_EQ(FloatsOf(second, other.w), (Floats{1}));
  EXPECT_EQ(FloatsOf(second, other.r), (Floats{2, 3}));
}

TEST(SaverTest, MistakesAreSaidBeforeAnythingIsWritten) {
  Graph empty;
  EXPECT_TRUE(errors::IsInvalidArgument(Saver::Create(empty).status()));
  const auto nothing = MakeSaver(empty, {.allow_empty = true});
  Program p;
  EXPECT_TRUE(errors::IsInvalidArgument(
      Saver::Create(p.graph, {.variables = {{"a", p.w, ""}, {"a", p.r, ""}}}).status()));
  EXPECT_TRUE(errors::IsInvalidArgument(Saver::Create(p.graph, {.max_to_keep = -1}).status()));
  const auto saver = MakeSaver(p.graph);
  p.Start();
  EXPECT_EQ(*nothing->Save(*p.session, "x"), "");
  EXPECT_TRUE(nothing->Restore(*p.session, "x").ok());
  const std::string folder = EmptyFolder("it");
  const auto message = [](const auto& result) { return std::string(result.status().message()); };
  EXPECT_NE(message(saver->Save(*p.session, folder + "/m", {.latest_filename = "a/b"}))
                .find("'latest_filename' must not contain path components"),
            std::string::npos);
  EXPECT_NE(message(saver->Save(*p.session, folder + "/checkpoint"))
                .find("'latest_filename' collides with 'save_path'"),
            std::string::npos);
  EXPECT_TRUE(FilesIn(folder).empty());
  EXPECT_NE(std::string(saver->Restore(*p.session, folder + "/none").message())
                .find("The passed save_path is not a valid checkpoint: "),
            std::string::npos);
  EXPECT_NE(std::string(saver->Restore(*p.session, "").message())
                .find("Can't load save_path when it is None."),
            std::string::npos);
}

TEST(SaverTest, OtherFormatsAreRefusedWithTheReason) {
  Program p;
  const Status first = Saver::Create(p.graph, {.write_version = 1}).status();
  EXPECT_EQ(first.code(), StatusCode::kUnimplemented) << first;
  EXPECT_NE(first.message().find("write_version=1"), std::string::npos) << first;
  EXPECT_TRUE(errors::IsInvalidArgument(Saver::Create(p.graph, {.write_version = 3}).status()));
  EXPECT_TRUE(Saver::Create(p.graph, {.write_version = 2}).ok());
}

TEST(SaverTest, WhatDoesNotFitIsRefusedByName) {
  const std::string prefix = EmptyFolder("it") + "/model.ckpt";
  Program p;
  const auto saver = MakeSaver(p.graph);
  p.Start();
  ASSERT_TRUE(saver->Save(*p.session, prefix).ok());
  {
    Graph graph;
    FloatVariable(graph.root(), "another", {0});
    const auto restorer = MakeSaver(graph);
    Session session = *Session::Create(graph);
    const Status status = restorer->Restore(session, prefix);
    EXPECT_TRUE(errors::IsNotFound(status)) << status;
    EXPECT_NE(status.message().find("Key another not found in checkpoint"), std::string::npos);
    EXPECT_NE(status.message().find("a Variable name or other graph key that is missing"),
              std::string::npos);
  }
  for (const bool use_resource : {false, true}) {
    Graph graph;
    FloatVariable(graph.root(), "w", {0, 0, 0, 0}, use_resource);
    const auto restorer = MakeSaver(graph);
    Session session = *Session::Create(graph);
    const Status status = restorer->Restore(session, prefix);
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find("a mismatch between the current graph and the graph"),
              std::string::npos)
        << status;
  }
  {
    Graph graph;
    MakeVariable(graph.root(), "w", Constant(graph.root(), Tensor::FromValues<int32_t>({1, 2})));
    const auto restorer = MakeSaver(graph);
    Session session = *Session::Create(graph);
    EXPECT_TRUE(errors::IsInvalidArgument(restorer->Restore(session, prefix)));
  }
}

TEST(SaverTest, ReshapeTakesAsManyElementsInAnotherShape) {
  const std::string prefix = EmptyFolder("it") + "/model.ckpt";
  Program p({1, 2, 3, 4});
  const auto saver = MakeSaver(p.graph, {.variables = {{"w", p.w, ""}}});
  p.Start();
  ASSERT_TRUE(saver->Save(*p.session, prefix).ok());
  Graph graph;
  const Variable w = MakeVariable(
      graph.root(), "w", Constant(graph.root(), Tensor::FromValues<float>({0, 0, 0, 0}, {2, 2})));
  const auto restorer = MakeSaver(graph, {.reshape = true});
  Session session = *Session::Create(graph);
  const Status status = restorer->Restore(session, prefix);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(FloatsOf(session, w), (Floats{1, 2, 3, 4}));
}

TEST(SaverTest, TheLatestIsTheNewestThatIsComplete) {
  const std::string folder = EmptyFolder("it");
  Program p;
  const auto saver = MakeSaver(p.graph);
  p.Start();
  EXPECT_EQ(LatestCheckpoint(folder), "");
  for (int64_t step : {1, 2, 3}) {
    ASSERT_TRUE(saver->Save(*p.session, folder + "/m", {.global_step = step}).ok());
  }
  EXPECT_EQ(LatestCheckpoint(folder), folder + "/m-3");
  const std::string data = folder + "/m-3.data-00000-of-00001";
  std::filesystem::resize_file(data, std::filesystem::file_size(data) - 1);
  EXPECT_FALSE(CheckpointIsComplete(folder + "/m-3"));
  EXPECT_EQ(LatestCheckpoint(folder), folder + "/m-2");
  std::filesystem::remove(folder + "/m-2.index");
  EXPECT_EQ(LatestCheckpoint(folder), folder + "/m-1");
  WriteText(folder + "/checkpoint", "no such text");
  EXPECT_EQ(LatestCheckpoint(folder), folder + "/m-1");
  ASSERT_TRUE(RemoveCheckpoint(folder + "/m-1").ok());
  EXPECT_EQ(LatestCheckpoint(folder), "");
}

TEST(SaverTest, ARestartedProgramGoesOnKeepingWhatItKept) {
  const std::string folder = EmptyFolder("it");
  for (int64_t run = 0; run < 3; ++run) {
    Program p;
    const auto saver = MakeSaver(p.graph, {.max_to_keep = 2});
    p.Start();
    const auto state = GetCheckpointState(folder);
    ASSERT_TRUE(state.ok());
    EXPECT_EQ(state->has_value(), run > 0);
    if (*state) saver->RecoverLastCheckpoints((*state)->all_model_checkpoint_paths);
    ASSERT_TRUE(
        saver->Save(*p.session, folder + "/m", {.global_step = run, .write_meta_graph = false})
            .ok());
  }
  EXPECT_EQ(FilesIn(folder),
            (std::vector<std::string>{"checkpoint", "m-1.data-00000-of-00001", "m-1.index",
                                      "m-2.data-00000-of-00001", "m-2.index"}));
}

// Times say which are kept for good: those of a list without times all are, when it is their turn.
TEST(SaverTest, AListOfCheckpointsIsTakenOverWithTimesOrWithout) {
  constexpr double kHour = 3600, kBegin = 1'000'000;
  using WithTimes = std::vector<std::pair<std::string, double>>;
  const double infinite = std::numeric_limits<double>::infinity();
  for (const bool has_times : {true, false}) {
    const std::string folder = EmptyFolder(has_times ? "times" : "no_times");
    const std::string a = folder + "/m-0", b = folder + "/m-1", c = folder + "/m-2";
    Program p;
    const SaverOptions options{
        .max_to_keep = 2, .keep_checkpoint_every_n_hours = 1, .clock = [] { return kBegin; }};
    const auto first = MakeSaver(p.graph, options);
    p.Start();
    for (int64_t step = 0; step < 2; ++step) {
      ASSERT_TRUE(first->Save(*p.session, folder + "/m", {.global_step = step}).ok());
    }
    const auto second = MakeSaver(p.graph, options);
    EXPECT_TRUE(second->last_checkpoints().empty());
    if (has_times) {
      second->SetLastCheckpointsWithTime({{a, kBegin + 0.5 * kHour}, {b, kBegin + 2 * kHour}});
      EXPECT_EQ(second->last_checkpoints_with_time(),
                (WithTimes{{a, kBegin + 0.5 * kHour}, {b, kBegin + 2 * kHour}}));
    } else {
      second->SetLastCheckpoints({a, b});
      EXPECT_EQ(second->last_checkpoints_with_time(), (WithTimes{{a, infinite}, {b, infinite}}));
    }
    EXPECT_EQ(second->last_checkpoints(), (std::vector<std::string>{a, b}));
    ASSERT_TRUE(second->Save(*p.session, folder + "/m", {.global_step = 2}).ok());
    EXPECT_EQ(second->last_checkpoints(), (std::vector<std::string>{b, c}));
    EXPECT_EQ(CheckpointExists(a), !has_times) << "half an hour is too early";
    EXPECT_EQ((*GetCheckpointState(folder))->all_model_checkpoint_paths,
              (std::vector<std::string>{b, c}));
    ASSERT_TRUE(second->Save(*p.session, folder + "/m", {.global_step = 3}).ok());
    EXPECT_TRUE(CheckpointExists(b)) << "an hour has passed since the saver was made";
  }
}

TEST(SaverTest, WhatKilledSavesLeftIsDeletedByALaterOne) {
  namespace fs = std::filesystem;
  const std::string folder = EmptyFolder("it");
  const std::string digits = "0123456789abcdef0123456789abcdef";
  const auto make = [&](const std::string& name, int hours) {
    fs::create_directories(folder + "/" + name);
    WriteText(folder + "/" + name + "/part-00000-of-00001.index", "x");
    fs::last_write_time(folder + "/" + name,
                        fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  make("m-1_temp_" + digits, 2);
  make("m-2_temp_" + digits, 0);    // may be another program's, at work
  make("m-own_temp_" + digits, 2);  // not one of ours
  make("m-3_temp_" + digits + "z", 2);
  Program p;
  const auto saver = MakeSaver(p.graph, {.sharded = true});
  p.Start();
  ASSERT_TRUE(
      saver->Save(*p.session, folder + "/m", {.global_step = 5, .write_meta_graph = false}).ok());
  EXPECT_EQ(FilesIn(folder), (std::vector<std::string>{
                                 "checkpoint", "m-2_temp_" + digits, "m-3_temp_" + digits + "z",
                                 "m-5.data-00000-of-00001", "m-5.index", "m-own_temp_" + digits}));
}

// A file in which a process says that it writes, and the process, which has it open until it is
// killed.
class Writer {
 public:
  explicit Writer(const std::string& file) {
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      char host[256] = {};
      ::gethostname(host, sizeof(host) - 1);
      const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT, 0666);
      const bool good = ::flock(fd, LOCK_SH) == 0 && ::write(fd, host, std::strlen(host)) > 0;
      (void)!::write(ready[1], good ? "y" : "n", 1);
      for (;;) ::pause();
    }
    char answer = 0;
    EXPECT_EQ(::read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Writer() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

TEST(SaverTest, OnlyWhatDeadProcessesLeftIsSweptAtOnce) {
  const std::string folder = EmptyFolder("it");
  const std::string parts = "m-1_temp_0123456789abcdef0123456789abcdef";
  Writer writer(folder + "/" + parts + "/owner");
  const auto save = [&](int64_t step) {
    Program p;
    const auto saver = MakeSaver(p.graph, {.sharded = true, .max_to_keep = 1});
    p.Start();
    const auto saved =
        saver->Save(*p.session, folder + "/m", {.global_step = step, .write_meta_graph = false});
    EXPECT_TRUE(saved.ok()) << saved.status();
  };
  save(2);
  EXPECT_TRUE(std::filesystem::exists(folder + "/" + parts)) << "its writer lives";
  writer.Kill();
  save(3);
  EXPECT_FALSE(std::filesystem::exists(folder + "/" + parts)) << "its writer is dead";
}

TEST(SaverTest, ASecondWriterToAPrefixIsRefusedAndToldWhoTheFirstIs) {
  const std::string folder = EmptyFolder("it");
  Writer writer(folder + "/m-1.writer");
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  Program p;
  const auto saver = MakeSaver(p.graph);
  const auto checkpoint = Checkpoint::Create(p.graph, {{"w", p.w}});
  p.Start();
  const SaveOptions first{.global_step = 1, .write_meta_graph = false};
  const Status refused = saver->Save(*p.session, folder + "/m", first).status();
  EXPECT_TRUE(errors::IsFailedPrecondition(refused)) << refused;
  EXPECT_NE(refused.message().find(host), std::string::npos) << refused;
  EXPECT_TRUE(errors::IsFailedPrecondition((*checkpoint)->Write(*p.session, folder + "/m-1")));
  EXPECT_EQ(FilesIn(folder), std::vector<std::string>{"m-1.writer"});
  EXPECT_TRUE(saver->Save(*p.session, folder + "/m", {.global_step = 2}).ok()) << "another one";
  writer.Kill();
  const auto saved = saver->Save(*p.session, folder + "/m", first);
  EXPECT_TRUE(saved.ok()) << "its writer is dead: " << saved.status();
  EXPECT_FALSE(std::filesystem::exists(folder + "/m-1.writer"));
}

TEST(SaverTest, OfSeveralThatSaveAtATimeThoseThatAreNotRefusedHaveSaved) {
  constexpr int kSavers = 3, kSaves = 15;
  const std::string prefix = EmptyFolder("it") + "/m";
  std::vector<std::thread> threads;
  std::atomic<int> saved = 0;
  for (int i = 0; i < kSavers; ++i) {
    threads.emplace_back([&, i] {
      const float value = static_cast<float>(i);
      Program p({value, value}, {value});
      const auto saver = MakeSaver(p.graph, {.sharded = i == 0});
      p.Start();
      for (int k = 0; k < kSaves; ++k) {
        const Status status =
            saver->Save(*p.session, prefix, {.write_meta_graph = false, .write_state = false})
                .status();
        saved += status.ok() ? 1 : 0;
        EXPECT_TRUE(status.ok() || errors::IsFailedPrecondition(status)) << status;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(saved, 1);
  const auto tensors = ReadTensors(prefix);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  const float first = tensors->begin()->second.flat<float>()[0];
  for (const auto& [name, tensor] : *tensors) {
    for (const float v : tensor.flat<float>()) EXPECT_EQ(v, first) << name;
  }
}

TEST(SaverTest, FilesUnderTemporaryNamesAreSweptUnlessSomebodyHasThemOpen) {
  namespace fs = std::filesystem;
  const std::string folder = EmptyFolder("it");
  fs::create_directories(folder);
  const auto old = [&](const std::string& name) {
    WriteText(folder + "/" + name, "x");
    fs::last_write_time(folder + "/" + name,
                        fs::file_time_type::clock::now() - std::chrono::minutes(5));
  };
  old("m-1.data-00000-of-00001.tempstate123");
  old("m-1.index.tempstate77");
  old("m-open.index.tempstate5");  // of another prefix
  old("m-2.index.tempstate9");
  WriteText(folder + "/m-3.index.tempstate4", "x");  // new
  const int fd = ::open((folder + "/m-2.index.tempstate9").c_str(), O_RDONLY);
  ASSERT_EQ(::flock(fd, LOCK_SH), 0);
  Program p;
  const auto saver = MakeSaver(p.graph);
  p.Start();
  ASSERT_TRUE(
      saver->Save(*p.session, folder + "/m", {.global_step = 5, .write_meta_graph = false}).ok());
  ::close(fd);
  EXPECT_EQ(FilesIn(folder),
            (std::vector<std::string>{"checkpoint", "m-2.index.tempstate9", "m-3.index.tempstate4",
                                      "m-5.data-00000-of-00001", "m-5.index",
                                      "m-open.index.tempstate5"}));
}

// Variables on as many parameter servers as there are.
struct Sharded {
  explicit Sharded(int num_ps, float first) : cluster(num_ps, 1) {
    for (int i = 0; i < 4; ++i) {
      const Scope scope = graph.root().WithDevice(StrCat("/job:ps/task:", i % num_ps, "/cpu:0"));
      const float value = first + static_cast<float>(i);
      variables.push_back(FloatVariable(scope, StrCat("v", i), {value, value}, i % 2 == 1));
    }
    saver = MakeSaver(graph, {.sharded = true});
    init = InitializeVariables(graph.root());
    session.emplace(*Session::Create(graph, {.target = cluster.Target("worker", 0)}));
  }
  InProcessCluster cluster;
  Graph graph;
  std::vector<Variable> variables;
  std::unique_ptr<Saver> saver;
  Operation init;
  std::optional<Session> session;
};

TEST(SaverTest, ASaveThatFailsLeavesNothingBehind) {
  const std::string folder = EmptyFolder("it");
  Sharded p(2, 1);
  // What the first server has is written, the second has no values.
  for (const Variable& v : p.variables) {
    if (v.handle.op().device().find("task:0") == std::string::npos) continue;
    ASSERT_TRUE(p.session->RunTargets({v.initializer}).ok());
  }
  for (int64_t step = 1; step < 4; ++step) {
    EXPECT_FALSE(p.saver->Save(*p.session, folder + "/m", {.global_step = step}).ok());
    EXPECT_EQ(FilesIn(folder), std::vector<std::string>());
  }
}

TEST(SaverTest, WhatSomeParameterServersSavedOthersRestore) {
  const std::string prefix = EmptyFolder("it") + "/model.ckpt";
  for (const auto& [from, to] : {std::pair(1, 2), std::pair(2, 1), std::pair(3, 2)}) {
    Sharded first(from, 1);
    ASSERT_TRUE(first.session->RunTargets({first.init}).ok());
    const auto saved = first.saver->Save(*first.session, prefix, {.global_step = from});
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ((*CheckpointReader::Open(*saved))->num_files(), from);
    Sharded second(to, 50);
    const Status restored = second.saver->Restore(*second.session, *saved);
    ASSERT_TRUE(restored.ok()) << restored;
    for (int i = 0; i < 4; ++i) {
      const float value = 1 + static_cast<float>(i);
      EXPECT_EQ(FloatsOf(*second.session, second.variables[i]), (Floats{value, value}));
    }
  }
}

TEST(SaverTest, NoVariableChangesWhereAPartCannotBeRead) {
  const std::string prefix = EmptyFolder("it") + "/model.ckpt";
  Sharded p(2, 1);
  ASSERT_TRUE(p.session->RunTargets({p.init}).ok());
  ASSERT_TRUE(p.saver->Save(*p.session, prefix).ok());
  const std::string data = prefix + ".data-00001-of-00002";
  std::string bytes = FileText(data);
  bytes[1] = static_cast<char>(bytes[1] ^ 4);
  WriteText(data, bytes);
  Sharded other(2, 50);
  ASSERT_TRUE(other.session->RunTargets({other.init}).ok());
  for (int i = 0; i < 20; ++i) {
    const Status status = other.saver->Restore(*other.session, prefix);
    ASSERT_TRUE(errors::IsDataLoss(status)) << status;
    for (int v = 0; v < 4; ++v) {
      const float value = 50 + static_cast<float>(v);
      ASSERT_EQ(FloatsOf(*other.session, other.variables[v]), (Floats{value, value}));
    }
  }
}

}  // namespace
}  // namespace millrace::testing
