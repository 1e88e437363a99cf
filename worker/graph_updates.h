// SPDX-License-Identifier: Apache-2.0
// The updates that the nodes of a registered graph make, told to the ledgers of its devices.
#ifndef WORKER_GRAPH_UPDATES_H_
#define WORKER_GRAPH_UPDATES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "graph/dataflow_graph.h"
#include "kernels/state/update_ledger.h"
#include "millrace/status.h"

namespace millrace {

// Of one graph; graphs that update nothing have none. Constant once the graph's first step begins.
// Thread-safe from then on.
class GraphUpdates {
 public:
  // Notes what the nodes of `graph`, the part of a CPU, update: made by the first that does, or
  // that calls functions, which may.
  static void AddPart(const Device& device, const DataflowGraph& graph,
                      std::unique_ptr<GraphUpdates>* updates);

  // Before the first step: whose steps these are, and what their environments have as session.
  void SetSource(std::string task, uint64_t incarnation, const void* session);

  // AlreadyExists if the master has run this step before: it must not be run again.
  Status Admit(int64_t step_id) const;
  // Around every step that is run.
  void Begin(int64_t step_id) const;
  void End(int64_t step_id, bool failed) const;

 private:
  struct Part {
    RefPtr<UpdateLedger> ledger;
    UpdateLedger::Expected expected;
    int source = 0;
  };
  StepOrigin Origin(int64_t step_id) const { return {task_, session_, step_id}; }

  std::string task_;
  const void* session_ = nullptr;
  std::vector<Part> parts_;
};

}  // namespace millrace

#endif  // WORKER_GRAPH_UPDATES_H_
