// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/admission.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/random.h"
#include "base/strings.h"
#include "distributed_runtime/stub/remote_master.h"
#include "distributed_runtime/task_server.h"
#include "distributed_runtime/test_engine.h"
#include "graph/dataflow_graph.h"
#include "graph/graph_def_io.h"
#include "session/client_session.h"
#include "tests/cluster/free_ports.h"
#include "transport/grpc/client_pool.h"
#include "transport/grpc/credentials.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

TEST(AdmissionTest, KnowsEveryOpThatIsGivenTheNameOfAFile) {
  const std::set<std::string> names = {"filename", "filenames", "prefix", "checkpoint_prefixes"};
  // Names alone are made of names; and caches that have one are refused by their kernel.
  const std::set<std::string> harmless = {"ShardedFilename", "ShardedFilespec", "CacheDataset",
                                          "CacheDatasetV2"};
  int found = 0;
  for (const OpInfo* op : TheTestEngine().ops.SortedOps()) {
    for (const auto& input : op->def.input_arg()) {
      if (!names.contains(input.name()) || harmless.contains(op->def.name())) continue;
      EXPECT_NE(CapabilityOf(op->def.name()), "") << op->def.name();
      ++found;
    }
  }
  EXPECT_GE(found, 8);
  for (const char* op : {"TFRecordReaderV2", "WholeFileReaderV2", "TextLineReaderV2",
                         "FixedLengthRecordReaderV2", "MatchingFiles"}) {
    EXPECT_EQ(CapabilityOf(op), "file_read") << op;
  }
  EXPECT_EQ(CapabilityOf("SaveV2"), "file_write");
  for (const char* op : {"Add", "", "zzz", "Abs", "ReadFile2", "ReadVariableOp"}) {
    EXPECT_EQ(CapabilityOf(op), "") << op;
  }
}

TEST(AdmissionTest, ReadsWordsAndRefusesOthers) {
  EXPECT_TRUE(Admission::Parse({"all"})->allows_all());
  EXPECT_TRUE(Admission::Parse({"file_read", "file_write", "environment", "network", "custom_code"})
                  ->allows_all());
  EXPECT_FALSE(Admission::Parse({"none"})->allows_all());
  EXPECT_FALSE(Admission::Parse({})->allows_all());
  EXPECT_FALSE(Admission::AllButFileWrite().allows_all());
  for (const char* word : {"", "files", "All", "file_read "}) {
    const Status status = Admission::Parse({"all", word}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << word;
    EXPECT_NE(Message(status).find("custom_code"), std::string_view::npos) << status;
  }
}

// The node as its op has it at the least: one of each list, and inputs "in_0", "in_1", ...
pb::NodeDef LeastNode(const pb::OpDef& op, std::vector<pb::DataType>* inputs) {
  pb::NodeDef node;
  node.set_name("asked");
  node.set_op(op.name());
  auto& attrs = *node.mutable_attr();
  for (const pb::OpDef::AttrDef& attr : op.attr()) {
    if (attr.has_default_value()) continue;
    const bool is_list = attr.type().starts_with("list(");
    const std::string type = is_list ? attr.type().substr(5, attr.type().size() - 6) : attr.type();
    pb::AttrValue& value = attrs[attr.name()];
    auto& list = *value.mutable_list();
    const pb::DataType of_type = attr.allowed_values().list().type_size() > 0
                                     ? attr.allowed_values().list().type(0)
                                     : pb::DT_FLOAT;
    if (type == "type") is_list ? list.add_type(of_type) : value.set_type(of_type);
    if (type == "int") is_list ? list.add_i(1) : value.set_i(std::max<int64_t>(1, attr.minimum()));
    if (type == "shape") {
      (is_list ? list.add_shape() : value.mutable_shape())->set_unknown_rank(true);
    }
    if (type == "string") is_list ? list.add_s("x") : value.set_s("x");
    if (type == "bool") is_list ? list.add_b(true) : value.set_b(true);
    if (type == "func") (is_list ? list.add_func() : value.mutable_func())->set_name("Empty");
  }
  for (const pb::OpDef::ArgDef& input : op.input_arg()) {
    pb::DataType type = input.type();
    if (!input.type_attr().empty()) type = attrs[input.type_attr()].type();
    if (!input.type_list_attr().empty()) type = attrs[input.type_list_attr()].list().type(0);
    if (input.is_ref()) type = static_cast<pb::DataType>(type + 100);
    node.add_input(StrCat("in_", inputs->size()));
    inputs->push_back(type);
  }
  return node;
}

// A graph of that node and of what it reads; its functions are those of `library`.
pb::GraphDef GraphOf(const pb::NodeDef& node, const std::vector<pb::DataType>& inputs,
                     const pb::FunctionDefLibrary& library = {}) {
  pb::GraphDef graph;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    pb::NodeDef& input = *graph.add_node();
    input.set_name(StrCat("in_", i));
    const bool is_ref = inputs[i] > 100;
    input.set_op(is_ref ? "VariableV2" : "Placeholder");
    auto& attrs = *input.mutable_attr();
    attrs["dtype"].set_type(is_ref ? static_cast<pb::DataType>(inputs[i] - 100) : inputs[i]);
    attrs["shape"].mutable_shape()->set_unknown_rank(!is_ref);
  }
  *graph.add_node() = node;
  *graph.mutable_library() = library;
  return graph;
}

