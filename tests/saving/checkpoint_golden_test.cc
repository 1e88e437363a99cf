// SPDX-License-Identifier: Apache-2.0
// Checkpoints of objects that TensorFlow and Keras wrote, read, restored and written again.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "base/errors.h"
#include "base/strings.h"
#include "proto/trackable_object_graph.pb.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

constexpr char kFolder[] = "training/callbacks/checkpoints/";
constexpr char kGraphKey[] = "_CHECKPOINTABLE_OBJECT_GRAPH";

const Json& Expected() {
  static const Json* const json = new Json(LoadJson(StrCat(kFolder, "expected.json")));
  return *json;
}

std::string Prefix(const std::string& name) { return GoldenPath(StrCat(kFolder, name)); }

DataType TypeNamed(const std::string& name) {
  static const std::map<std::string, DataType> kTypes = {
      {"float32", kFloat}, {"float64", kDouble}, {"float16", kHalf},  {"int32", kInt32},
      {"int64", kInt64},   {"bool", kBool},      {"string", kString},
  };
  return kTypes.at(name);
}

// As the goldens have it; without the names of variables, which are the program's.
Json ToJson(const pb::TrackableObjectGraph& graph) {
  Json nodes = Json::array();
  for (const auto& n : graph.nodes()) {
    Json node = Json::object();
    for (const auto& c : n.children()) {
      Json child = {{"local_name", c.local_name()}};
      if (c.node_id() != 0) child["node_id"] = c.node_id();
      node["children"].push_back(child);
    }
    for (const auto& a : n.attributes()) {
      node["attributes"].push_back({{"name", a.name()}, {"checkpoint_key", a.checkpoint_key()}});
    }
    for (const auto& s : n.slot_variables()) {
      node["slot_variables"].push_back(
          {{"original_variable_node_id", s.original_variable_node_id()},
           {"slot_name", s.slot_name()},
           {"slot_variable_node_id", s.slot_variable_node_id()}});
    }
    node["has_checkpoint_values"] = n.has_checkpoint_values().value();
    nodes.push_back(node);
  }
  return nodes;
}

Json WithoutNames(Json nodes) {
  for (Json& node : nodes) {
    if (!node.contains("attributes")) continue;
    for (Json& attribute : node["attributes"]) attribute.erase("full_name");
  }
  return nodes;
}

Json GraphOf(const std::string& prefix) {
  const auto reader = CheckpointReader::Open(prefix);
  EXPECT_TRUE(reader.ok()) << reader.status();
  const StatusOr<std::string> bytes = (*reader)->ObjectGraph();
  pb::TrackableObjectGraph graph;
  EXPECT_TRUE(bytes.ok() && graph.ParseFromString(*bytes));
  return ToJson(graph);
}

void ExpectTensors(const std::string& prefix, const Json& want) {
  const auto reader = CheckpointReader::Open(prefix);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<std::string> names, wanted;
  for (const auto& entry : (*reader)->entries()) names.push_back(entry.name);
  for (const auto& [name, dtype] : want["dtypes"].items()) {
    wanted.push_back(name);
    const auto* entry = (*reader)->Find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->dtype, TypeNamed(dtype)) << name;
  }
  EXPECT_EQ(names, wanted);
  for (const auto& [name, tensor] : want["tensors"].items()) {
    const auto value = (*reader)->Read(name);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(DifferenceFrom(*value, tensor), "") << name;
  }
}

// A program with the objects of a golden.
struct Program {
  explicit Program(const std::string& golden) : want(Expected()[golden]) {
    const Json& nodes = want["object_graph"]["nodes"];
    for (const Json& node : nodes) objects.push_back(ObjectOf(node));
    checkpoint = *Checkpoint::Create(graph, {});
    for (std::size_t i = 0; i < objects.size(); ++i) Connect(nodes[i], static_cast<int>(i));
  }
  // An object may be below itself.
  ~Program() { checkpoint->root().Add("root", Trackable()); }

  Trackable ObjectOf(const Json& node) {
    if (!node.contains("attributes")) return Trackable();
    const std::string key = node["attributes"][0]["checkpoint_key"];
    Shape shape;
    for (const auto& d : want["tensors"][key]["shape"]) shape.AddDim(d.get<int64_t>());
    const DataType dtype = TypeNamed(want["dtypes"][key]);
    const Variable v = MakeVariable(graph.root(), StrCat("variable_", variables.size()),
                                    Constant(graph.root(), Tensor(dtype, shape)),
                                    {.use_resource = variables.size() % 2 == 1});
    variables[key] = v;
    return v;
  }

  Variable VariableAt(int id) {
    const Json& node = want["object_graph"]["nodes"][id];
    return variables[node["attributes"][0]["checkpoint_key"]];
  }

