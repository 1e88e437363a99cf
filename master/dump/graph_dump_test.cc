// SPDX-License-Identifier: Apache-2.0
#include "master/dump/graph_dump.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/random.h"
#include "graph/graph_def_io.h"
#include "master/session_test_util.h"
#include "ops/all_ops.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;

constexpr char kCpu0[] = "/job:worker/replica:0/task:0/device:CPU:0";
constexpr char kCpu1[] = "/job:worker/replica:0/task:0/device:CPU:1";
constexpr char kOther[] = "/job:worker/replica:0/task:1/device:CPU:0";

std::string NewFolder() { return StrCat(::testing::TempDir(), "/dump_", Hex16(RandomId())); }

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Every file under `folder`, by its path there.
std::map<std::string, std::string> Tree(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      files[fs::relative(entry.path(), folder).string()] = ReadAll(entry.path());
    }
  }
  return files;
}

// The content of the only file whose path ends so.
std::string FileEnding(const std::map<std::string, std::string>& tree, const std::string& end) {
  std::string found;
  for (const auto& [path, content] : tree) {
    if (!path.ends_with(end)) continue;
    EXPECT_EQ(found, "") << "two files end in " << end;
    found = content;
  }
  EXPECT_NE(found, "") << "no file ends in " << end;
  return found;
}

// x (fed) + one, on one task; y + y on another; a control edge back to a third device.
TestGraph CutGraph() {
  TestGraph graph;
  graph.Placeholder("x");
  graph.Const("one", 1, kCpu0);
  graph.Sum("y", "x", "one", kCpu0);
  graph.Const("two", 2, kOther);
  graph.Sum("z", "y", "two", kOther);
  graph.Counter("count", kCpu1)->add_input("^z");
  return graph;
}

const TestCluster::Options kTwoTasks{.num_tasks = 2, .num_cpus = 2};

TestCluster::Options Dumping(const std::string& folder) {
  TestCluster::Options options = kTwoTasks;
  options.dump_dir = folder;
  return options;
}

TEST(GraphDump, WritesEveryStageOfASessionAndItsRuns) {
  const std::string folder = NewFolder();
  TestCluster cluster(Dumping(folder));
  auto session = cluster.NewSession(CutGraph().def());
  ASSERT_TRUE(session->Run({{"x", Tensor::Scalar(1.f)}}, {"z"}, {"count"}).ok());
  ASSERT_TRUE(session->Close().ok());

  std::vector<std::string> names;
  for (const auto& [path, content] : Tree(fs::path(folder) / "session_1")) {
    const size_t run = path.find('/');
    names.push_back(run == std::string::npos ? path : "RUN" + path.substr(run));
    EXPECT_NE(content, "") << path;
  }
  EXPECT_THAT(
      names, ElementsAre(
                 "0001_original.dot", "0001_original.pbtxt", "0002_placed.dot", "0002_placed.pbtxt",
                 "0002_placed.txt", "manifest.json", "RUN/0001_pruned.dot", "RUN/0001_pruned.pbtxt",
                 "RUN/0002_partition_worker_0.dot", "RUN/0002_partition_worker_0.pbtxt",
                 "RUN/0003_partition_worker_1.dot", "RUN/0003_partition_worker_1.pbtxt",
                 "RUN/0004_partitions.dot", "RUN/0005_device_worker_1_CPU_0.dot",
                 "RUN/0005_device_worker_1_CPU_0.pbtxt", "RUN/0006_device_worker_0_CPU_0.dot",
                 "RUN/0006_device_worker_0_CPU_0.pbtxt", "RUN/0007_device_worker_0_CPU_1.dot",
                 "RUN/0007_device_worker_0_CPU_1.pbtxt", "RUN/0008_devices.dot"));
}

TEST(GraphDump, TheManifestListsEveryFileWithItsRunAndSizes) {
  const std::string folder = NewFolder();
  TestCluster cluster(Dumping(folder));
  auto session = cluster.NewSession(CutGraph().def());
  ASSERT_TRUE(session->Run({{"x", Tensor::Scalar(1.f)}}, {"z"}).ok());
  ASSERT_TRUE(session->Close().ok());

  const auto tree = Tree(fs::path(folder) / "session_1");
  const auto manifest = nlohmann::json::parse(tree.at("manifest.json"));
  std::set<std::string> listed = {"manifest.json"};
  for (const auto& entry : manifest["files"]) listed.insert(entry["file"].get<std::string>());
  std::set<std::string> there;
  for (const auto& [path, content] : tree) there.insert(path);
  EXPECT_EQ(listed, there);

  ASSERT_EQ(manifest["runs"].size(), 1u);
  EXPECT_EQ(manifest["runs"][0]["feeds"], (std::vector<std::string>{"x:0"}));
  EXPECT_EQ(manifest["runs"][0]["fetches"], (std::vector<std::string>{"z:0"}));
  EXPECT_EQ(manifest["incarnations"]["1"], kCpu0);
  const auto& original = manifest["files"][0];
  EXPECT_EQ(original["file"], "0001_original.dot");
  EXPECT_EQ(original["nodes"], 6);
  EXPECT_EQ(original["edges"], 5);
}

