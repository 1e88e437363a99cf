// SPDX-License-Identifier: Apache-2.0
#include "planner/diff.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "base/strings.h"
#include "graph/graph_def_io.h"
#include "ops/all_ops.h"
#include "planner/matching.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

const OpRegistry& Ops() {
  static const OpRegistry* const ops = [] {
    auto* const made = new OpRegistry;
    EXPECT_TRUE(RegisterAllOps(*made).ok());
    return made;
  }();
  return *ops;
}

std::unique_ptr<DataflowGraph> Import(const pb::GraphDef& def) {
  auto graph = std::make_unique<DataflowGraph>(&Ops());
  const Status status = ImportGraphDef({.devices_are_assigned = true}, def, graph.get());
  EXPECT_TRUE(status.ok()) << status;
  return graph;
}

PlanDiff Diff(const pb::GraphDef& a, const pb::GraphDef& b) {
  return DiffPlans(*Import(a), *Import(b));
}

// Node by node.
class Builder {
 public:
  pb::NodeDef* Add(const std::string& name, const std::string& op,
                   std::initializer_list<std::string> inputs, const std::string& device) {
    pb::NodeDef* const node = def.add_node();
    node->set_name(name);
    node->set_op(op);
    node->set_device(StrCat(device, "/device:CPU:0"));
    for (const std::string& input : inputs) node->add_input(input);
    const bool has_dtype = op == "VariableV2" || op == "Placeholder";
    (*node->mutable_attr())[has_dtype ? "dtype" : "T"].set_type(pb::DT_FLOAT);
    if (has_dtype) (*node->mutable_attr())["shape"].mutable_shape()->add_dim()->set_size(10);
    return node;
  }
  pb::GraphDef def;
};

constexpr char kPs0[] = "/job:ps/replica:0/task:0";
constexpr char kPs1[] = "/job:ps/replica:0/task:1";
constexpr char kWorker[] = "/job:worker/replica:0/task:0";

// Two equal towers that meet, each with a variable on a ps of its own.
pb::GraphDef Towers() {
  Builder g;
  g.Add("x", "Placeholder", {}, kWorker);
  for (const std::string t : {"a", "b"}) {
    const char* const ps = t == "a" ? kPs0 : kPs1;
    g.Add(t + "/w", "VariableV2", {}, ps);
    pb::NodeDef* const read = g.Add(t + "/read", "Identity", {t + "/w"}, ps);
    (*read->mutable_attr())["_class"].mutable_list()->add_s("loc:@" + t + "/w");
    g.Add(t + "/mul", "Mul", {"x", t + "/read"}, kWorker);
    g.Add(t + "/neg", "Neg", {t + "/mul", "^x"}, kWorker);
  }
  g.Add("sum", "Sub", {"a/neg", "b/neg"}, kWorker);
  return g.def;
}

pb::NodeDef* Find(const std::string& name, pb::GraphDef* def) {
  for (pb::NodeDef& node : *def->mutable_node()) {
    if (node.name() == name) return &node;
  }
  ADD_FAILURE() << "no node " << name;
  return def->mutable_node(0);
}

// The same graph, with every node called as `name` says.
template <typename Name>
pb::GraphDef Renamed(const pb::GraphDef& def, Name name) {
  pb::GraphDef other = def;
  for (pb::NodeDef& node : *other.mutable_node()) {
    node.set_name(name(node.name()));
    for (std::string& input : *node.mutable_input()) {
      const bool control = input[0] == '^';
      const std::size_t colon = input.find(':');
      const std::string base =
          input.substr(control, colon == std::string::npos ? colon : colon - control);
      input = StrCat(control ? "^" : "", name(base),
                     colon == std::string::npos ? "" : input.substr(colon));
    }
    const auto found = node.mutable_attr()->find("_class");
    if (found == node.mutable_attr()->end()) continue;
    for (std::string& s : *found->second.mutable_list()->mutable_s()) {
      s = StrCat("loc:@", name(s.substr(5)));
    }
  }
  return other;
}

