// SPDX-License-Identifier: Apache-2.0
// Runs the program itself on files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/strings.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr char kGraph[] = R"(
  node { name: "w" op: "VariableV2" device: "/job:ps/task:1"
         attr { key: "dtype" value { type: DT_FLOAT } }
         attr { key: "shape" value { shape { dim { size: 4 } } } } }
  node { name: "x" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
         attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 4 } }
                                              float_val: 1 } } } }
  node { name: "sum" op: "AddV2" input: "w" input: "x"
         attr { key: "T" value { type: DT_FLOAT } } }
  node { name: "set" op: "Assign" input: "w" input: "sum"
         attr { key: "T" value { type: DT_FLOAT } } }
  versions { producer: 1000 })";

// The body of a call asks for a ps task, and so does the result of another one.
constexpr char kCalls[] = R"(
  node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
         attr { key: "shape" value { shape { dim { size: 4 } } } } }
  node { name: "twice" op: "PartitionedCall" input: "x"
         attr { key: "Tin" value { list { type: DT_FLOAT } } }
         attr { key: "Tout" value { list { type: DT_FLOAT } } }
         attr { key: "f" value { func { name: "Twice" } } } }
  node { name: "end" op: "Neg" input: "twice" device: "/job:worker/task:0"
         attr { key: "T" value { type: DT_FLOAT } } }
  node { name: "make" op: "StatefulPartitionedCall"
         attr { key: "Tin" value { list {} } }
         attr { key: "Tout" value { list { type: DT_RESOURCE } } }
         attr { key: "f" value { func { name: "Make" } } } }
  node { name: "read" op: "ReadVariableOp" input: "make"
         attr { key: "dtype" value { type: DT_FLOAT } } }
  library { function {
    signature { name: "Twice" input_arg { name: "v" type: DT_FLOAT }
                output_arg { name: "out" type: DT_FLOAT } }
    node_def { name: "sum" op: "AddV2" input: "v" input: "v" device: "/job:ps/task:1"
               attr { key: "T" value { type: DT_FLOAT } } }
    ret { key: "out" value: "sum:z:0" } }
  function {
    signature { name: "Make" is_stateful: true output_arg { name: "out" type: DT_RESOURCE } }
    node_def { name: "v" op: "VarHandleOp" device: "/job:ps/task:0"
               attr { key: "dtype" value { type: DT_FLOAT } }
               attr { key: "shape" value { shape {} } } }
    ret { key: "out" value: "v:resource:0" }
    attr { key: "_noinline" value { b: true } } } }
  versions { producer: 1000 })";

class PlacementCommandTest : public ::testing::Test {
 protected:
  PlacementCommandTest() {
    dir_ = std::getenv("TEST_TMPDIR");
    Write("graph.pbtxt", kGraph);
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(StrCat(dir_, "/", name)) << text;
  }

  // stdout and stderr of `millrace ARGUMENTS`, where % is the folder of files.
  std::string Run(std::string arguments, int expected_code,
                  const std::string& environment = "env -u TF_CONFIG ") {
    for (std::size_t at; (at = arguments.find('%')) != std::string::npos;) {
      arguments.replace(at, 1, dir_ + "/");
    }
    std::FILE* const pipe =
        popen(StrCat(environment, "tools/millrace ", arguments, " 2>&1").c_str(), "r");
    std::string text;
    char buffer[4096];
    for (std::size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
      text.append(buffer, n);
    }
    const int status = pclose(pipe);
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, expected_code) << text;
    return text;
  }

  std::string dir_;
};

TEST_F(PlacementCommandTest, PlaceListsDevicesAndRules) {
  const std::string text = Run("place %graph.pbtxt --cluster ps:2,worker:1", 0);
  EXPECT_THAT(text, HasSubstr("/job:ps/replica:0/task:1/device:CPU:0  set (Assign): rule 5\n"));
  EXPECT_THAT(text, HasSubstr("/job:worker/replica:0/task:0/device:CPU:0  x (Const): rule 4\n"));
}