TEST(GraphDump, TheTextOfAPartitionCanBeReadAgain) {
  const std::string folder = NewFolder();
  TestCluster cluster(Dumping(folder));
  auto session = cluster.NewSession(CutGraph().def());
  ASSERT_TRUE(session->Run({{"x", Tensor::Scalar(1.f)}}, {"z"}, {"count"}).ok());
  OpRegistry ops;
  KernelRegistry kernels;
  RegisterTestOpsAndKernels(ops, kernels);
  int read = 0;
  for (const auto& [path, content] : Tree(folder)) {
    if (!path.ends_with(".pbtxt")) continue;
    pb::GraphDef def;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(content, &def)) << path;
    DataflowGraph graph(&ops);
    const Status imported = ImportGraphDef({.internal_names = true}, def, &graph);
    EXPECT_TRUE(imported.ok()) << path << ": " << imported;
    ++read;
  }
  EXPECT_EQ(read, 8);
}

TEST(GraphDump, JoinsSendsToReceivesInThePictureOfAllPartitions) {
  const std::string folder = NewFolder();
  TestCluster cluster(Dumping(folder));
  auto session = cluster.NewSession(CutGraph().def());
  ASSERT_TRUE(session->Run({{"x", Tensor::Scalar(1.f)}}, {"z"}, {"count"}).ok());
  const auto tree = Tree(folder);
  const std::string partitions = FileEnding(tree, "/0004_partitions.dot");
  // y to the other task, z back for the fetch; the control edge carries nothing.
  EXPECT_THAT(partitions, ::testing::ContainsRegex(
                              "p0n[0-9]+ -> p1n[0-9]+ \\[style=dotted, constraint=false, label"));
  EXPECT_THAT(partitions, ::testing::ContainsRegex("p1n[0-9]+ -> p0n[0-9]+ \\[style=dotted, "
                                                   "constraint=false, label=\"0 B\"\\]"));
  EXPECT_THAT(partitions, HasSubstr("label=\"client\""));
  EXPECT_THAT(partitions, Not(HasSubstr("plaintext, label=\"/job")));
  EXPECT_THAT(FileEnding(tree, "/0003_partition_worker_1.dot"),
              HasSubstr(StrCat("plaintext, label=\"", kCpu0)));
}

// Runs several signatures in an order, or at once, and returns what was written.
std::map<std::string, std::string> DumpOfRuns(bool reversed) {
  const std::string folder = NewFolder();
  TestCluster cluster(Dumping(folder));
  auto session = cluster.NewSession(CutGraph().def());
  std::vector<std::string> fetches = {"y", "z"};
  if (reversed) std::reverse(fetches.begin(), fetches.end());
  for (const std::string& fetch : fetches) {
    EXPECT_TRUE(session->Run({{"x", Tensor::Scalar(1.f)}}, {fetch}, {"count"}).ok());
  }
  TestGraph more;
  more.Sum("w", "z", "z", kOther);
  EXPECT_TRUE(session->Extend(more.def()).ok());
  EXPECT_TRUE(session->Run({{"x", Tensor::Scalar(1.f)}}, {"w"}).ok());
  EXPECT_TRUE(session->Close().ok());
  return Tree(folder);
}

TEST(GraphDump, TwoEqualSessionsWriteTheSameBytes) {
  const auto first = DumpOfRuns(false);
  EXPECT_THAT(first, Contains(Key("session_1/0003_extension.pbtxt")));
  EXPECT_THAT(first, Contains(Key("session_1/0004_placed.dot")));
  EXPECT_EQ(first, DumpOfRuns(false));
}

TEST(GraphDump, TheOrderInWhichRunsAreFirstMadeDoesNotShow) {
  EXPECT_EQ(DumpOfRuns(false), DumpOfRuns(true));
}

TEST(GraphDump, EverySessionHasItsOwnFolder) {
  const std::string folder = NewFolder();
  for (int i = 0; i < 2; ++i) {  // the second cluster finds the first one's
    TestCluster cluster(Dumping(folder));
    cluster.NewSession(CutGraph().def());
    cluster.NewSession(CutGraph().def());
  }
  for (int i = 1; i <= 4; ++i) {
    EXPECT_TRUE(fs::exists(StrCat(folder, "/session_", i, "/manifest.json"))) << i;
  }
}

