// SPDX-License-Identifier: Apache-2.0
// Directories that are no good SavedModels: each is refused with a status that says which file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/errors.h"
#include "io/filesystem.h"
#include "millrace/saved_model.h"
#include "proto/meta_graph.pb.h"

namespace millrace::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kGood[] = "tests/saved_models/testdata/v1_builder";

class HostileModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = StrCat(::testing::TempDir(), "/",
                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    for (const char* file : {"saved_model.pb", "assets/words.txt", "variables/variables.index",
                             "variables/variables.data-00000-of-00001"}) {
      const auto bytes = PosixFileSystem()->ReadFile(StrCat(kGood, "/", file));
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      Write(file, *bytes);
      if (file == std::string("saved_model.pb")) graph_file_ = *bytes;
    }
  }

  void Write(const std::string& file, std::string_view bytes) {
    const std::string path = JoinPath(directory_, file);
    ASSERT_TRUE(PosixFileSystem()->CreateDirectories(std::string(DirectoryName(path))).ok());
    ASSERT_TRUE(PosixFileSystem()->WriteFileAtomically(path, bytes).ok());
  }

  // The status of loading the good model after this change.
  Status LoadChanged(const std::function<void(pb::MetaGraphDef*)>& change) {
    pb::SavedModel model;
    EXPECT_TRUE(model.ParseFromString(graph_file_));
    change(model.mutable_meta_graphs(0));
    Write("saved_model.pb", model.SerializeAsString());
    return LoadSavedModel(directory_).status();
  }

  // The first constant of numbers.
  static pb::TensorProto* Constant(pb::MetaGraphDef* meta) {
    for (pb::NodeDef& node : *meta->mutable_graph_def()->mutable_node()) {
      if (node.op() != "Const") continue;
      pb::TensorProto* const value = (*node.mutable_attr())["value"].mutable_tensor();
      if (value->dtype() == pb::DT_FLOAT && value->tensor_shape().dim_size() > 0) return value;
    }
    return nullptr;
  }

  std::string directory_, graph_file_;
};

void ExpectNames(const Status& status, StatusCode code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("saved_model.pb"));
  EXPECT_THAT(std::string(Message(status)), HasSubstr(text));
}

TEST_F(HostileModelTest, AFileThatIsCutOffAnywhereIsRefused) {
  const std::size_t step = graph_file_.size() / 60 + 1;
  for (std::size_t size = 0; size < graph_file_.size(); size += step) {
    Write("saved_model.pb", graph_file_.substr(0, size));
    const Status status = LoadSavedModel(directory_).status();
    ASSERT_TRUE(errors::IsInvalidArgument(status)) << size << ": " << status;
    ASSERT_THAT(std::string(Message(status)), HasSubstr("saved_model.pb"));
  }
}

TEST_F(HostileModelTest, ChangedBytesEndInAnAnswer) {
  for (std::size_t at = 0; at < graph_file_.size(); at += graph_file_.size() / 100 + 1) {
    std::string bytes = graph_file_;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x55);
    Write("saved_model.pb", bytes);
    // A change may be harmless (in a comment, a version); a refusal names the file.
    const Status status = LoadSavedModel(directory_).status();
    if (status.ok()) continue;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("saved_model.pb"));
  }
}

TEST_F(HostileModelTest, SomethingElseIsNoSavedModel) {
  Write("saved_model.pb", "a text");
  ExpectNames(LoadSavedModel(directory_).status(), StatusCode::kInvalidArgument, "no SavedModel");
  Write("saved_model.pb", pb::SavedModel().SerializeAsString());
  EXPECT_TRUE(errors::IsInvalidArgument(LoadSavedModel(directory_).status()));
  pb::SavedModel empty;
  empty.set_saved_model_schema_version(1);
  Write("saved_model.pb", empty.SerializeAsString());
  ExpectNames(LoadSavedModel(directory_).status(), StatusCode::kInvalidArgument, "has no graphs");
}

TEST_F(HostileModelTest, ACycleIsRefused) {
  const Status status = LoadChanged([](pb::MetaGraphDef* meta) {
    for (const auto& [name, input] : {std::pair("loop_a", "loop_b"), {"loop_b", "loop_a"}}) {
      pb::NodeDef* const node = meta->mutable_graph_def()->add_node();
      node->set_name(name);
      node->set_op("Identity");
      node->add_input(input);
      (*node->mutable_attr())["T"].set_type(pb::DT_FLOAT);
    }
  });
  ExpectNames(status, StatusCode::kInvalidArgument, "cycle");
}