TEST_F(PlacementCommandTest, CallsAreReplacedOrLookedIntoAsInASession) {
  Write("calls.pbtxt", kCalls);
  const std::string placed = Run("place %calls.pbtxt --cluster ps:2,worker:1", 0);
  EXPECT_THAT(placed, HasSubstr("/job:ps/replica:0/task:1/device:CPU:0  twice/sum (AddV2)"));
  const std::string why = Run("why read %calls.pbtxt --cluster ps:2,worker:1", 0);
  EXPECT_THAT(why, HasSubstr("read (ReadVariableOp) -> /job:ps/replica:0/task:0/device:CPU:0"));
  EXPECT_THAT(why, HasSubstr("function Make asks for /job:ps/task:0"));
  const std::string plan =
      Run("plan %calls.pbtxt --cluster ps:2,worker:1 --feed x --fetch end --json", 0);
  EXPECT_THAT(plan, HasSubstr("\"ps_traffic\": {\n  \"most\": 32"));
}

TEST_F(PlacementCommandTest, WhatPlaceWritesCanBeReadAgain) {
  Run("place %graph.pbtxt --cluster ps:2,worker:1 --write %placed.pb", 0);
  const std::string text = Run("why x %placed.pb --cluster ps:2,worker:1", 0);
  EXPECT_THAT(text, HasSubstr("x (Const) asks for /job:worker/replica:0/task:0/device:CPU:0"));
}

TEST_F(PlacementCommandTest, WhyTellsTheWholeStory) {
  const std::string text = Run("why set %graph.pbtxt --cluster 'ps|a:1;b:1,worker|c:1'", 0);
  EXPECT_THAT(text, HasSubstr("rule 5: a node of its group was placed there: w\n"));
  EXPECT_THAT(text, HasSubstr("set joined w: reference edge into input 0"));
}

TEST_F(PlacementCommandTest, ARuleCanBeLeftOut) {
  Write("tf_config.json", R"({"cluster": {"ps": ["a:1", "b:1"], "worker": ["c:1"]}})");
  const std::string with = Run("why x %graph.pbtxt --cluster %tf_config.json", 0);
  EXPECT_THAT(with, HasSubstr("rule 4"));
  const std::string without = Run("why x %graph.pbtxt --cluster %tf_config.json --without 4", 0);
  EXPECT_THAT(without, HasSubstr("rule 10: local before remote"));
}

TEST_F(PlacementCommandTest, TheAutomaticPlacerSaysWhatItExpects) {
  const std::string text = Run("place %graph.pbtxt --cluster ps:2,worker:1 --placer auto", 0);
  EXPECT_THAT(text, HasSubstr("a step is expected to take"));
  EXPECT_THAT(text, HasSubstr("/job:ps/replica:0/task:1/device:CPU:0  set (Assign): rule 5\n"));
}

TEST_F(PlacementCommandTest, PartitionTellsWhatIsSent) {
  const std::string text = Run("partition %graph.pbtxt --cluster ps:2,worker:1 --target set", 0);
  EXPECT_THAT(text, HasSubstr("/job:ps/replica:0/task:1: 4 nodes, 1 sends, 1 receives\n"));
  EXPECT_THAT(text, HasSubstr("/job:ps/replica:0/task:1/device:CPU:0 -> "
                              "/job:worker/replica:0/task:0/device:CPU:0: 1 tensors, 16 bytes a "
                              "step\n"));
}

TEST_F(PlacementCommandTest, ProgramsGetJson) {
  EXPECT_THAT(Run("place %graph.pbtxt --json", 1), HasSubstr("What cannot be met:"));
  EXPECT_THAT(Run("place %graph.pbtxt --cluster ps:2,worker:1 --json", 0),
              HasSubstr("\"rule\": 4"));
  EXPECT_THAT(Run("partition %graph.pbtxt --cluster ps:2,worker:1 --json", 0),
              HasSubstr("\"bytes\": 16"));
}

TEST_F(PlacementCommandTest, APlanThatWasWrittenNeedsNoCluster) {
  Write("plan.json", Run("place %graph.pbtxt --cluster ps:2,worker:1 --json --full", 0));
  EXPECT_THAT(Run("why x %plan.json", 0), HasSubstr("rule 4: it has no inputs"));
  EXPECT_THAT(Run("place %plan.json", 0),
              HasSubstr("/job:ps/replica:0/task:1/device:CPU:0  set (Assign): rule 5\n"));
  EXPECT_THAT(Run("partition %plan.json --target set", 0), HasSubstr(": 1 tensors, 16 bytes"));
}

