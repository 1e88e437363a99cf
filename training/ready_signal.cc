// SPDX-License-Identifier: Apache-2.0
#include "training/ready_signal.h"

#include <set>
#include <string>

#include "base/strings.h"
#include "millrace/ops.h"
#include "millrace/variables.h"

namespace millrace {

StatusOr<ReadySignal> MakeReadySignal(Graph& graph) {
  std::set<std::string> devices;
  for (const Variable& v : Variables(graph)) devices.insert(v.handle.op().device());
  ReadySignal signal;
  int index = 0;
  for (const std::string& device : devices) {
    const std::string prefix = StrCat("supervised_session/ready_", index++);
    const std::string announce = prefix + "/announce", await = prefix + "/await";
    if (!graph.FindOperation(announce).valid()) {
      // The variable's task, whatever device it has there: queues live on CPUs.
      const Scope s = graph.root().WithDevice(device).WithDevice("/device:CPU:0");
      const Output queue = ops::FIFOQueueV2(s.WithOpName(prefix + "/queue"), {kBool},
                                            {.shared_name = "supervised_session/ready"});
      ops::QueueCloseV2(s.WithOpName(announce), queue);
      ops::QueueDequeueV2(s.WithOpName(await), queue, {kBool});
      if (!graph.status().ok()) return graph.status();
    }
    signal.announce.push_back(graph.FindOperation(announce));
    signal.await.push_back(graph.FindOperation(await));
  }
  return signal;
}

}  // namespace millrace
