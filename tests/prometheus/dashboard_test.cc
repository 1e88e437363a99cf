// SPDX-License-Identifier: Apache-2.0
// The dashboard in deploy/grafana asks for metrics that a server has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "base/strings.h"
#include "tests/cluster/free_ports.h"
#include "tests/cluster/process.h"

namespace millrace::testing {
namespace {

using Json = nlohmann::json;

// The names of all samples that the families of /metrics may have, those included that have no
// sample as long as there is no queue and the like.
std::set<std::string> NamesOf(const std::string& metrics) {
  std::set<std::string> names;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, what, name, type;
    words >> hash >> what >> name >> type;
    if (hash != "#" || what != "TYPE") continue;
    if (type == "counter") names.insert(name + "_total");
    if (type == "gauge") names.insert(name);
    if (type == "info") names.insert(name + "_info");
    if (type != "histogram") continue;
    for (const char* suffix : {"_bucket", "_count", "_sum"}) names.insert(name + suffix);
  }
  return names;
}

std::set<std::string> NamesIn(const std::string& expression) {
  static const std::regex kName("\\b(millrace|process)_[a-z_]+\\b");
  return {std::sregex_token_iterator(expression.begin(), expression.end(), kName),
          std::sregex_token_iterator()};
}

TEST(DashboardTest, EveryMetricOfItExists) {
  const std::vector<int> ports = FreePorts(2);
  const std::string address = StrCat("127.0.0.1:", ports[0]);
  Process server("tools/millrace",
                 {"server", StrCat("--cluster_spec=worker|", address, ";127.0.0.1:", ports[1]),
                  "--job_name=worker", "--task_index=0"});
  ASSERT_TRUE(server.WaitForOutput("listening on", std::chrono::seconds(60))) << server.output();
  Process page("tools/millrace", {"page", "grpc://" + address, "/metrics"});
  ASSERT_EQ(page.WaitForEnd(std::chrono::seconds(60)), 0) << page.output();
  const std::set<std::string> known = NamesOf(page.output());
  ASSERT_GT(known.size(), 20u) << page.output();

  std::ifstream in("deploy/grafana/millrace.json");
  const Json dashboard = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(dashboard.is_object());
  std::set<std::string> asked;
  std::set<int> ids;
  for (const Json& panel : dashboard["panels"]) {
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second) << panel["title"];
    ASSERT_FALSE(panel["targets"].empty()) << panel["title"];
    for (const Json& target : panel["targets"]) {
      const std::set<std::string> names = NamesIn(target["expr"]);
      EXPECT_FALSE(names.empty()) << panel["title"];
      asked.insert(names.begin(), names.end());
    }
  }
  for (const Json& variable : dashboard["templating"]["list"]) {
    if (!variable["query"].is_object()) continue;
    const std::set<std::string> names = NamesIn(variable["query"]["query"]);
    asked.insert(names.begin(), names.end());
  }
  EXPECT_GT(asked.size(), 10u);
  for (const std::string& name : asked) EXPECT_TRUE(known.contains(name)) << name;
  EXPECT_FALSE(known.contains("millrace_no_such_metric"));
}

}  // namespace
}  // namespace millrace::testing
