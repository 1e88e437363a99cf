// SPDX-License-Identifier: Apache-2.0
// millrace.h promises everything: no public header is missing.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "millrace/millrace.h"

namespace millrace {
namespace {

constexpr char kFolder[] = "include/millrace/";

// The headers that a public header includes, directly or not.
void Follow(const std::string& header, std::set<std::string>* seen) {
  if (!seen->insert(header).second) return;
  std::ifstream file(kFolder + header);
  constexpr std::string_view kInclude = "#include \"millrace/";
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kInclude)) continue;
    Follow(line.substr(kInclude.size(), line.rfind('"') - kInclude.size()), seen);
  }
}

TEST(UmbrellaHeaderTest, IncludesEveryPublicHeader) {
  std::set<std::string> included;
  Follow("millrace.h", &included);
  EXPECT_TRUE(included.contains("ops.h")) << "which is generated";
  int headers = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".h")) continue;
    ++headers;
    EXPECT_TRUE(included.contains(name)) << name << ": add it to millrace/millrace.h";
  }
  EXPECT_GT(headers, 15);
}

// And one function of each library behind them is there to be linked.
TEST(UmbrellaHeaderTest, LinksWhatItDeclares) {
  EXPECT_FALSE(StepPeakBytes("\xff").ok());
  EXPECT_TRUE(SetGpuOptions({.count = 0}).ok());
  Graph graph;
  const Output pred = Placeholder(graph.root(), kBool, PartialShape({}));
  const auto one = [](const Scope& s) { return std::vector{Constant(s, Tensor::Scalar(1.0f))}; };
  EXPECT_EQ(Cond(graph.root(), pred, one, one).size(), 1u);
}

}  // namespace
}  // namespace millrace
