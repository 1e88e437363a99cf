// SPDX-License-Identifier: Apache-2.0
// Ops that print, where the log is JSON: what a graph says is one line of the log, and cannot be
// two.
#include <gtest/gtest.h>

#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "millrace/core.h"
#include "tests/logging/json_lines.h"

namespace millrace {
namespace {

constexpr char kHostile[] = "end\"}\n{\"severity\":\"FATAL\",\"message\":\"made up\"}";

void RunOp(const char* op, std::vector<std::pair<std::string, AttrValue>> attrs, int copies) {
  Graph graph;
  const Output text = Constant(graph.root(), Tensor::String(kHostile));
  const std::vector<Input> inputs(static_cast<std::size_t>(copies), text);
  const Operation printing =
      graph.root().AddOp(op, inputs, std::move(attrs), std::source_location::current());
  auto session = Session::Create(graph);
  if (!session.ok() || !session->RunTargets({printing}).ok()) _exit(1);
}

TEST(PrintingOps, PrintAValueInOneLine) {
  const Json line =
      OnlyLine(WrittenBy([] { RunOp("Print", {{"message", std::string("says\n")}}, 2); }));
  ASSERT_TRUE(line.is_object());
  EXPECT_EQ(line["severity"], "INFO");
  EXPECT_EQ(line["message"], std::string("says\n[") + kHostile + "]");
}

TEST(PrintingOps, PrintV2HasTheLevelThatItNames) {
  const std::pair<const char*, const char*> streams[] = {{"stderr", "INFO"},
                                                         {"log(info)", "INFO"},
                                                         {"log(warning)", "WARNING"},
                                                         {"log(error)", "ERROR"}};
  for (const auto& [stream, severity] : streams) {
    const Json line = OnlyLine(WrittenBy(
        [&name = stream] { RunOp("PrintV2", {{"output_stream", std::string(name)}}, 1); }));
    ASSERT_TRUE(line.is_object()) << stream;
    EXPECT_EQ(line["severity"], severity);
    EXPECT_EQ(line["message"], kHostile);
  }
}

}  // namespace
}  // namespace millrace
