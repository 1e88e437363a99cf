// SPDX-License-Identifier: Apache-2.0
// What a master is given by whoever composes a task.
#ifndef SESSION_MASTER_ENV_H_
#define SESSION_MASTER_ENV_H_

#include <chrono>

#include "proto/config.pb.h"
#include "session/worker_env.h"

namespace millrace {

class GraphDumper;  // master/dump/graph_dump.h

struct MasterEnv {
  // The task the master lives in; its `workers` must know the task itself. Outlives the master.
  const WorkerEnv* task = nullptr;
  // Merged over the configuration of every session: what is set here wins.
  pb::ConfigProto default_config;
  // Where the sessions write their graphs, if whoever runs this task wants that; outlives the
  // master. A client cannot ask for it: it would choose files of another machine.
  GraphDumper* graph_dumper = nullptr;
  // Sessions that no client calls for this long are closed: their clients may have vanished. A
  // call that runs keeps its session, a partial run between its calls does not. 0: never.
  std::chrono::milliseconds session_idle_limit{0};
  // Whether log_device_placement may write the list of all nodes to a temporary file. Not where the
  // client is on another machine.
  bool writes_placement = true;
};

}  // namespace millrace

#endif  // SESSION_MASTER_ENV_H_
