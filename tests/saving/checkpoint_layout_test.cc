// SPDX-License-Identifier: Apache-2.0
// Checkpoints in files of a limited size, and written by one task for all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/checkpoint_layout.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

using ::testing::ElementsAre;

Tensor Counting(const Shape& shape, float first) {
  Tensor t(kFloat, shape);
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    t.data<float>()[i] = first + static_cast<float>(i);
  }
  return t;
}

// Variables and a checkpoint of them. What they begin with is `first` and more.
struct Program {
  explicit Program(const std::map<std::string, Shape>& shapes, float first) {
    std::map<std::string, Trackable> children;
    for (const auto& [name, shape] : shapes) {
      const bool use_resource = variables.size() % 2 == 1;
      variables[name] =
          MakeVariable(graph.root(), name,
                       Constant(graph.root().WithOpName(name + "_init"), Counting(shape, first)),
                       {.use_resource = use_resource});
      children.emplace(name, variables[name]);
    }
    checkpoint = *Checkpoint::Create(graph, children);
    const Operation init = InitializeVariables(graph.root());
    session.emplace(*Session::Create(graph));
    EXPECT_TRUE(session->RunTargets({init}).ok());
  }
  void ExpectValues(const std::map<std::string, Shape>& shapes, float first) {
    for (const auto& [name, shape] : shapes) {
      const auto value = session->Eval(variables.at(name).read);
      ASSERT_TRUE(value.ok()) << value.status();
      EXPECT_TRUE(TensorsEqual(*value, Counting(shape, first)))
          << name << ": " << value->DebugString(50);
    }
  }

  Graph graph;
  std::map<std::string, Variable> variables;
  std::unique_ptr<Checkpoint> checkpoint;
  std::optional<Session> session;
};

// Bytes of the floats in each data file: what limits speak of.
std::vector<int64_t> FileBytes(const std::string& prefix) {
  std::vector<int64_t> bytes;
  const auto reader = CheckpointReader::Open(prefix);
  EXPECT_TRUE(reader.ok()) << reader.status();
  for (int file = 0; file < (*reader)->num_files(); ++file) {
    char name[40];
    std::snprintf(name, sizeof(name), ".data-%05d-of-%05d", file, (*reader)->num_files());
    bytes.push_back(static_cast<int64_t>(std::filesystem::file_size(prefix + name)));
  }
  // The objects' graph lies in the last one.
  const auto* graph = (*reader)->Find("_CHECKPOINTABLE_OBJECT_GRAPH");
  EXPECT_NE(graph, nullptr);
  if (graph != nullptr && !bytes.empty()) bytes.back() -= graph->bytes;
  return bytes;
}

void ExpectRoundTrip(const std::map<std::string, Shape>& shapes, int64_t max_file_bytes,
                     const std::vector<int64_t>& file_bytes) {
  const std::string prefix = StrCat(EmptyFolder("it"), "/c", max_file_bytes);
  Program writer(shapes, 1);
  ASSERT_TRUE(SetLayout(*writer.checkpoint, {.max_file_bytes = max_file_bytes}).ok());
  const Status written = writer.checkpoint->Write(*writer.session, prefix);
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_EQ(FileBytes(prefix), file_bytes);
  Program reader(shapes, 500);
  const auto status = reader.checkpoint->Read(*reader.session, prefix);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_TRUE(status->AssertConsumed().ok()) << status->AssertConsumed();
  reader.ExpectValues(shapes, 1);
}

TEST(CheckpointLayout, FilesAreFilledOneAfterTheOther) {
  const std::map<std::string, Shape> shapes = {
      {"a", Shape({4})}, {"b", Shape({2, 2})}, {"c", Shape({})}, {"d", Shape({3})}};
  ExpectRoundTrip(shapes, 1000, {48});
  ExpectRoundTrip(shapes, 36, {36, 12});
  ExpectRoundTrip(shapes, 20, {16, 20, 12});
}

