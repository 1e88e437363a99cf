// SPDX-License-Identifier: Apache-2.0
// What users read when a graph cannot be placed: whole texts, kept in testdata/conflicts.txt.
// Each case there is a cluster, a graph and the error:
//   === TITLE
//   devices JOB:TASKS... [gpus=N] [xla=N] [soft=1]     (accelerators of every worker)
//   NAME OP REQUEST|-|assigned=DEVICE ORIGIN [INPUT | loc:@LABEL]...
//   --- CODE
//   the text
// L2Loss has a kernel for CPU only, Relu6 one for GPU only, Bitcast none. When texts are meant
// to change, run with --test_env=MILLRACE_WRITE_GOLDENS=1 and read the file that the test
// leaves among its outputs.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "gtest/gtest.h"
#include "ops/all_ops.h"
#include "placer/placer.h"

namespace millrace {
namespace {

constexpr char kCases[] = "placer/testdata/conflicts.txt";

struct Case {
  std::string title;
  std::vector<std::string> input;
  std::string answer;
};

std::vector<Case> ReadCases() {
  std::ifstream file(kCases);
  std::vector<Case> cases;
  bool in_answer = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("=== ")) {
      cases.push_back({line.substr(4), {}, ""});
      in_answer = false;
    } else if (line.starts_with("--- ") || in_answer) {
      in_answer = true;
      StrAppend(&cases.back().answer, line, "\n");
    } else {
      cases.back().input.push_back(line);
    }
  }
  return cases;
}

std::vector<std::string> Words(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::optional<int> Kernel(const OpInfo& op, const AttrMap&, std::string_view type) {
  const std::string& name = op.def.name();
  if (name == "Bitcast" || (name == "L2Loss" && type != "CPU") ||
      (name == "Relu6" && type != "GPU") || type == "XLA_CPU") {
    return std::nullopt;
  }
  return 0;
}

PlacerInput Cluster(const std::vector<std::string>& words) {
  PlacerInput input;
  input.kernel = Kernel;
  int gpus = 0, xla = 0;
  for (const std::string& word : words) {
    const int value = std::atoi(word.substr(word.find_first_of("=:") + 1).c_str());
    if (word.starts_with("gpus=")) gpus = value;
    if (word.starts_with("xla=")) xla = value;
    if (word.starts_with("soft=")) input.allow_soft_placement = value != 0;
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t colon = words[i].find(':');
    if (colon == std::string::npos) continue;
    const std::string job = words[i].substr(0, colon);
    for (int task = 0; task < std::atoi(words[i].c_str() + colon + 1); ++task) {
      const auto add = [&](const char* type, int count) {
        for (int n = 0; n < count; ++n) {
          input.devices.push_back({StrCat(MakeTaskName(job, task), "/device:", type, ":", n), type,
                                   job != "ps" && task == 0});
        }
      };
      add("CPU", 1);
      add("GPU", job == "ps" ? 0 : gpus);
      add("XLA_CPU", job == "ps" ? 0 : xla);
    }
  }
  return input;
}

Status AddNode(const std::vector<std::string>& words, DataflowGraph* graph) {
  std::string op = words[1];
  DataType type = kFloat;
  if (op == "Identity:resource") {
    op = "Identity";
    type = kResource;
  }
  AttrMap attrs;
  const OpInfo* info = graph->ops().Find(op);
  if (info == nullptr) return errors::NotFound("no op ", op);
  for (const pb::OpDef::AttrDef& attr : info->def.attr()) {
    if (attr.has_default_value()) continue;
    if (attr.type() == "type") attrs.Set(attr.name(), type);
    if (attr.type() == "shape") attrs.Set(attr.name(), PartialShape({2}));
    if (attr.type() == "tensor") attrs.Set(attr.name(), Tensor(kFloat, Shape({2})));
  }
  std::vector<std::string> labels;
  for (const std::string& word : words) {
    if (word.starts_with("loc:@")) labels.push_back(word);
  }
  if (!labels.empty()) attrs.Set("_class", labels);
  const auto node = graph->AddNode(words[0], op, std::move(attrs));
  if (!node.ok()) return node.status();
  if (words[2].starts_with("assigned=")) {
    (*node)->set_assigned_device(words[2].substr(9));
  } else if (words[2] != "-") {
    (*node)->set_requested_device(words[2]);
  }
  (*node)->set_origin(words[3]);
  int slot = 0;
  for (std::size_t i = 4; i < words.size(); ++i) {
    if (words[i].starts_with("loc:@")) continue;
    const auto edge = graph->AddEdge(graph->FindNode(words[i]), 0, *node, slot++);
    if (!edge.ok()) return edge.status();
  }
  return OkStatus();
}

std::string Answer(const OpRegistry& ops, const Case& test) {
  DataflowGraph graph(&ops);
  for (std::size_t i = 1; i < test.input.size(); ++i) {
    const Status status = AddNode(Words(test.input[i]), &graph);
    if (!status.ok()) return StrCat("bad case: ", Message(status), "\n");
  }
  graph.FixSourceAndSink();
  const Status status = Place(&graph, Cluster(Words(test.input[0])), nullptr);
  if (status.ok()) return "--- OK\n";
  return StrCat("--- ", std::string(StatusCodeName(status.code())), "\n", Message(status), "\n");
}

TEST(ConflictTest, ErrorsSayWhatConflictsAndWhereItWasMade) {
  OpRegistry ops;
  ASSERT_TRUE(RegisterAllOps(ops).ok());
  const std::vector<Case> cases = ReadCases();
  ASSERT_GE(cases.size(), 20u);
  const char* const outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  std::ofstream written;
  if (std::getenv("MILLRACE_WRITE_GOLDENS") != nullptr && outputs != nullptr) {
    written.open(StrCat(outputs, "/conflicts.txt"));
  }
  for (const Case& test : cases) {
    const std::string answer = Answer(ops, test);
    EXPECT_EQ(answer, test.answer) << test.title;
    EXPECT_NE(answer, "--- OK\n") << test.title;
    if (!written.is_open()) continue;
    written << "=== " << test.title << "\n";
    for (const std::string& line : test.input) written << line << "\n";
    written << answer;
  }
}

}  // namespace
}  // namespace millrace