// Readers, savers, tables and data sets alike, in a graph, in a function, and in one that is only
// named by another: each is refused where its word is not given, whatever else is.
TEST(AdmissionTest, EveryOpIsRefusedWhereverItStands) {
  const std::vector<std::string> words = {"file_read", "file_write", "environment", "network",
                                          "custom_code"};
  int found = 0;
  for (const OpInfo* op : TheTestEngine().ops.SortedOps()) {
    const std::string needed(CapabilityOf(op->def.name()));
    if (needed.empty()) continue;
    ++found;
    SCOPED_TRACE(op->def.name());
    std::vector<pb::DataType> inputs;
    const pb::NodeDef node = LeastNode(op->def, &inputs);
    pb::FunctionDefLibrary library;
    library.add_function()->mutable_signature()->set_name("Empty");
    const pb::GraphDef plain = GraphOf(node, inputs, library);
    pb::FunctionDef& inner = *library.add_function();
    inner.mutable_signature()->set_name("Inner");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      pb::OpDef::ArgDef& input = *inner.mutable_signature()->add_input_arg();
      input.set_name(StrCat("in_", i));
      input.set_type(inputs[i]);
    }
    *inner.add_node_def() = node;
    pb::FunctionDef& outer = *library.add_function();
    *outer.mutable_signature() = inner.signature();
    outer.mutable_signature()->set_name("Outer");
    pb::NodeDef call = node;
    call.set_name("call");
    call.set_op("Inner");
    call.clear_attr();
    *outer.add_node_def() = call;
    call.set_op("Outer");

    std::vector<std::string> others = words;
    std::erase(others, needed);
    for (const pb::GraphDef& def : {plain, GraphOf(call, inputs, library)}) {
      DataflowGraph graph(&TheTestEngine().ops);
      const Status imported = ImportGraphDef({}, def, &graph);
      ASSERT_TRUE(imported.ok()) << imported;
      const Status refused = Admission::Parse(others)->Check(graph);
      EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << refused;
      for (const std::string& part :
           {op->def.name(), std::string("'asked'"), "--allow=" + needed}) {
        EXPECT_NE(Message(refused).find(part), std::string_view::npos) << part << ": " << refused;
      }
      const Status allowed = Admission::Parse({needed})->Check(graph);
      EXPECT_TRUE(allowed.ok()) << allowed;
    }
  }
  EXPECT_GE(found, 20);
}

class AdmissionServerTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> allow) { StartAt("127.0.0.1", {}, std::move(allow)); }

  void StartAt(const std::string& host, const Credentials& credentials,
               std::vector<std::string> allow) {
    StatusOr<std::shared_ptr<const LoadedCredentials>> loaded =
        LoadedCredentials::Load(credentials);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    credentials_ = *std::move(loaded);
    TaskServerOptions options;
    options.server.cluster = *ClusterSpec::Parse(StrCat("worker|", host, ":0"));
    options.server.credentials = credentials;
    options.server.job_name = "worker";
    options.server.inter_op_threads = 2;
    options.server.intra_op_threads = 1;
    options.server.allow = std::move(allow);
    options.ops = &TheTestEngine().ops;
    options.kernels = &TheTestEngine().kernels;
    StatusOr<std::unique_ptr<TaskServer>> server = TaskServer::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->Start().ok());
  }

  // Fetches `fetch`, or runs `target`, from within the process and over the wire: both say the
  // same.
  Status Run(const pb::GraphDef& graph, const std::string& fetch, const std::string& target = "") {
    ClientSession::RunRequest request;
    if (!fetch.empty()) request.fetches = {fetch};
    if (!target.empty()) request.targets = {target};
    Status first;
    for (const bool remote : {false, true}) {
      std::shared_ptr<MasterInterface> master =
          remote ? NewGrpcRemoteMaster(server_->address(), ClientPool(), credentials_)
                 : *ConnectToMaster(server_->target());
      auto session = ClientSession::Create(std::move(master), graph, {});
      Status status = session.status();
      if (session.ok()) status = (*session)->Run(request).status();
      if (!remote) first = status;
      EXPECT_EQ(status.code(), first.code()) << first << " and " << status;
    }
    return first;
  }

  static void AddText(TestGraph* graph, const std::string& name, const std::string& text) {
    pb::NodeDef* const node = graph->Add(name, "Const");
    (*node->mutable_attr())["dtype"].set_type(pb::DT_STRING);
    auto& value = *(*node->mutable_attr())["value"].mutable_tensor();
    value.set_dtype(pb::DT_STRING);
    value.mutable_tensor_shape();
    value.add_string_val(text);
  }

  const std::string file_ = StrCat(::testing::TempDir(), "/admission_", Hex16(RandomId()));
  std::shared_ptr<const LoadedCredentials> credentials_;
  std::unique_ptr<TaskServer> server_;
};

TEST_F(AdmissionServerTest, RefusesAnOpByNameAndSaysHowToAllowIt) {
  std::ofstream(file_) << "content";
  TestGraph graph;
  AddText(&graph, "path", file_);
  graph.Add("secret", "ReadFile", {"path"});
  graph.Const("one", 1);
  for (const std::vector<std::string>& allow :
       {std::vector<std::string>{"none"}, {"file_write", "network"}}) {
    Start(allow);
    const Status refused = Run(graph.def(), "secret:0");
    EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << refused;
    for (const char* part : {"'secret'", "ReadFile", "file_read", "--allow=file_read",
                             "/job:worker/replica:0/task:0"}) {
      EXPECT_NE(Message(refused).find(part), std::string_view::npos) << part << ": " << refused;
    }
    // The rest of the graph is not at fault.
    const Status rest = Run(graph.def(), "one:0");
    EXPECT_TRUE(rest.ok()) << rest;
  }
  for (const std::vector<std::string>& allow :
       {std::vector<std::string>{}, {"all"}, {"file_read"}}) {
    Start(allow);
    const Status allowed = Run(graph.def(), "secret:0");
    EXPECT_TRUE(allowed.ok()) << allowed;
  }
}