TEST_F(PlacementCommandTest, TheClusterMayComeFromTheEnvironment) {
  setenv("TF_CONFIG", R"({"cluster": {"ps": ["a:1", "b:1"], "worker": ["c:1"]}})", 1);
  EXPECT_THAT(Run("place %graph.pbtxt", 0, ""), HasSubstr("set (Assign): rule 5"));
  unsetenv("TF_CONFIG");
}

TEST_F(PlacementCommandTest, PlanTellsWhatAStepSendsAndKeeps) {
  const std::string text = Run("plan %graph.pbtxt --cluster ps:2,worker:1 --target set", 0);
  EXPECT_THAT(text, HasSubstr("worker:0  ps:1      1        16\n"));
  EXPECT_THAT(text, HasSubstr("max/mean: variables 2.00, traffic 2.00"));
  EXPECT_THAT(Run("plan %graph.pbtxt --cluster ps:2,worker:1 --target set --json", 0),
              HasSubstr("\"not_exact\": 0"));
  const std::string table =
      Run("plan %graph.pbtxt --cluster ps:2,worker:1 --target set --ps 1,2 --workers 1,8", 0);
  EXPECT_THAT(table, HasSubstr("1   8        round robin   16         1.00  256      1.00  256\n"));
  EXPECT_THAT(table, HasSubstr("2   8        greedy bytes  16         2.00  256      2.00  256\n"));
  EXPECT_THAT(Run("plan %graph.pbtxt --cluster ps:2,worker:1 --ps 0", 2),
              HasSubstr("0 is no number of tasks"));
  EXPECT_THAT(Run("plan %graph.pbtxt --cluster ps:2,worker:1 --feed x --shape x=a", 2),
              HasSubstr("'x=a' is not a tensor and its shape"));
}

// On an accelerator that every build has kernels for.
constexpr char kOnAccelerators[] = R"(
  node { name: "x" op: "Placeholder" device: "/job:localhost/task:0/device:FAKE:0"
         attr { key: "dtype" value { type: DT_FLOAT } }
         attr { key: "shape" value { shape { dim { size: 4 } } } } }
  node { name: "a" op: "Neg" input: "x" device: "/job:localhost/task:0/device:FAKE:0"
         attr { key: "T" value { type: DT_FLOAT } } }
  node { name: "b" op: "Square" input: "a" device: "/job:localhost/task:0/device:FAKE:0"
         attr { key: "T" value { type: DT_FLOAT } } }
  node { name: "c" op: "Exp" input: "b" device: "/job:localhost/task:0/device:FAKE:0"
         attr { key: "T" value { type: DT_FLOAT } } }
  node { name: "v" op: "VarHandleOp" device: "/job:localhost/task:0/device:FAKE:1"
         attr { key: "dtype" value { type: DT_FLOAT } }
         attr { key: "shape" value { shape {} } } }
  node { name: "d" op: "VarIsInitializedOp" input: "v"
         device: "/job:localhost/task:0/device:FAKE:1" }
  versions { producer: 1000 })";

TEST_F(PlacementCommandTest, PlanTellsWhichStepsOfAcceleratorsAreOneLaunch) {
  Write("fake.pbtxt", kOnAccelerators);
  EXPECT_THAT(Run("plan %fake.pbtxt --feed x --fetch c", 0),
              HasSubstr("No OpKernel was registered"))
      << "not without being asked for";
  const std::string text =
      Run("plan %fake.pbtxt --fake_accelerator --feed x --fetch c --fetch d", 0);
  EXPECT_THAT(text, HasSubstr("task:0/device:FAKE:0  5      one launch, once they have been"));
  EXPECT_THAT(text, HasSubstr("task:0/device:FAKE:1  3      node by node: {{node d}} "
                              "(VarIsInitializedOp): it has a state, or an effect, on the host"));
  EXPECT_THAT(Run("plan %fake.pbtxt --fake_accelerator --feed x --fetch c --json", 0),
              HasSubstr("\"captures\": [\n  {\n   \"device\": "
                        "\"/job:localhost/replica:0/task:0/device:FAKE:0\",\n   \"nodes\": 5,\n"
                        "   \"obstacle\": \"\"\n  }\n ]"));
  EXPECT_THAT(Run("plan %fake.pbtxt --fake_accelerator --fetch d", 0,
                  "env -u TF_CONFIG MILLRACE_CAPTURE=off "),
              HasSubstr("node by node: it is switched off"));
  EXPECT_THAT(Run("plan %graph.pbtxt --cluster ps:2,worker:1 --target set", 0),
              testing::Not(HasSubstr("steps of accelerators")));
}

