// SPDX-License-Identifier: Apache-2.0
// MapDefun as a program sees it: a function called for each row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "proto/graph.pb.h"
#include "tests/functions/function_text.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char kRow[] = "input_arg { name: 'x' type: DT_FLOAT } ";

std::string Function(const std::string& args, const std::string& type, const std::string& body,
                     const std::string& result) {
  return StrCat("library { function { signature { name: 'fn' ", args,
                " output_arg { name: 'y' type: ", type, " } }\n", body, " ret { key: 'y' value: '",
                result, "' } } }\n");
}
std::string Double() {
  return Function(kRow, "DT_FLOAT", BodyNode("sum", "AddV2", {"x", "x"}, FloatT()), "sum:z:0");
}
std::string Placeholder(const std::string& name) {
  return GraphNode(name, "Placeholder", {},
                   Attr("dtype", "type: DT_FLOAT") + Attr("shape", "shape { unknown_rank: true }"));
}
std::string Map(const std::vector<std::string>& inputs, int args, const std::string& shape,
                const std::string& type = "DT_FLOAT") {
  std::string given, captured;
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    StrAppend(i < args ? &given : &captured, " type: DT_FLOAT");
  }
  return GraphNode("map", "MapDefun", inputs,
                   Attr("Targuments", StrCat("list {", given, " }")) +
                       Attr("Tcaptured", StrCat("list {", captured, " }")) +
                       Attr("output_types", StrCat("list { type: ", type, " }")) +
                       Attr("output_shapes", StrCat("list { shape { ", shape, " } }")) +
                       Attr("max_intra_op_parallelism", "i: 1") + Func("f", "fn"));
}

class MapDefunTest : public ::testing::Test {
 protected:
  void Open(const std::string& text) {
    auto session = OpenText(text, &graph_);
    ASSERT_TRUE(session.ok()) << session.status();
    session_.emplace(*std::move(session));
  }
  StatusOr<Tensor> Run(const std::vector<Tensor>& fed, const RunOptions& options = {}) {
    std::vector<Feed> feeds;
    for (std::size_t i = 0; i < fed.size(); ++i) {
      feeds.push_back({graph_.FindOperation(StrCat("x", i)).output(0), fed[i]});
    }
    const std::vector<Output> fetches = {graph_.FindOperation("map").output(0)};
    StatusOr<std::vector<Tensor>> got = session_->Run(feeds, fetches, {}, options);
    if (!got.ok()) return got.status();
    return (*got)[0];
  }
  void ExpectError(const std::vector<Tensor>& fed, const std::string& words) {
    const Status status = Run(fed).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(status.ToString(), HasSubstr(words));
  }

  Graph graph_;
  std::optional<Session> session_;
};

Tensor Floats(const std::vector<float>& values, const Shape& shape) {
  return Tensor::FromValues<float>(values, shape);
}

TEST_F(MapDefunTest, CallsTheFunctionForEachRow) {
  Open(Double() + Placeholder("x0") + Map({"x0"}, 1, "dim { size: 2 }"));
  const auto got = Run({Floats({1, 2, 3, 4, 5, 6}, Shape({3, 2}))});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->shape(), Shape({3, 2}));
  EXPECT_THAT(got->flat<float>(), ElementsAre(2, 4, 6, 8, 10, 12));
  // No rows, no calls.
  const auto none = Run({Tensor(kFloat, Shape({0, 2}))});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->shape(), Shape({0, 2}));
}

TEST_F(MapDefunTest, ManyRowsKeepTheirPlaces) {
  Open(Double() + Placeholder("x0") + Map({"x0"}, 1, ""));
  std::vector<float> values(1000);
  for (int i = 0; i < 1000; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i);
  const auto got = Run({Floats(values, Shape({1000}))});
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->shape(), Shape({1000}));
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(got->data<float>()[i], static_cast<float>(2 * i));
}

TEST_F(MapDefunTest, CapturedInputsAreTheSameForAllRows) {
  Open(Function(StrCat(kRow, "input_arg { name: 'by' type: DT_FLOAT }"), "DT_FLOAT",
                BodyNode("mul", "Mul", {"x", "by"}, FloatT()), "mul:z:0") +
       Placeholder("x0") + Placeholder("x1") + Map({"x0", "x1"}, 1, ""));
  const auto got = Run({Floats({1, 2, 3}, Shape({3})), Floats({10}, Shape({}))});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(got->flat<float>(), ElementsAre(10, 20, 30));
}

