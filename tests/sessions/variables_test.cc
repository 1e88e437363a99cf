// SPDX-License-Identifier: Apache-2.0
// Variables between steps and threads: what was read stays as it was, what is read is whole,
// and checkpoints bring it back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/core.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSize = 4096;  // large enough for a copy to be interrupted

Tensor Filled(float value, int64_t size = kSize) {
  Tensor t(kFloat, {size});
  for (float& x : t.flat<float>()) x = value;
  return t;
}

// w of kSize elements, 1 at first.
struct Program {
  explicit Program(bool use_resource) {
    const Scope root = graph.root();
    w = MakeVariable(root, "w", Constant(root, Filled(1)), {.use_resource = use_resource});
    add = AssignAdd(root, w, Filled(1));
    fed = Placeholder(root, kFloat, {kSize});
    set = Assign(root, w, fed);
    init = InitializeVariables(root);
  }
  Session Open(const std::string& target = "") {
    auto session = Session::Create(graph, {.target = target, .inter_op_threads = 4});
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }
  Graph graph;
  Variable w;
  Operation add, set, init;
  Output fed;
};

Tensor Read(Session& session, const Output& output) {
  const auto value = session.Eval(output);
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : Tensor();
}

void ExpectOk(const Status& status) { EXPECT_TRUE(status.ok()) << status; }

class VariableTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Kinds, VariableTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "resource" : "reference"; });

TEST_P(VariableTest, LeavesAloneWhatWasReadBefore) {
  Program p(GetParam());
  Session session = p.Open();
  ExpectOk(session.RunTargets({p.init}));
  const Tensor before = Read(session, p.w.read);
  ExpectOk(session.RunTargets({p.add}));
  EXPECT_TRUE(TensorsEqual(before, Filled(1)));
  EXPECT_TRUE(TensorsEqual(Read(session, p.w.read), Filled(2)));
}

TEST_P(VariableTest, LeavesAloneTheTensorsItWasSetFrom) {
  Program p(GetParam());
  Session session = p.Open();
  const Tensor mine = Filled(5);
  ExpectOk(session.Run({{p.fed, mine}}, {}, {p.set}).status());
  ExpectOk(session.RunTargets({p.add}));
  EXPECT_TRUE(TensorsEqual(mine, Filled(5)));
  EXPECT_TRUE(TensorsEqual(Read(session, p.w.read), Filled(6)));
  // Nor the constant that the initializer holds.
  for (int i = 0; i < 2; ++i) {
    ExpectOk(session.RunTargets({p.init}));
    EXPECT_TRUE(TensorsEqual(Read(session, p.w.read), Filled(1)));
    ExpectOk(session.RunTargets({p.add}));
  }
}

TEST_P(VariableTest, IsReadWholeWhileOthersWriteIt) {
  constexpr int kReaders = 3, kReads = 300;
  Program p(GetParam());
  Session session = p.Open();
  ExpectOk(session.RunTargets({p.init}));
  std::atomic<int> reading{kReaders};
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&, i] {
      for (int k = 0; reading > 0; ++k) {
        if (i == 0) {
          ExpectOk(session.RunTargets({p.add}));
        } else {
          ExpectOk(
              session.Run({{p.fed, Filled(static_cast<float>(k % 100))}}, {}, {p.set}).status());
        }
      }
    });
  }
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&] {
      for (int k = 0; k < kReads; ++k) {
        const Tensor seen = Read(session, p.w.read);
        EXPECT_TRUE(TensorsEqual(seen, Filled(seen.data<float>()[0]))) << seen.DebugString();
      }
      --reading;
    });
  }
  for (std::thread& t : readers) t.join();
  for (std::thread& t : writers) t.join();
}

TEST_P(VariableTest, IsSharedByTheSessionsOfAServer) {
  InProcessCluster cluster(0, 1);
  Program first(GetParam()), second(GetParam());
  Session one = first.Open(cluster.Target("worker", 0));
  Session two = second.Open(cluster.Target("worker", 0));
  ExpectOk(one.RunTargets({first.init}));
  ExpectOk(two.RunTargets({second.add}));
  EXPECT_TRUE(TensorsEqual(Read(one, first.w.read), Filled(2)));
}

// --- What is refused ------------------------------------------------------------------------
TEST_P(VariableTest, WithoutAValueIsNamedWithItsTask) {
  InProcessCluster cluster(1, 1);
  Graph graph;
  const Scope ps = graph.root().WithDevice("/job:ps/task:0");
  const Variable w =
      MakeVariable(ps, "weights", Constant(ps, Filled(1)), {.use_resource = GetParam()});
  auto session = Session::Create(graph, {.target = cluster.Target("worker", 0)});
  ASSERT_TRUE(session.ok()) << session.status();
  const Status status = session->Eval(w.read).status();
  EXPECT_TRUE(errors::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(Message(status)),
              AllOf(HasSubstr("weights"), HasSubstr("/job:ps/replica:0/task:0")));
}

