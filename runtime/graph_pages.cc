// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph_pages.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "graph/shape_refiner.h"
#include "master/session_graph.h"
#include "planner/explanations.h"
#include "planner/html.h"

namespace millrace {
namespace {

// The placer runs again for its reasons: of a larger graph that takes more than a visitor waits.
constexpr int kMostWithReasons = 20'000;
// What a browser can show.
constexpr int kMostNodes = 200'000;

Page ListSessions(const Master& master, const PageTable& pages) {
  HtmlTable table({"session", "#version", "#nodes", "where they are"});
  for (const std::string& handle : master.ListSessions()) {
    const auto read = [&](const SessionGraph& graph) {
      std::map<std::string, int> devices;
      int nodes = 0;
      graph.Read([&](const DataflowGraph& nodes_of) {
        for (const Node* node : nodes_of.OpNodes()) {
          ++devices[node->assigned_device()];
          ++nodes;
        }
      });
      std::vector<std::string> where;
      for (const auto& [device, count] : devices) where.push_back(StrCat(count, " on ", device));
      table.LinkedRow(StrCat("/placementz?session=", handle),
                      {handle, StrCat(graph.version()), StrCat(nodes), StrJoin(where, ", ")});
    };
    master.ReadGraph(handle, read).IgnoreError();  // it may have been closed meanwhile
  }
  return {
      200, kHtmlType,
      pages.Frame("Graphs", "of the sessions at this task, each with the reasons for its places",
                  table.Take("No session is open here."))};
}

Page ShowPlacement(const Master& master, const PageTable& pages, const PageRequest& request) {
  const auto handle = request.query.find("session");
  if (handle == request.query.end()) return ListSessions(master, pages);
  std::unique_ptr<DataflowGraph> graph;
  StringMap<Explanation> reasons;
  int nodes = 0;
  const Status read = master.ReadGraph(handle->second, [&](const SessionGraph& session) {
    session.Read([&](const DataflowGraph& placed) {
      nodes = placed.num_nodes();
      if (nodes <= kMostNodes) graph = placed.Clone();
    });
    if (nodes > kMostWithReasons) return;
    for (const PlacementLog& log : session.RecordPlacement()) {
      for (auto& [name, why] : Explain(log, /*chains=*/true)) {
        reasons.insert_or_assign(name, std::move(why));
      }
    }
  });
  if (!read.ok()) {
    return {404, kHtmlType, pages.Frame("No such session", Message(read), "")};
  }
  if (graph == nullptr) {
    return {200, kHtmlType,
            pages.Frame("Too large to draw", StrCat(nodes, " nodes; see millrace dump"), "")};
  }
  ShapeRefiner shapes;
  shapes.AddGraph(*graph).IgnoreError();  // what it learned before an error is right
  return {200, kHtmlType, ToHtml(StrCat("session ", handle->second), *graph, shapes, reasons)};
}

}  // namespace

void AddGraphPages(const Master* master, PageTable* pages) {
  pages->Add("/graphz", "Graphs",
             [=](const PageRequest&) { return ListSessions(*master, *pages); });
  pages->Add("/placementz", "",
             [=](const PageRequest& request) { return ShowPlacement(*master, *pages, request); });
}

}  // namespace millrace