TEST_F(MapDefunTest, TheFirstRowsTellAShapeThatIsNotGiven) {
  Open(Double() + Placeholder("x0") + Map({"x0"}, 1, "unknown_rank: true"));
  const auto scalars = Run({Floats({0, 1}, Shape({2}))});
  ASSERT_TRUE(scalars.ok()) << scalars.status();
  EXPECT_EQ(scalars->shape(), Shape({2}));
  const auto vectors = Run({Floats({0, 1}, Shape({2, 1}))});
  ASSERT_TRUE(vectors.ok()) << vectors.status();
  EXPECT_EQ(vectors->shape(), Shape({2, 1}));
  const Status none = Run({Tensor(kFloat, Shape({0, 2}))}).status();
  EXPECT_EQ(none.code(), StatusCode::kInternal);
  EXPECT_THAT(none.ToString(), HasSubstr("Missing 0-th output from"));
}

TEST_F(MapDefunTest, RefusesWhatDoesNotFit) {
  Open(Function(StrCat(kRow, "input_arg { name: 'z' type: DT_FLOAT }"), "DT_FLOAT",
                BodyNode("sum", "AddV2", {"x", "z"}, FloatT()), "sum:z:0") +
       Placeholder("x0") + Placeholder("x1") + Map({"x0", "x1"}, 2, ""));
  ExpectError({Floats({1, 2}, Shape({2})), Floats({1, 2, 3}, Shape({3}))},
              "All inputs must have the same dimension 0. Input 1 has leading dimension 3, while "
              "all previous inputs have leading dimension 2");
  ExpectError({Floats({1}, Shape({})), Floats({1}, Shape({1}))},
              "All inputs must have rank at least 1. Input 0 has a rank of 0.");
  ExpectError({Floats({1}, Shape({1, 1})), Floats({1}, Shape({1, 1}))},
              "Mismatch in function retval shape, [1], and expected output shape, [].");
}

TEST_F(MapDefunTest, RefusesResultsOfAnotherType) {
  Open(Double() + Placeholder("x0") + Map({"x0"}, 1, "", "DT_INT32"));
  ExpectError({Floats({1}, Shape({1}))},
              "Mismatch in function return type and expected output type for output: 0");
}

TEST_F(MapDefunTest, AnErrorOfARowIsTheErrorOfTheStep) {
  const std::string numerics = BodyNode("check", "CheckNumerics", {"x"},
                                        FloatT() + Attr("message", "s: 'row is no number'"));
  Open(Function(kRow, "DT_FLOAT", numerics, "check:output:0") + Placeholder("x0") +
       Map({"x0"}, 1, ""));
  ExpectError({Floats({1, 2, std::numeric_limits<float>::quiet_NaN(), 4}, Shape({4}))},
              "row is no number");
  const auto got = Run({Floats({1, 2}, Shape({2}))});
  EXPECT_TRUE(got.ok()) << got.status();
}

// A queue that nobody fills.
TEST_F(MapDefunTest, RowsThatWaitEndWithTheStep) {
  const std::string types = Attr("component_types", "list { type: DT_FLOAT }");
  const std::string body =
      BodyNode("queue", "FIFOQueueV2", {},
               types + Attr("shapes", "list {}") + Attr("capacity", "i: 10") +
                   Attr("container", "s: ''") + Attr("shared_name", "s: 'empty'")) +
      BodyNode("take", "QueueDequeueV2", {"queue:handle:0"}, types + Attr("timeout_ms", "i: -1")) +
      BodyNode("sum", "AddV2", {"x", "take:components:0"}, FloatT());
  Open(Function(kRow, "DT_FLOAT", body, "sum:z:0") + Placeholder("x0") + Map({"x0"}, 1, ""));
  const RunOptions brief{.timeout = std::chrono::milliseconds(50)};
  EXPECT_EQ(Run({Floats({1, 2, 3}, Shape({3}))}, brief).status().code(),
            StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace millrace