TEST_F(HostileModelTest, OpsThatThereAreNotAreAllNamed) {
  const auto change = [](pb::MetaGraphDef* meta) {
    for (const char* op : {"FoldTime", "Unbake"}) {
      pb::NodeDef* const node = meta->mutable_graph_def()->add_node();
      node->set_name(op);
      node->set_op(op);
    }
  };
  ExpectNames(LoadChanged(change), StatusCode::kNotFound, "FoldTime, Unbake");
  const auto graphs = ReadSavedModelInfo(directory_);
  ASSERT_TRUE(graphs.ok()) << graphs.status();
  EXPECT_THAT((*graphs)[0].missing_ops, ElementsAre("FoldTime", "Unbake"));
}

TEST_F(HostileModelTest, SignaturesOfTensorsThatThereAreNotAreNamed) {
  const auto with_input = [&](const std::function<void(pb::TensorInfo*)>& change) {
    return LoadChanged([&](pb::MetaGraphDef* meta) {
      change(&(*(*meta->mutable_signature_def())["serving_default"].mutable_inputs())["x"]);
    });
  };
  constexpr auto kCode = StatusCode::kInvalidArgument;
  ExpectNames(with_input([](pb::TensorInfo* x) { x->set_name("nowhere:0"); }), kCode,
              "signature 'serving_default': the graph has no tensor 'nowhere:0'");
  ExpectNames(with_input([](pb::TensorInfo* x) { x->set_name("x:7"); }), kCode, "'x:7'");
  ExpectNames(with_input([](pb::TensorInfo* x) { x->set_name("^x"); }), kCode,
              "no name of a tensor");
  ExpectNames(with_input([](pb::TensorInfo* x) { x->set_dtype(pb::DT_INT32); }), kCode,
              "'x' is of type int32");
  ExpectNames(with_input([](pb::TensorInfo* x) {
                x->mutable_tensor_shape()->mutable_dim(0)->set_size(-5);
              }),
              kCode, "of size -5");
}

TEST_F(HostileModelTest, AssetsStayInTheDirectory) {
  for (const char* name : {"../../../etc/passwd", "/etc/passwd", ""}) {
    const Status status = LoadChanged([&](pb::MetaGraphDef* meta) {
      pb::AssetFileDef* const asset = meta->add_asset_file_def();
      asset->set_filename(name);
      asset->mutable_tensor_info()->set_name("file:0");
    });
    ExpectNames(status, StatusCode::kInvalidArgument, "is no path below");
  }
}

TEST_F(HostileModelTest, AbsurdConstantsAreRefusedBeforeMemoryIsTaken) {
  const Status status = LoadChanged([](pb::MetaGraphDef* meta) {
    pb::TensorProto* const value = Constant(meta);
    ASSERT_NE(value, nullptr);
    value->mutable_tensor_shape()->mutable_dim(0)->set_size(int64_t{1} << 60);
  });
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(Message(status)), HasSubstr("saved_model.pb"));
}

TEST_F(HostileModelTest, MissingAndDamagedVariablesAreNamed) {
  ASSERT_TRUE(PosixFileSystem()->DeleteFile(directory_ + "/variables/variables.index").ok());
  const Status missing = LoadSavedModel(directory_).status();
  ExpectNames(missing, StatusCode::kNotFound, "variables/variables.index");
  Write("variables/variables.index", "damaged");
  const Status damaged = LoadSavedModel(directory_).status();
  ExpectNames(damaged, StatusCode::kDataLoss, "variables");
}

TEST_F(HostileModelTest, ChangedAndCutVariablesAreDataLossWithTheFileAndThePlace) {
  for (const char* file :
       {"variables/variables.index", "variables/variables.data-00000-of-00001"}) {
    const auto good = PosixFileSystem()->ReadFile(StrCat(kGood, "/", file));
    ASSERT_TRUE(good.ok()) << good.status();
    for (std::size_t at = 0; at < good->size(); at += good->size() / 12 + 1) {
      std::string changed = *good;
      changed[at] = static_cast<char>(changed[at] ^ 0x10);
      for (const std::string& bad : {changed, good->substr(0, at)}) {
        Write(file, bad);
        const Status status = LoadSavedModel(directory_).status();
        ExpectNames(status, StatusCode::kDataLoss, JoinPath(directory_, file));
        EXPECT_THAT(std::string(Message(status)), HasSubstr("byte")) << at;
      }
    }
    Write(file, *good);
  }
  EXPECT_TRUE(LoadSavedModel(directory_).ok());
}

}  // namespace
}  // namespace millrace::testing