TEST(CheckpointLayout, WhatIsTooBigIsCutAlongTheAxisThatNeedsTheFewestParts) {
  ExpectRoundTrip({{"a", Shape({10, 3})}, {"b", Shape({4})}}, 48, {48, 48, 40});
  // Three rows, or twice two columns.
  ExpectRoundTrip({{"a", Shape({3, 4})}}, 24, {24, 24});
  // No single axis does.
  ExpectRoundTrip({{"a", Shape({2, 2})}}, 4, {4, 4, 4, 4});
}

TEST(CheckpointLayout, AnElementThatIsBiggerHasItsOwnFile) {
  ExpectRoundTrip({{"a", Shape({})}, {"b", Shape({2})}}, 3, {4, 4, 4});
}

TEST(CheckpointLayout, EmptyTensorsAreKept) {
  ExpectRoundTrip({{"a", Shape({0, 5})}, {"b", Shape({2})}}, 8, {8});
}

TEST(CheckpointLayout, ThatCannotBeIsRefused) {
  Program p({{"a", Shape({2})}}, 1);
  EXPECT_TRUE(errors::IsInvalidArgument(SetLayout(*p.checkpoint, {.max_file_bytes = -1})));
  EXPECT_FALSE(SetLayout(*p.checkpoint, {.io_device = "/job:"}).ok());
}

// The devices of the nodes of an op.
std::vector<std::string> DevicesOf(const Graph& graph, const std::string& op) {
  const StatusOr<std::string> text = graph.ToText();
  EXPECT_TRUE(text.ok()) << text.status();
  std::vector<std::string> devices;
  std::size_t at = 0;
  while ((at = text->find(StrCat("op: \"", op, "\""), at)) != std::string::npos) {
    const std::string mark = "device: \"";
    const std::size_t begin = text->find(mark, at) + mark.size();
    devices.push_back(text->substr(begin, text->find('"', begin) - begin));
    at = begin;
  }
  return devices;
}

TEST(CheckpointLayout, OneTaskWritesAndReadsForAll) {
  const std::string prefix = EmptyFolder("it") + "/c";
  const std::string worker = "/job:worker/task:0/device:CPU:0";
  InProcessCluster cluster(2, 1);
  Graph graph;
  std::map<std::string, Trackable> children;
  std::vector<Variable> variables;
  for (int i = 0; i < 2; ++i) {
    const Scope scope = graph.root().WithDevice(StrCat("/job:ps/task:", i, "/cpu:0"));
    variables.push_back(FloatVariable(scope, StrCat("v", i), {static_cast<float>(i), 7}, i == 1));
    children.emplace(StrCat("v", i), variables.back());
  }
  const auto checkpoint = Checkpoint::Create(graph, children);
  ASSERT_TRUE(SetLayout(**checkpoint, {.io_device = worker}).ok());
  const Operation init = InitializeVariables(graph.root());
  Session session = *Session::Create(graph, {.target = cluster.Target("worker", 0)});
  ASSERT_TRUE(session.RunTargets({init}).ok());
  const Status written = (*checkpoint)->Write(session, prefix);
  ASSERT_TRUE(written.ok()) << written;
  for (const Variable& v : variables) ASSERT_TRUE(SetFloats(graph, session, v, {0, 0}).ok());
  const auto status = (*checkpoint)->Read(session, prefix);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_TRUE(status->AssertConsumed().ok()) << status->AssertConsumed();
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(FloatsOf(session, variables[i]), ElementsAre(static_cast<float>(i), 7));
  }
  for (const char* op : {"SaveV2", "MergeV2Checkpoints", "RestoreV2"}) {
    const std::vector<std::string> devices = DevicesOf(graph, op);
    ASSERT_FALSE(devices.empty()) << op;
    for (const std::string& device : devices) EXPECT_EQ(device, worker) << op;
  }
}

}  // namespace
}  // namespace millrace::testing