  void Connect(const Json& node, int id) {
    Trackable& object = id == 0 ? checkpoint->root() : objects[id];
    for (const Json& child : node.value("children", Json::array())) {
      const std::string name = child["local_name"];
      if (name == "save_counter") continue;  // the checkpoint's own
      const int to = child.value("node_id", 0);
      object.Add(name, to == 0 ? checkpoint->root() : objects[to]);
    }
    for (const Json& slot : node.value("slot_variables", Json::array())) {
      object.AddSlot(slot["slot_name"], VariableAt(slot["original_variable_node_id"]),
                     VariableAt(slot["slot_variable_node_id"]));
    }
  }

  const Json want;
  Graph graph;
  std::unique_ptr<Checkpoint> checkpoint;
  std::vector<Trackable> objects;
  std::map<std::string, Variable> variables;  // by key
};

class CheckpointGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CheckpointGoldenTest, IsReadTensorByTensorAndObjectByObject) {
  const Json& want = Expected()[GetParam()];
  ExpectTensors(Prefix(GetParam()), want);
  EXPECT_EQ(GraphOf(Prefix(GetParam())), WithoutNames(want["object_graph"]["nodes"]));
}

TEST_P(CheckpointGoldenTest, IsRestoredIntoObjectsAndWrittenAgainTheSame) {
  Program p(GetParam());
  Session session = *Session::Create(p.graph);
  const bool counts = std::string(GetParam()) == "saved-2";
  const auto status = counts ? p.checkpoint->Restore(session, Prefix(GetParam()))
                             : p.checkpoint->Read(session, Prefix(GetParam()));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_TRUE(status->AssertConsumed().ok()) << status->AssertConsumed();
  EXPECT_TRUE(status->AssertNontrivialMatch().ok());
  for (const auto& [key, v] : p.variables) {
    if (key.starts_with("save_counter")) continue;
    const auto value = session.Eval(v.read);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(DifferenceFrom(*value, p.want["tensors"][key]), "") << key;
  }
  const std::string copy = EmptyFolder("copy") + "/c";
  const Status written = p.checkpoint->Write(session, copy);
  ASSERT_TRUE(written.ok()) << written;
  ExpectTensors(copy, p.want);
  EXPECT_EQ(GraphOf(copy), WithoutNames(p.want["object_graph"]["nodes"]));
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointGoldenTest,
                         ::testing::Values("module_tree", "saved-2", "adam_slots", "momentum_slots",
                                           "adagrad_slots", "keras_adam"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Checkpoints of every kind: all types, slices, several files, another byte order, a Saver's.
TEST(ReaderGoldenTest, ListsTheTensorsThatTensorFlowWrote) {
  int files = 0, tensors = 0, graphs = 0;
  const Json expected = LoadJson("checkpoints/expected.json");
  for (const auto& [name, want] : expected.items()) {
    if (!want.contains("entries")) continue;
    SCOPED_TRACE(name);
    const auto reader = CheckpointReader::Open(GoldenPath("checkpoints/" + name));
    ASSERT_TRUE(reader.ok()) << reader.status();
    std::size_t listed = 0;
    for (const Json& entry : want["entries"]) {
      if (entry["key"].is_null() || entry.value("is_slice", false)) continue;
      const auto* const found = (*reader)->Find(entry["key"]);
      ASSERT_NE(found, nullptr) << entry["key"];
      EXPECT_EQ(static_cast<int>(found->dtype), entry["dtype"]) << entry["key"];
      EXPECT_EQ(std::vector<int64_t>(found->shape.dims().begin(), found->shape.dims().end()),
                entry["shape"].get<std::vector<int64_t>>());
      EXPECT_EQ(found->parts, std::max<int>(1, entry.value("slices", Json::array()).size()));
      const auto value = (*reader)->Read(found->name);
      // Types of 8 bits and fewer that have no kernels have no tensors.
      const bool is_known = DataTypeSize(found->dtype) > 0;
      EXPECT_EQ(value.ok(), is_known) << value.status();
      ++listed;
    }
    // The golden names some of very many.
    EXPECT_EQ((*reader)->entries().size(), name == "many_keys" ? 1400 : listed);
    EXPECT_EQ((*reader)->ObjectGraph().ok(), want.contains("object_graph"));
    if (want.contains("object_graph")) {
      EXPECT_EQ(GraphOf(GoldenPath("checkpoints/" + name)),
                WithoutNames(want["object_graph"]["nodes"]));
      ++graphs;
    }
    ++files;
    tensors += static_cast<int>(listed);
  }
  std::printf("reader: %d checkpoints, %d tensors\n", files, tensors);
  EXPECT_GE(files, 8);
  EXPECT_GE(graphs, 1);
}

// ---- What reading a checkpoint into other trees gives ----

using Children = std::function<std::map<std::string, Trackable>(Program&)>;

Trackable NewVariable(Program& p, const Tensor& initial) {
  return MakeVariable(p.graph.root(), "another", Constant(p.graph.root(), initial));
}

const std::map<std::string, Children>& Trees() {
  static const auto* const trees = new std::map<std::string, Children>{
      {"same tree",
       [](Program& p) {
         return std::map<std::string, Trackable>{{"net", p.objects[1]}, {"step", p.objects[2]}};
       }},
      {"step left out in the program",
       [](Program& p) { return std::map<std::string, Trackable>{{"net", p.objects[1]}}; }},
      {"extra object in the program",
       [](Program& p) {
         return std::map<std::string, Trackable>{
             {"net", p.objects[1]},
             {"step", p.objects[2]},
             {"extra", NewVariable(p, Tensor::Scalar<float>(0))}};
       }},
      {"nothing in common",
       [](Program& p) {
         return std::map<std::string, Trackable>{
             {"other", NewVariable(p, Tensor::Scalar<float>(0))}};
       }},
      {"wrong shape",
       [](Program& p) {
         return std::map<std::string, Trackable>{
             {"step", NewVariable(p, Tensor::FromValues<int64_t>({0, 0}))}};
       }},
      {"wrong dtype",
       [](Program& p) {
         return std::map<std::string, Trackable>{
             {"step", NewVariable(p, Tensor::Scalar<float>(0))}};
       }},
      {"missing file", [](Program& p) { return std::map<std::string, Trackable>{}; }},
  };
  return *trees;
}

StatusCode CodeOf(const std::string& error) {
  if (error == "AssertionError") return StatusCode::kFailedPrecondition;
  if (error == "NotFoundError") return StatusCode::kNotFound;
  return StatusCode::kInvalidArgument;
}

// What a message begins with, in the words of a program that is not Python.
std::string Beginning(std::string text) {
  for (const std::string word : {"Python "}) {
    for (std::size_t at; (at = text.find(word)) != std::string::npos;) text.erase(at, word.size());
  }
  for (const char* end : {" and name ", "<tf.Variable", " [Op:", " The following objects"}) {
    text = text.substr(0, text.find(end));
  }
  return text;
}

void RunRestore(const Json& golden) {
  Program p("module_tree");
  const auto checkpoint = Checkpoint::Create(p.graph, Trees().at(golden["name"])(p));
  Session session = *Session::Create(p.graph);
  const std::string file = golden["checkpoint"];
  auto loaded = (*checkpoint)->Read(session, file == "nowhere" ? file : Prefix(file));
  Status status = loaded.status();
  const std::string check = golden["check"];
  if (loaded.ok() && check == "assert_consumed") status = loaded->AssertConsumed();
  if (loaded.ok() && check == "assert_existing_objects_matched") {
    status = loaded->AssertExistingObjectsMatched();
  }
  if (loaded.ok() && check == "assert_nontrivial_match") status = loaded->AssertNontrivialMatch();
  EXPECT_EQ(status.ok(), golden["ok"].get<bool>()) << status;
  if (golden["ok"].get<bool>()) return;
  EXPECT_EQ(status.code(), CodeOf(golden["raises"])) << status;
  EXPECT_NE(std::string(status.message()).find(Beginning(golden["message"])), std::string::npos)
      << status << "\n"
      << Beginning(golden["message"]);
}

TEST(RestoreGoldenTest, OtherTreesGetWhatTensorFlowGivesThem) {
  int run = 0;
  const Json& cases = Expected()["restores"];
  for (const Json& golden : cases) {
    SCOPED_TRACE(golden.dump());
    if (!golden.contains("check")) continue;  // the next test
    RunRestore(golden);
    ++run;
  }
  std::printf("restores: %d of %zu run\n", run, cases.size());
  EXPECT_EQ(run + 1, static_cast<int>(cases.size()));
}

TEST(RestoreGoldenTest, VariableAttachedAfterReadGetsItsValueWhenAttached) {
  Program p("module_tree");
  const auto checkpoint = Checkpoint::Create(p.graph, {});
  Session session = *Session::Create(p.graph);
  auto status = (*checkpoint)->Read(session, Prefix("module_tree"));
  ASSERT_TRUE(status.ok()) << status.status();
  (*checkpoint)->root().Add("step", p.objects[2]);
  ASSERT_TRUE(status->RestoreAdded(session).ok());
  const Json& want = Expected()["restores"].back()["value"];
  EXPECT_EQ(
      DifferenceFrom(*session.Eval(p.variables["step/.ATTRIBUTES/VARIABLE_VALUE"].read), want), "");
  EXPECT_FALSE(status->AssertConsumed().ok());
  (*checkpoint)->root().Add("net", p.objects[1]);
  ASSERT_TRUE(status->RestoreAdded(session).ok());
  EXPECT_TRUE(status->AssertConsumed().ok());
}

}  // namespace
}  // namespace millrace::testing
