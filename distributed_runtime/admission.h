// SPDX-License-Identifier: Apache-2.0
// What graphs may do at a task besides computing.
#ifndef DISTRIBUTED_RUNTIME_ADMISSION_H_
#define DISTRIBUTED_RUNTIME_ADMISSION_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "session/worker_interface.h"

namespace millrace {

// A set of capabilities: "file_read", "file_write", "environment", "network", "custom_code". An op
// has those of what its kernel does; most have none. A value.
class Admission {
 public:
  // From the words of ServerOptions.allow, with "all" for everything and "none" for nothing.
  // InvalidArgument lists the words for any other one.
  static StatusOr<Admission> Parse(const std::vector<std::string>& allow);
  static Admission All();
  static Admission AllButFileWrite();

  bool allows_all() const;
  bool Allows(std::string_view capability) const;
  // Whether everything that the nodes and functions of a graph do is allowed. PermissionDenied
  // names the node, its op, and the function around it, what it would do, and how to allow it.
  Status Check(const DataflowGraph& graph) const;

 private:
  Status CheckOp(std::string_view op, const std::string& where) const;

  unsigned allowed_ = 0;  // bits
};

// What an op does besides computing: "file_read", ...; "" for nothing.
std::string_view CapabilityOf(std::string_view op);

// `worker`, which must outlive the result, but graphs that `admission` does not let in are not
// registered. Errors name `task`.
std::unique_ptr<WorkerInterface> NewAdmittingWorker(WorkerInterface* worker, std::string task,
                                                    const Admission& admission);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_ADMISSION_H_