TEST(GraphDump, AStepThatFailsStillShowsItsPartitions) {
  const std::string folder = NewFolder();
  TestCluster cluster(Dumping(folder));
  TestGraph graph = CutGraph();
  graph.Fail("broken", kCpu0);
  auto session = cluster.NewSession(graph.def());
  EXPECT_FALSE(session->Run({}, {}, {"broken"}).ok());
  EXPECT_NE(FileEnding(Tree(folder), "device_worker_0_CPU_0.dot"), "");
}

TEST(GraphDump, PartialRunsAreWrittenToo) {
  const std::string folder = NewFolder();
  TestCluster cluster(Dumping(folder));
  auto session = cluster.NewSession(CutGraph().def());
  const auto handle = session->PartialRunSetup({"x"}, {"y"}, {});
  ASSERT_TRUE(handle.ok()) << handle.status();
  ASSERT_TRUE(session->PartialRun(*handle, {{"x", Tensor::Scalar(1.f)}}, {"y"}).ok());
  const auto tree = Tree(folder);
  FileEnding(tree, "devices.dot");
  EXPECT_THAT(tree.at("session_1/manifest.json"), HasSubstr("\"partial\": true"));
}

TEST(GraphDump, AFolderThatCannotBeMadeIsOneClearError) {
  const std::string file = NewFolder();
  std::ofstream(file) << "in the way";
  OpRegistry ops;
  const Status status = GraphDumper::Open(file + "/dumps", &ops).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(Message(status)), HasSubstr(file + "/dumps"));
}

TEST(GraphDump, ASessionGoesOnWhenItsFilesCannotBeWritten) {
  const std::string folder = NewFolder();
  TestCluster cluster(Dumping(folder));
  auto session = cluster.NewSession(CutGraph().def());
  fs::remove_all(folder);
  std::ofstream(folder) << "in the way";
  EXPECT_TRUE(session->Run({{"x", Tensor::Scalar(1.f)}}, {"z"}, {"count"}).ok());
  EXPECT_TRUE(session->Run({{"x", Tensor::Scalar(1.f)}}, {"y"}).ok());
}

TEST(GraphDump, TheFirstErrorIsKept) {
  const std::string folder = NewFolder();
  OpRegistry ops;
  ASSERT_TRUE(RegisterAllOps(ops).ok());
  auto dumper = GraphDumper::Open(folder, &ops);
  ASSERT_TRUE(dumper.ok()) << dumper.status();
  const auto session = (*dumper)->NewSession();
  EXPECT_TRUE(session->status().ok());
  fs::remove_all(folder);
  std::ofstream(folder) << "in the way";
  session->AddOriginal(0, TestGraph().def());
  EXPECT_THAT(std::string(Message(session->status())), HasSubstr(folder + "/session_1"));
}

// What is logged while a session with log_device_placement is created and extended.
std::string PlacementLogOf(TestCluster& cluster) {
  ClientSession::Options options;
  options.config.set_log_device_placement(true);
  ::testing::internal::CaptureStderr();
  auto session = cluster.NewSession(CutGraph().def(), options);
  TestGraph more;
  more.Sum("w", "z", "z", kOther);
  EXPECT_TRUE(session->Extend(more.def()).ok());
  return ::testing::internal::GetCapturedStderr();
}

// The last path that the log names.
std::string ListedFile(const std::string& log) {
  const std::string before = "every node, and why it is there: ";
  const size_t at = log.rfind(before);
  EXPECT_NE(at, std::string::npos) << log;
  const size_t begin = at + before.size();
  return log.substr(begin, log.find('\n', begin) - begin);
}

TEST(PlacementReport, IsATableInTheLogAndAListInAFile) {
  const std::string folder = NewFolder();
  fs::create_directories(folder);
  const char* const old = std::getenv("TMPDIR");
  const std::string restored = old == nullptr ? "/tmp" : old;
  setenv("TMPDIR", folder.c_str(), 1);
  TestCluster cluster(kTwoTasks);
  const std::string log = PlacementLogOf(cluster);
  setenv("TMPDIR", restored.c_str(), 1);

  EXPECT_THAT(log, ::testing::ContainsRegex(StrCat(kOther, " +2  AddV2")));
  EXPECT_THAT(log, ::testing::ContainsRegex(StrCat(kCpu1, " +1  TestCounter")));
  const std::string file = ListedFile(log);
  EXPECT_THAT(file, ::testing::StartsWith(folder));
  EXPECT_THAT(ReadAll(file), HasSubstr(StrCat("z (AddV2) asks for ", kOther, " -> ", kOther)));
  EXPECT_THAT(ReadAll(file), HasSubstr("w (AddV2)"));
  EXPECT_EQ(Tree(folder).size(), 1u);
}

TEST(PlacementReport, NamesTheFileAmongTheDumpsIfThereAreAny) {
  const std::string folder = NewFolder();
  TestCluster cluster(Dumping(folder));
  EXPECT_EQ(ListedFile(PlacementLogOf(cluster)), folder + "/session_1/0004_placed.txt");
}

}  // namespace
}  // namespace millrace
