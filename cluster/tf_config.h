// SPDX-License-Identifier: Apache-2.0
// A cluster and a task as TensorFlow's programs find them: JSON in the variable TF_CONFIG.
#ifndef CLUSTER_TF_CONFIG_H_
#define CLUSTER_TF_CONFIG_H_

#include <optional>
#include <string>
#include <string_view>

#include "millrace/cluster.h"
#include "millrace/status.h"

namespace millrace {

struct TfConfig {
  ClusterSpec cluster;
  std::optional<std::string> job_name;
  std::optional<int> task_index;
  std::string rpc_layer, environment, session_master;  // "" where it does not say
};

// {"cluster": {"ps": ["h:p"], "worker": {"0": "h:p"}}, "task": {"type": "ps", "index": 0}}.
// InvalidArgument, beginning with "TF_CONFIG", for anything else.
StatusOr<TfConfig> ParseTfConfig(std::string_view json);

// An evaluator is no task of the cluster that it looks after: TensorFlow starts it as a cluster of
// its own. Does that, with a loopback port that is free, if the task is one.
// InvalidArgument for a second evaluator.
Status AddEvaluator(TfConfig* config);

}  // namespace millrace

#endif  // CLUSTER_TF_CONFIG_H_