TEST(Diff, OfAPlanAndItselfIsEmpty) {
  const PlanDiff diff = Diff(Towers(), Towers());
  EXPECT_TRUE(diff.IsEmpty()) << DiffToText(diff);
  EXPECT_EQ(DiffToText(diff), "no difference\n");
}

TEST(Diff, NamesOrderAndSpellingOfDevicesAreNoDifference) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    pb::GraphDef other =
        Renamed(Towers(), [](const std::string& name) { return "model/" + name + "_1"; });
    std::shuffle(other.mutable_node()->pointer_begin(), other.mutable_node()->pointer_end(),
                 random);
    for (pb::NodeDef& node : *other.mutable_node()) {
      std::string device = node.device();
      device.replace(device.find("/device:CPU:0"), std::string::npos, "/cpu:0");
      if (round % 2 == 0) device.erase(device.find("/replica:0"), 10);
      node.set_device(device);
    }
    const PlanDiff diff = Diff(Towers(), other);
    EXPECT_TRUE(diff.IsEmpty()) << DiffToText(diff);
    EXPECT_THAT(diff.renamed, SizeIs(10));
  }
}

TEST(Diff, ExchangedNamesAreNoDifferenceEither) {
  // Half of the names of two towers that look alike: names must not tear a tower apart.
  const std::map<std::string, std::string> exchanged = {
      {"a/mul", "b/mul"}, {"b/mul", "a/mul"}, {"a/w", "b/w"}, {"b/w", "a/w"}};
  const PlanDiff diff = Diff(Towers(), Renamed(Towers(), [&](const std::string& name) {
                               const auto it = exchanged.find(name);
                               return it == exchanged.end() ? name : it->second;
                             }));
  EXPECT_TRUE(diff.IsEmpty()) << DiffToText(diff);
  EXPECT_THAT(diff.renamed, SizeIs(4));
}

// Towers that not even devices tell apart, and nothing meets them.
TEST(Diff, RandomGraphsDifferNotFromTheirRenamedAndReorderedSelves) {
  std::mt19937 random(11);
  for (int round = 0; round < 30; ++round) {
    Builder g;
    const int n = 20 + static_cast<int>(random() % 80);
    for (int i = 0; i < n; ++i) {
      const std::string device = random() % 2 == 0 ? kPs0 : kWorker;
      const std::string name = StrCat("n", i);
      const auto input = [&] { return StrCat("n", random() % i); };
      if (i < 3 || random() % 6 == 0) {
        g.Add(name, "Placeholder", {}, device);
      } else if (random() % 3 == 0) {
        g.Add(name, "Neg", {input()}, device);
      } else {
        g.Add(name, "Mul", {input(), input()}, device);
      }
    }
    std::vector<int> numbers(n);
    for (int i = 0; i < n; ++i) numbers[i] = i;
    std::shuffle(numbers.begin(), numbers.end(), random);
    pb::GraphDef other = Renamed(g.def, [&](const std::string& name) {
      return StrCat("n", numbers[std::stoi(name.substr(1))]);
    });
    std::shuffle(other.mutable_node()->pointer_begin(), other.mutable_node()->pointer_end(),
                 random);
    const PlanDiff diff = Diff(g.def, other);
    EXPECT_TRUE(diff.IsEmpty()) << "round " << round << "\n" << DiffToText(diff);
  }
}

