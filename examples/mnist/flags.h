// SPDX-License-Identifier: Apache-2.0
// The command line of mnist_replica: TensorFlow's flags and a few of our own.
#ifndef EXAMPLES_MNIST_FLAGS_H_
#define EXAMPLES_MNIST_FLAGS_H_

#include <string>
#include <vector>

#include "millrace/cluster.h"
#include "millrace/credentials.h"
#include "millrace/status.h"

namespace millrace::mnist {

struct Flags {
  // TensorFlow's.
  std::string data_dir;  // empty: synthetic digits
  bool download_only = false;
  std::string job_name;
  int task_index = -1;  // -1: not given
  int num_gpus = 0;
  int replicas_to_aggregate = 0;  // 0: the number of workers
  int hidden_units = 100;
  int train_steps = 200;
  int batch_size = 100;
  double learning_rate = 0.01;
  bool sync_replicas = false;
  bool existing_servers = false;
  std::string ps_hosts = "localhost:2222";
  std::string worker_hosts = "localhost:2223,localhost:2224";
  bool hosts_given = false;  // one of the two was on the command line
  // Ours.
  std::string data_url;  // where --download_only finds what --data_dir lacks
  std::string model = "mlp";
  std::string optimizer = "adam";
  std::string ps_strategy = "balanced";
  std::string dump_graph;      // empty: nowhere
  std::string trace_dir;       // empty: nothing is traced
  std::string checkpoint_dir;  // empty: nothing is saved
  int save_steps = 100;
  std::string evaluate = "latest";  // or "every": which checkpoints an evaluator takes
  double evaluate_timeout = 0;      // seconds; 0: none
  bool quiet = false;
  bool exact_steps = false;
  int staleness_bound = -1;  // -1: none
  int num_ps = 1;
  int num_workers = 2;
  int64_t seed = 0;
  int ready_timeout = 60;    // seconds
  std::string cluster_id;    // the launcher gives its tasks one
  double peer_timeout = 30;  // seconds
  Credentials credentials;   // of this task; the launcher's have {job} and {task} in them
  std::string http;          // empty: no pages
  bool insecure = false;     // serves on addresses that are not loopback
  int progress_fd = -1;      // set by the launcher: where progress records go

  bool is_launcher() const { return job_name.empty(); }
  bool is_chief() const { return job_name == "worker" && task_index == 0; }
};

// `exit_code` >= 0: leave with it (0 after --help, 2 after a usage error, already printed).
struct ParsedFlags {
  Flags flags;
  int exit_code = -1;
};
ParsedFlags ParseFlags(int argc, char** argv);

// The files of the task that the flags describe.
Credentials TaskCredentials(const Flags& flags);

// InvalidArgument, one clear line, for values that cannot work together.
Status CheckFlags(const Flags& flags);
// From the host lists. InvalidArgument for a malformed or repeated address or a task index out
// of range.
StatusOr<ClusterSpec> ClusterFromFlags(const Flags& flags);

}  // namespace millrace::mnist

#endif  // EXAMPLES_MNIST_FLAGS_H_
