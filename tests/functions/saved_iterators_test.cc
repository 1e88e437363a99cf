// SPDX-License-Identifier: Apache-2.0
// Iterators that TensorFlow's clients save with the rest of a checkpoint: SerializeIterator and
// DeserializeIterator, with SaveV2 and RestoreV2 between them.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/strings.h"
#include "millrace/core.h"
#include "proto/graph.pb.h"
#include "tests/functions/function_text.h"

namespace millrace {
namespace {

std::string Const(const std::string& name, const std::string& type, const std::string& values) {
  return GraphNode(name, "Const", {},
                   Attr("dtype", "type: " + type) +
                       Attr("value", StrCat("tensor { dtype: ", type, " ", values, " }")));
}
std::string Int(const std::string& name, int64_t value) {
  return Const(name, "DT_INT64", StrCat("tensor_shape {} int64_val: ", value));
}
std::string Strings(const std::string& name, const std::string& shape, const std::string& value) {
  return Const(name, "DT_STRING",
               StrCat("tensor_shape { ", shape, " } string_val: '", CEscape(value), "'"));
}

// "start" and "next" of an iterator over 0, ..., count - 1; "save" writes where it stands, and
// "restore" takes it there.
std::string SavedRange(int64_t count, const std::string& prefix) {
  const std::string ints =
      Attr("output_types", "list { type: DT_INT64 }") + Attr("output_shapes", "list { shape {} }");
  const std::string dtypes = Attr("dtypes", "list { type: DT_VARIANT }");
  return Int("zero", 0) + Int("one", 1) + Int("count", count) +
         GraphNode("numbers", "RangeDataset", {"zero", "count", "one"}, ints) +
         GraphNode("iterator", "IteratorV2", {},
                   Attr("shared_name", "s: ''") + Attr("container", "s: ''") + ints) +
         GraphNode("start", "MakeIterator", {"numbers", "iterator"}) +
         GraphNode("next", "IteratorGetNext", {"iterator"}, ints) + Strings("prefix", "", prefix) +
         Strings("names", "dim { size: 1 }", "it") + Strings("slices", "dim { size: 1 }", "") +
         GraphNode("state", "SerializeIterator", {"iterator"},
                   Attr("external_state_policy", "i: 2")) +
         GraphNode("save", "SaveV2", {"prefix", "names", "slices", "state"}, dtypes) +
         GraphNode("saved", "RestoreV2", {"prefix", "names", "slices"}, dtypes) +
         GraphNode("restore", "DeserializeIterator", {"iterator", "saved"});
}

class SavedIteratorsTest : public ::testing::Test {
 protected:
  std::string Prefix() const {
    return StrCat(::testing::TempDir(), "/",
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
  }
  void Open(const std::string& text) {
    session_.reset();
    graph_.emplace();
    pb::GraphDef def;
    ASSERT_TRUE(ParseGraph(text, &def)) << text;
    const Status imported = graph_->ImportGraphDef(def.SerializeAsString());
    ASSERT_TRUE(imported.ok()) << imported;
    auto session = Session::Create(*graph_);
    ASSERT_TRUE(session.ok()) << session.status();
    session_.emplace(*std::move(session));
  }
  Status Run(const std::string& node) {
    return session_->RunTargets({graph_->FindOperation(node)});
  }
  // The next number, -1 for an error.
  int64_t Next() {
    const auto got = session_->Run({}, {graph_->FindOperation("next").output(0)});
    return got.ok() ? (*got)[0].scalar<int64_t>() : -1;
  }

  std::optional<Graph> graph_;
  std::optional<Session> session_;
};

TEST_F(SavedIteratorsTest, GoOnWhereTheyStoodInAnotherSession) {
  Open(SavedRange(10, Prefix()));
  ASSERT_TRUE(Run("start").ok());
  EXPECT_EQ(Next(), 0);
  EXPECT_EQ(Next(), 1);
  const Status saved = Run("save");
  ASSERT_TRUE(saved.ok()) << saved;
  EXPECT_EQ(Next(), 2) << "saving changes nothing";

  Open(SavedRange(10, Prefix()));
  ASSERT_TRUE(Run("start").ok());
  Status restored = Run("restore");
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_EQ(Next(), 2);
  restored = Run("restore");
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_EQ(Next(), 2) << "also back again";
}

TEST_F(SavedIteratorsTest, HaveToBeInitializedBefore) {
  Open(SavedRange(10, Prefix()));
  const Status saved = Run("save");
  EXPECT_EQ(saved.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(saved.ToString().find("Save() failed because the iterator has not been initialized"),
            std::string::npos)
      << saved;
  ASSERT_TRUE(Run("start").ok());
  ASSERT_TRUE(Run("save").ok());
  Open(SavedRange(10, Prefix()));
  const Status restored = Run("restore");
  EXPECT_EQ(restored.code(), StatusCode::kFailedPrecondition) << restored;
}

TEST_F(SavedIteratorsTest, SayThatTheDataAreOthers) {
  Open(SavedRange(10, Prefix()));
  ASSERT_TRUE(Run("start").ok());
  for (int i = 0; i < 6; ++i) Next();
  ASSERT_TRUE(Run("save").ok());
  Open(SavedRange(3, Prefix()));
  ASSERT_TRUE(Run("start").ok());
  const Status restored = Run("restore");
  EXPECT_EQ(restored.code(), StatusCode::kDataLoss) << restored;
  EXPECT_NE(restored.ToString().find("Failed to restore dataset iterator from checkpoint"),
            std::string::npos)
      << restored;
}

TEST_F(SavedIteratorsTest, AreNotTakenFromOtherVariants) {
  Open(SavedRange(10, Prefix()) +
       Const("other", "DT_VARIANT",
             "tensor_shape { dim { size: 1 } } variant_val { type_name: 'int' metadata: "
             "'\\003\\000\\000\\000' }") +
       GraphNode("wrong", "DeserializeIterator", {"iterator", "other"}));
  ASSERT_TRUE(Run("start").ok());
  const Status restored = Run("wrong");
  EXPECT_EQ(restored.code(), StatusCode::kInternal) << restored;
  EXPECT_EQ(Next(), 0);
}

}  // namespace
}  // namespace millrace