TEST(Diff, AMovedVariableIsNamedWithItsLinksAndLoads) {
  pb::GraphDef other = Towers();
  for (const char* name : {"b/w", "b/read"}) {
    Find(name, &other)->set_device(StrCat(kPs0, "/device:CPU:0"));
  }
  const PlanDiff diff = Diff(Towers(), other);
  ASSERT_THAT(diff.moved, SizeIs(2));
  EXPECT_EQ(diff.moved[0].name, "b/w");
  EXPECT_EQ(diff.moved[0].what, StrCat(kPs1, "/device:CPU:0 -> ", kPs0, "/device:CPU:0"));
  EXPECT_THAT(diff.changed, SizeIs(0));
  EXPECT_THAT(diff.new_cuts, SizeIs(1));
  EXPECT_THAT(diff.removed_cuts, SizeIs(1));
  const std::string text = DiffToText(diff);
  EXPECT_THAT(text, HasSubstr(StrCat("  b/read:0: ", kPs0, " -> ", kWorker, ", 40 bytes\n")));
  EXPECT_THAT(text, HasSubstr(StrCat(kPs0, " -> ", kWorker, ": 40 -> 80 bytes, 1 -> 2 tensors")));
  EXPECT_THAT(text, HasSubstr(StrCat(kPs0, ": 40 -> 80 bytes, 1 -> 2 variables")));
  EXPECT_THAT(text, HasSubstr(StrCat(kPs1, ": 40 -> 0 bytes, 1 -> 0 variables")));
}

TEST(Diff, AMoveIsFoundThoughEveryNodeHasAnotherName) {
  pb::GraphDef other = Renamed(Towers(), [](const std::string& name) { return "z_" + name; });
  Find("z_b/w", &other)->set_device(StrCat(kWorker, "/device:CPU:0"));
  const PlanDiff diff = Diff(Towers(), other);
  ASSERT_THAT(diff.moved, SizeIs(1)) << DiffToText(diff);
  EXPECT_EQ(diff.moved[0].name, "b/w");
  EXPECT_EQ(diff.moved[0].other_name, "z_b/w");
  EXPECT_THAT(diff.changed, SizeIs(0));
  EXPECT_THAT(diff.added, SizeIs(0));
}

TEST(Diff, AttributesAndInputsThatChangedAreNamed) {
  pb::GraphDef other = Towers();
  (*Find("a/w", &other)->mutable_attr())["shape"].mutable_shape()->mutable_dim(0)->set_size(1);
  Find("sum", &other)->set_input(0, "b/neg");
  Find("sum", &other)->set_input(1, "a/neg");
  Find("b/neg", &other)->mutable_input()->RemoveLast();
  const PlanDiff diff = Diff(Towers(), other);
  std::map<std::string, std::string> what;
  for (const auto& change : diff.changed) what[change.name] = change.what;
  EXPECT_EQ(what["a/w"], "attribute shape") << DiffToText(diff);
  EXPECT_EQ(what["sum"], "input 0, input 1");
  EXPECT_EQ(what["b/neg"], "control inputs");
  EXPECT_THAT(diff.moved, SizeIs(0));
}

TEST(Diff, NodesWithoutCounterpartAreListed) {
  Builder more;
  more.def = Towers();
  more.Add("extra", "Neg", {"sum"}, kPs0);
  const PlanDiff diff = Diff(Towers(), more.def);
  ASSERT_THAT(diff.added, SizeIs(1));
  EXPECT_EQ(diff.added[0].other_name, "extra");
  EXPECT_THAT(diff.removed, SizeIs(0));
  EXPECT_THAT(diff.changed, SizeIs(0));
  EXPECT_THAT(diff.new_cuts, SizeIs(1));
  EXPECT_THAT(DiffToText(diff), HasSubstr("only in the second, no counterpart found (1):"));
  EXPECT_THAT(Diff(more.def, Towers()).removed, SizeIs(1));
}

TEST(Diff, TextAndJsonAreTheSameEachTime) {
  pb::GraphDef other = Towers();
  Find("b/w", &other)->set_device(StrCat(kPs0, "/device:CPU:0"));
  EXPECT_EQ(DiffToText(Diff(Towers(), other)), DiffToText(Diff(Towers(), other)));
  EXPECT_EQ(DiffToJson(Diff(Towers(), other)), DiffToJson(Diff(Towers(), other)));
  EXPECT_THAT(DiffToJson(Diff(Towers(), Towers())), HasSubstr("\"same\": true"));
}

}  // namespace
}  // namespace millrace