TEST(SessionRefuses, AFeedOfTheWrongTypeOrShapeAndNamesIt) {
  Program p(false);
  Session session = p.Open();
  const Status type =
      session.Run({{p.fed, Tensor::FromValues<int32_t>({1, 2})}}, {}, {p.set}).status();
  EXPECT_TRUE(errors::IsInvalidArgument(type)) << type;
  EXPECT_THAT(std::string(Message(type)),
              AllOf(HasSubstr(p.fed.name()), HasSubstr("int32"), HasSubstr("float")));
  const Status shape = session.Run({{p.fed, Filled(1, 7)}}, {}, {p.set}).status();
  EXPECT_TRUE(errors::IsInvalidArgument(shape)) << shape;
  EXPECT_THAT(std::string(Message(shape)),
              AllOf(HasSubstr(p.fed.name()), HasSubstr("[7]"), HasSubstr("[4096]")));
}

// A prepared run knows its feeds only by position.
TEST(SessionRefuses, AFeedOfAPreparedRunThatDoesNotFit) {
  Program p(false);
  Session session = p.Open();
  const auto callable = session.MakeCallable({{p.fed}}, {}, {{p.set}});
  ASSERT_TRUE(callable.ok()) << callable.status();
  EXPECT_TRUE(callable->Run({{Filled(3)}}).ok());
  for (const Tensor& bad : {Tensor::FromValues<int32_t>({1, 2}), Filled(1, 7)}) {
    const Status status = callable->Run({{bad}}).status();
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status << " " << bad.DebugString();
    EXPECT_THAT(std::string(Message(status)), HasSubstr(p.fed.op().name()));
  }
  EXPECT_TRUE(errors::IsInvalidArgument(callable->Run({}).status()));
  EXPECT_TRUE(TensorsEqual(Read(session, p.w.read), Filled(3)));
}

TEST(SessionRefuses, OutputsOfAnotherGraphOrOfNone) {
  Program p(false), other(false);
  Session session = p.Open();
  for (const Output& output : {other.w.read, Output()}) {
    const Status status = session.Eval(output).status();
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  }
}

// --- Checkpoints ----------------------------------------------------------------------------
class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(::testing::TempDir()) / ("ckpt_" + std::to_string(getpid()));
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string Path(const char* name) const { return (dir_ / name).string(); }

  static Tensor Strings(std::initializer_list<std::string> values) {
    return Tensor::FromValues<std::string>(values);
  }
  std::filesystem::path dir_;
};

TEST_F(CheckpointTest, BringsVariablesBack) {
  Graph graph;
  const Scope root = graph.root();
  const Variable a = MakeVariable(root, "a", Constant(root, Filled(1)));
  const Variable b = MakeVariable(root, "b", Constant(root, Tensor::FromValues<int64_t>({1, 2})));
  const Tensor names = Strings({"a", "b"}), slices = Strings({"", ""});
  const Operation save = ops::SaveV2(root, Path("model"), names, slices, {a.read, b.read});
  const std::vector<Output> saved =
      ops::RestoreV2(root, Path("model"), names, slices, {kFloat, kInt64});
  ASSERT_EQ(saved.size(), 2u) << graph.status();
  const Operation restore = Group(root, {Assign(root, a, saved[0]), Assign(root, b, saved[1])});
  const Operation init = InitializeVariables(root);
  {
    auto session = Session::Create(graph);
    ASSERT_TRUE(session.ok()) << session.status();
    ExpectOk(session->RunTargets({init}));
    ExpectOk(session->RunTargets({save}));
  }
  auto session = Session::Create(graph);  // without any state
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_FALSE(session->Eval(a.read).ok());
  ExpectOk(session->RunTargets({restore}));
  EXPECT_TRUE(TensorsEqual(Read(*session, a.read), Filled(1)));
  EXPECT_TRUE(TensorsEqual(Read(*session, b.read), Tensor::FromValues<int64_t>({1, 2})));
}

TEST_F(CheckpointTest, IsMergedFromShards) {
  Graph graph;
  const Scope root = graph.root();
  const Operation first =
      ops::SaveV2(root, Path("part0"), Strings({"a"}), Strings({""}), {Constant(root, Filled(1))});
  const Operation second =
      ops::SaveV2(root, Path("part1"), Strings({"b"}), Strings({""}), {Constant(root, Filled(2))});
  const Operation merge =
      ops::MergeV2Checkpoints(root.WithControlDependencies({first, second}),
                              Strings({Path("part0"), Path("part1")}), Path("whole"));
  const std::vector<Output> read =
      ops::RestoreV2(root, Path("whole"), Strings({"b", "a"}), Strings({"", ""}), {kFloat, kFloat});
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  ExpectOk(session->RunTargets({merge}));
  EXPECT_TRUE(TensorsEqual(Read(*session, read[0]), Filled(2)));
  EXPECT_TRUE(TensorsEqual(Read(*session, read[1]), Filled(1)));
}

