// SPDX-License-Identifier: Apache-2.0
// Variables that begin with the rows of a checkpoint whose vocabulary was another one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/errors.h"
#include "millrace/partitioners.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<float>;

Tensor Matrix(int64_t rows, int64_t columns, const Floats& values) {
  return Tensor::FromValues<float>(std::span<const float>(values), Shape({rows, columns}));
}

// The old vocabulary is a, b, c, d; row i of the old table is {10 i + 1, 10 i + 2}, and behind it
// there was a bucket.
class Vocabularies : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = EmptyFolder("vocabularies");
    WriteText(folder_ + "/old", "a\nb\nc\nd\n");
    prefix_ = folder_ + "/model.ckpt";
    const Status written = WriteTensors(
        prefix_, {{"table", Matrix(5, 2, {1, 2, 11, 12, 21, 22, 31, 32, 41, 42})},
                  {"kernel", Matrix(2, 4, {1, 2, 3, 4, 5, 6, 7, 8})},
                  {"bias", Tensor::FromValues<float>(Floats{1, 2, 3, 4}, Shape({4}))}});
    ASSERT_TRUE(written.ok()) << written;
  }
  // The words are written, one a line.
  VocabInfo Info(const std::string& words, int64_t size, int64_t buckets = 0) {
    WriteText(folder_ + "/new", words);
    VocabInfo info;
    info.new_vocab = folder_ + "/new";
    info.new_vocab_size = size;
    info.num_oov_buckets = buckets;
    info.old_vocab = folder_ + "/old";
    return info;
  }
  // What a variable of the shape begins with.
  Floats Begun(const std::string& name, const Shape& shape, const VocabInfo& info) {
    Graph graph;
    const Variable variable = MakeVariable(graph.root(), name, Zeros(graph.root(), shape));
    const Status status = WarmStart(graph, {.checkpoint = prefix_, .vocabularies = {{name, info}}});
    EXPECT_TRUE(status.ok()) << status;
    return Values(graph, variable);
  }
  static Floats Values(Graph& graph, const Variable& variable) {
    Session session = *Session::Create(graph);
    const Status status = session.RunTargets({InitializeVariables(graph.root())});
    EXPECT_TRUE(status.ok()) << status;
    return status.ok() ? FloatsOf(session, variable) : Floats();
  }
  Status StatusOf(const std::string& name, const Shape& shape, const VocabInfo& info) {
    Graph graph;
    MakeVariable(graph.root(), name, Zeros(graph.root(), shape));
    return WarmStart(graph, {.checkpoint = prefix_, .vocabularies = {{name, info}}});
  }
  std::string folder_, prefix_;
};

TEST_F(Vocabularies, InAnotherOrderMoveTheRows) {
  EXPECT_EQ(Begun("table", Shape({4, 2}), Info("d\nc\nb\na\n", 4)),
            (Floats{31, 32, 21, 22, 11, 12, 1, 2}));
}

TEST_F(Vocabularies, ThatAreSmallerLeaveRowsOut) {
  EXPECT_EQ(Begun("table", Shape({2, 2}), Info("c\na", 2)), (Floats{21, 22, 1, 2}));
  // Of the new one only the first words count.
  EXPECT_EQ(Begun("table", Shape({1, 2}), Info("c\na\nb\n", 1)), (Floats{21, 22}));
}

TEST_F(Vocabularies, ThatAreLargerBeginNewWordsWithZeros) {
  EXPECT_EQ(Begun("table", Shape({6, 2}), Info("x\na\nb\ny\nc\nd\n", 6)),
            (Floats{0, 0, 1, 2, 11, 12, 0, 0, 21, 22, 31, 32}));
}

// A bucket's words are others than they were: it takes nothing of the old one.
TEST_F(Vocabularies, MayHaveBuckets) {
  EXPECT_EQ(Begun("table", Shape({4, 2}), Info("b\nx\n", 2, /*buckets=*/2)),
            (Floats{11, 12, 0, 0, 0, 0, 0, 0}));
}

TEST_F(Vocabularies, BeginNewWordsAndBucketsAsTheyAreTold) {
  VocabInfo info = Info("b\nx\n", 2, /*buckets=*/1);
  info.backup_initializer = [](const Scope& scope, const Shape& shape) {
    return ops::Fill(scope, Constant(scope, Tensor::FromValues<int64_t>(shape.dims(), Shape({2}))),
                     7.0f);
  };
  EXPECT_EQ(Begun("table", Shape({3, 2}), info), (Floats{11, 12, 7, 7, 7, 7}));
}

TEST_F(Vocabularies, MayHaveBeenUsedInPart) {
  VocabInfo info = Info("d\nb\na\n", 3);
  info.old_vocab_size = 2;
  EXPECT_EQ(Begun("table", Shape({3, 2}), info), (Floats{0, 0, 11, 12, 1, 2}));
}