TEST_F(AdmissionServerTest, ATaskThatOthersReachLetsNoGraphWriteFilesUnlessItIsToldTo) {
  std::ofstream(file_) << "content";
  const std::string token = file_ + ".token", made = file_ + ".made";
  std::ofstream(token) << "correct-horse-battery-staple";
  fs::permissions(token, fs::perms::owner_read | fs::perms::owner_write);
  TestGraph graph;
  AddText(&graph, "path", file_);
  AddText(&graph, "made", made);
  AddText(&graph, "text", "x");
  graph.Add("read", "ReadFile", {"path"});
  TestGraph writes = graph;
  writes.Add("op", "WriteFile", {"made", "text"});

  StartAt("0.0.0.0", {.token_file = token}, {});
  const Status read = Run(graph.def(), "read:0");
  EXPECT_TRUE(read.ok()) << read;
  const Status refused = Run(writes.def(), "", "op");
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << refused;
  for (const char* part :
       {"'op'", "--allow=file_write", "--file_root",
        // What is allowed now, and would not be with the one word alone.
        "--allow=file_write,file_read,environment,network,custom_code (which keeps"}) {
    EXPECT_NE(Message(refused).find(part), std::string_view::npos) << part << ": " << refused;
  }
  EXPECT_FALSE(fs::exists(made));
  // On loopback, and where it was allowed.
  Start({});
  const Status near = Run(writes.def(), "", "op");
  EXPECT_TRUE(near.ok()) << near;
  EXPECT_TRUE(fs::remove(made));
  StartAt("0.0.0.0", {.token_file = token}, {"file_write"});
  const Status allowed = Run(writes.def(), "", "op");
  EXPECT_TRUE(allowed.ok()) << allowed;
  EXPECT_TRUE(fs::exists(made));
}

TEST_F(AdmissionServerTest, LooksIntoFunctions) {
  TestGraph text;
  AddText(&text, "path", file_);
  text.Add("call", "ReadIt", {"path"});
  pb::GraphDef graph = text.def();
  pb::FunctionDef* const function = graph.mutable_library()->add_function();
  function->mutable_signature()->set_name("ReadIt");
  auto* const input = function->mutable_signature()->add_input_arg();
  input->set_name("name");
  input->set_type(pb::DT_STRING);
  auto* const output = function->mutable_signature()->add_output_arg();
  output->set_name("content");
  output->set_type(pb::DT_STRING);
  pb::NodeDef* const body = function->add_node_def();
  body->set_name("hidden");
  body->set_op("ReadFile");
  body->add_input("name");
  (*function->mutable_ret())["content"] = "hidden:contents:0";
  Start({"none"});
  const Status refused = Run(graph, "call:0");
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << refused;
  EXPECT_NE(Message(refused).find("hidden"), std::string_view::npos) << refused;
  EXPECT_FALSE(fs::exists(file_));
}

TEST_F(AdmissionServerTest, LooksIntoGraphsThatAreData) {
  std::ofstream(file_) << "content";
  TestGraph inner;
  AddText(&inner, "path", file_);
  AddText(&inner, "plain", "");
  pb::NodeDef* const size = inner.Add("size", "Const");
  (*size->mutable_attr())["dtype"].set_type(pb::DT_INT64);
  (*size->mutable_attr())["value"].mutable_tensor()->set_dtype(pb::DT_INT64);
  (*size->mutable_attr())["value"].mutable_tensor()->mutable_tensor_shape();
  inner.Add("hidden", "TextLineDataset", {"path", "plain", "size"});
  pb::NodeDef* const result = inner.Add("dataset", "_Retval", {"hidden"});
  (*result->mutable_attr())["T"].set_type(pb::DT_VARIANT);
  (*result->mutable_attr())["index"].set_i(0);
  pb::GraphDef data = inner.def();
  data.mutable_versions()->set_producer(2474);

  TestGraph graph;
  AddText(&graph, "data", data.SerializeAsString());
  graph.Add("made", "DatasetFromGraph", {"data"});
  graph.Add("number", "DatasetCardinality", {"made"});
  Start({"none"});
  const Status refused = Run(graph.def(), "number:0");
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << refused;
  EXPECT_NE(Message(refused).find("hidden"), std::string_view::npos) << refused;
  Start({"file_read"});
  const Status allowed = Run(graph.def(), "number:0");
  EXPECT_TRUE(allowed.ok()) << allowed;
}

TEST_F(AdmissionServerTest, RefusesWordsThatItDoesNotKnow) {
  TaskServerOptions options;
  options.server.cluster = *ClusterSpec::Parse("worker|127.0.0.1:0");
  options.server.job_name = "worker";
  options.server.allow = {"files"};
  options.ops = &TheTestEngine().ops;
  options.kernels = &TheTestEngine().kernels;
  EXPECT_EQ(TaskServer::Create(options).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