TEST_F(CheckpointTest, GivesASliceOfATensor) {
  Graph graph;
  const Scope root = graph.root();
  const Tensor matrix = Tensor::FromValues<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  const Operation save =
      ops::SaveV2(root, Path("m"), Strings({"m"}), Strings({""}), {Constant(root, matrix)});
  const Output rows =
      ops::RestoreV2(root, Path("m"), Strings({"m"}), Strings({"3 2 1,2:-"}), {kFloat})[0];
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  ExpectOk(session->RunTargets({save}));
  EXPECT_TRUE(TensorsEqual(Read(*session, rows), Tensor::FromValues<float>({3, 4, 5, 6}, {2, 2})));
}

TEST_F(CheckpointTest, TakesAndGivesFilesOfTheFirstFormat) {
  Graph graph;
  const Scope root = graph.root();
  const Tensor matrix = Tensor::FromValues<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  const Operation whole = ops::Save(root, Path("v1-0"), Strings({"m"}), {Constant(root, matrix)});
  const Operation part = ops::SaveSlices(root, Path("v1-1"), Strings({"p"}), Strings({"4 1,2"}),
                                         {Constant(root, Filled(7, 2))});
  const std::vector<Output> both = ops::RestoreV2(root, Path("v1-?"), Strings({"m", "p"}),
                                                  Strings({"", "4 1,1"}), {kFloat, kFloat});
  const Output rows = ops::RestoreSlice(root, Path("v1-0"), Tensor::Scalar<std::string>("m"),
                                        Tensor::Scalar<std::string>("3 2 1,2:-"), kFloat);
  const Output absent = ops::Restore(root, Path("v1-*"), Tensor::Scalar<std::string>("n"), kFloat);
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  ExpectOk(session->RunTargets({whole, part}));
  EXPECT_TRUE(TensorsEqual(Read(*session, both[0]), matrix));
  EXPECT_TRUE(TensorsEqual(Read(*session, both[1]), Filled(7, 1)));
  EXPECT_TRUE(TensorsEqual(Read(*session, rows), Tensor::FromValues<float>({3, 4, 5, 6}, {2, 2})));
  const Status missing = session->Eval(absent).status();
  EXPECT_TRUE(errors::IsNotFound(missing)) << missing;
  EXPECT_THAT(std::string(Message(missing)), HasSubstr("Tensor name \"n\" not found"));
}

TEST_F(CheckpointTest, SaysWhatIsMissingOrOfAnotherType) {
  Graph graph;
  const Scope root = graph.root();
  const Operation save =
      ops::SaveV2(root, Path("m"), Strings({"m"}), Strings({""}), {Constant(root, Filled(1))});
  const auto restore = [&](const char* path, const char* name, DataType dtype) {
    return ops::RestoreV2(root, Path(path), Strings({name}), Strings({""}), {dtype})[0];
  };
  const Output missing = restore("m", "n", kFloat), wrong = restore("m", "m", kInt32),
               nowhere = restore("none", "m", kFloat);
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  ExpectOk(session->RunTargets({save}));
  const Status no_key = session->Eval(missing).status();
  EXPECT_TRUE(errors::IsNotFound(no_key)) << no_key;
  EXPECT_THAT(std::string(Message(no_key)), HasSubstr("Key n not found in checkpoint"));
  const Status type = session->Eval(wrong).status();
  EXPECT_TRUE(errors::IsInvalidArgument(type)) << type;
  EXPECT_THAT(std::string(Message(type)), AllOf(HasSubstr("float"), HasSubstr("int32")));
  const Status no_file = session->Eval(nowhere).status();
  EXPECT_TRUE(errors::IsNotFound(no_file)) << no_file;
  EXPECT_THAT(std::string(Message(no_file)), HasSubstr("none"));
}

TEST_F(CheckpointTest, ReadsWhatTensorFlowWrote) {
  Graph graph;
  const Scope root = graph.root();
  const std::vector<Output> read =
      ops::RestoreV2(root, "tests/goldens/checkpoints/small", Strings({"a", "b"}),
                     Strings({"", ""}), {kFloat, kInt32});
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(TensorsEqual(Read(*session, read[0]), Tensor::FromValues<float>({1, -2, 3.5f})));
  EXPECT_TRUE(
      TensorsEqual(Read(*session, read[1]), Tensor::FromValues<int32_t>({1, 2, 3, 4}, {2, 2})));
}

}  // namespace
}  // namespace millrace::testing