TEST_F(Vocabularies, OfNewWordsOnlyTakeNothing) {
  EXPECT_EQ(Begun("table", Shape({1, 2}), Info("x\n", 1)), (Floats{0, 0}));
}

TEST_F(Vocabularies, MayBeThoseOfColumns) {
  VocabInfo info = Info("d\nx\na\n", 3, /*buckets=*/1);
  info.axis = 1;
  EXPECT_EQ(Begun("kernel", Shape({2, 4}), info), (Floats{4, 0, 1, 0, 8, 0, 5, 0}));
}

TEST_F(Vocabularies, MayBeThoseOfVectors) {
  EXPECT_EQ(Begun("bias", Shape({3}), Info("d\r\nx\r\nb\r\n", 3)), (Floats{4, 0, 2}));
}

TEST_F(Vocabularies, OfATableInPartsMoveRowsBetweenThem) {
  Graph graph;
  const Scope root = graph.root();
  const ShardedVariable table =
      MakeShardedVariable(root, "table", Zeros(root, {5, 2}), FixedShards(2));
  const Status status = WarmStart(
      graph, {.checkpoint = prefix_, .vocabularies = {{"table", Info("d\nx\nc\na\n", 4, 1)}}});
  ASSERT_TRUE(status.ok()) << status;
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({InitializeVariables(root)}).ok());
  Floats got;
  for (const VariablePart& part : table.parts) {
    for (const float v : FloatsOf(session, part.variable)) got.push_back(v);
  }
  EXPECT_EQ(got, (Floats{31, 32, 0, 0, 21, 22, 1, 2, 0, 0}));
}

TEST_F(Vocabularies, AreOfSomeVariablesBesideOthers) {
  for (const std::vector<std::string>& patterns :
       {std::vector<std::string>{".*"}, std::vector<std::string>{}}) {
    Graph graph;
    const Scope root = graph.root();
    const Variable words = MakeVariable(root, "words", Zeros(root, {2, 2}));
    const Variable bias = FloatVariable(root, "bias", {0, 0, 0, 0});
    const Status status = WarmStart(graph, {.checkpoint = prefix_,
                                            .variables = patterns,
                                            .previous_names = {{"words", "table"}},
                                            .vocabularies = {{"words", Info("b\na\n", 2)}}});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(Values(graph, words), (Floats{11, 12, 1, 2}));
    EXPECT_EQ(Values(graph, bias), patterns.empty() ? (Floats{0, 0, 0, 0}) : (Floats{1, 2, 3, 4}));
  }
}

TEST_F(Vocabularies, ThatCannotBeAreRefused) {
  const auto refused = [&](const std::string& name, const Shape& shape, const VocabInfo& info,
                           const std::string& text) {
    const Status status = StatusOf(name, shape, info);
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(text));
  };
  refused("table", Shape({3, 2}), Info("a\nb\n", 2), "is to have 2 rows along axis 0");
  refused("table", Shape({3, 2}), Info("a\nb\n", 3), "/new is to have 3 words or more");
  refused("table", Shape({2, 3}), Info("a\nb\n", 2), "doesn't match with shape of tensor table");
  refused("table", Shape({2, 2}), Info("a\nb\n", 0), "new_vocab_size");
  refused("table", Shape({2, 2}), Info("a\nb\n", 2, -1), "num_oov_buckets");
  VocabInfo info = Info("a\nb\n", 2);
  info.old_vocab_size = 9;
  refused("table", Shape({2, 2}), info, "/old is to have 9 words or more");
  info.old_vocab_size = -1;
  info.axis = 2;
  refused("table", Shape({2, 2}), info, "The only supported values for the axis argument");
  info.axis = 0;
  WriteText(folder_ + "/old", "a\nb\na\n");
  refused("table", Shape({2, 2}), info, "has 'a' in line 1 and in line 3");
  WriteText(folder_ + "/old", "0\n1\n2\n3\n4\na\nb\n");
  refused("table", Shape({2, 2}), info, "row 6 is wanted");
  info.old_vocab = folder_ + "/none";
  EXPECT_TRUE(errors::IsNotFound(StatusOf("table", Shape({2, 2}), info)));
}

TEST_F(Vocabularies, OfVariablesThatAreNotStartedAreRefused) {
  Graph graph;
  FloatVariable(graph.root(), "bias", {0, 0, 0, 0});
  const Status status =
      WarmStart(graph, {.checkpoint = prefix_, .vocabularies = {{"tabel", Info("a\nb\n", 2)}}});
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(Message(status)),
              HasSubstr("in vocabularies that were not used: tabel. Perhaps you misspelled them? "
                        "Here is the list of viable variable names: bias"));
}

}  // namespace
}  // namespace millrace::testing