TEST_F(PlacementCommandTest, DumpShowsTheGraphInFourForms) {
  const std::string graph = "dump %graph.pbtxt --cluster ps:2,worker:1 ";
  EXPECT_THAT(Run(graph, 0),
              HasSubstr("sum = AddV2(w, x) @ /job:worker/replica:0/task:0/device:CPU:0\n"));
  EXPECT_THAT(Run(graph + "--format dot", 0), HasSubstr("label=\"16 B\""));
  EXPECT_THAT(Run(graph + "--json", 0), HasSubstr("\"chain\": \"x (Const) -> /job:worker"));
  Run(graph + "--format html -o %graph.html", 0);
  EXPECT_THAT(Run("dump %absent/graph.pbtxt", 2), HasSubstr("cannot read"));
  EXPECT_THAT(Run(graph + "-o %absent/graph.html", 2), HasSubstr("cannot write"));
  EXPECT_THAT(Run(graph + "--format pdf", 2), HasSubstr("--format"));
}

TEST_F(PlacementCommandTest, DiffExitsWithThreeIfPlansDifferAndWithNoneIfOnlyNamesDo) {
  const std::string cluster = " --cluster ps:2,worker:1";
  Run("place %graph.pbtxt --write %placed.pb" + cluster, 0);
  Write("plan.json", Run("dump %graph.pbtxt --json" + cluster, 0));
  EXPECT_EQ(Run("diff %placed.pb %plan.json", 0), "no difference\n");
  std::string other = kGraph;
  for (std::size_t at; (at = other.find("\"x\"")) != std::string::npos;) {
    other.replace(at, 3, "\"input\"");
  }
  Write("other.pbtxt", other);
  EXPECT_THAT(Run("diff %graph.pbtxt %other.pbtxt" + cluster, 0), HasSubstr("x = input"));
  other.replace(other.find("task:1"), 6, "task:0");
  Write("other.pbtxt", other);
  EXPECT_THAT(Run("diff %graph.pbtxt %other.pbtxt" + cluster, 3), HasSubstr("moved (2):\n  w ("));
  EXPECT_THAT(Run("diff %graph.pbtxt %other.pbtxt --json" + cluster, 3),
              HasSubstr("\"same\": false"));
  EXPECT_THAT(Run("diff %graph.pbtxt %absent", 1), HasSubstr("millrace diff: "));
}

TEST_F(PlacementCommandTest, EveryCommandHasHelp) {
  for (const char* command : {"place", "why", "partition", "dump", "diff", "plan"}) {
    EXPECT_THAT(Run(StrCat(command, " --help"), 0), HasSubstr("--cluster"));
  }
}

TEST_F(PlacementCommandTest, WrongFilesAndFlagsAreNamed) {
  Write("noise", "what is this");
  EXPECT_THAT(Run("place %noise", 2), HasSubstr("holds neither a GraphDef nor a MetaGraphDef"));
  EXPECT_THAT(Run("place %absent", 2), HasSubstr("cannot read"));
  EXPECT_THAT(Run("why nobody %graph.pbtxt", 2), HasSubstr("the graph has no node 'nobody'"));
  EXPECT_THAT(Run("place %graph.pbtxt --cluster ps", 2), HasSubstr("'ps' is neither"));
  EXPECT_THAT(Run("place %graph.pbtxt --cluster ps:1 --master /job:chief", 2),
              HasSubstr("the cluster has no task /job:chief"));
  EXPECT_THAT(Run("place %graph.pbtxt --without 1", 2), HasSubstr("no rule 1 can be left out"));
}

}  // namespace
}  // namespace millrace
