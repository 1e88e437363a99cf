// What a master is given by whoever composes a task.
#ifndef SESSION_MASTER_ENV_H_
#define SESSION_MASTER_ENV_H_

#include "proto/config.pb.h"
#include "session/worker_env.h"

namespace millrace {

struct MasterEnv {
  // The task the master lives in; its `workers` must know the task itself. Outlives the master.
  const WorkerEnv* task = nullptr;
  // Merged over the configuration of every session: what is set here wins.
  pb::ConfigProto default_config;
};

}  // namespace millrace

#endif  // SESSION_MASTER_ENV_H_
