// SPDX-License-Identifier: Apache-2.0
// `millrace diff`: two plans compared by what they mean.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "planner/diff.h"
#include "tools/millrace/graph_commands.h"
#include "tools/millrace/offline.h"

namespace millrace {
namespace {

struct Flags : ClusterFlags {
  std::string first, second;
  bool as_json = false;
};

int Run(const Flags& flags) {
  int code = kDone;
  const StatusOr<PlacedGraph> first = LoadPlaced(flags.first, flags, /*chains=*/false, &code);
  if (!first.ok()) return Complain("diff", first.status(), code);
  const StatusOr<PlacedGraph> second = LoadPlaced(flags.second, flags, /*chains=*/false, &code);
  if (!second.ok()) return Complain("diff", second.status(), code);
  const PlanDiff diff = DiffPlans(*first->graph, *second->graph);
  code = Write("diff", "", flags.as_json ? DiffToJson(diff) : DiffToText(diff));
  return code != kDone || diff.IsEmpty() ? code : kDifferent;
}

}  // namespace

void AddDiffCommand(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const command = AddCommand(
      app, "diff",
      "compare two plans by what they mean; exits with 3 if they differ, with 0 if at most names, "
      "the order of nodes and the spelling of devices do",
      [flags] { return Run(*flags); }, chosen);
  AddGraphArgument(command, "first", &flags->first);
  AddGraphArgument(command, "second", &flags->second);
  AddClusterFlags(command, flags.get());
  command->add_flag("--json", flags->as_json, "for programs");
}

}  // namespace millrace
