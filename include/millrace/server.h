// SPDX-License-Identifier: Apache-2.0
// One task of a cluster: serves its devices and a master to clients and other tasks.
#ifndef MILLRACE_SERVER_H_
#define MILLRACE_SERVER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/cluster.h"
#include "millrace/credentials.h"
#include "millrace/status.h"

namespace millrace {

// What one session may take of a task, so that none takes it all; 0: no bound. What is beyond is
// refused with ResourceExhausted, which names the bound, and changes nothing.
struct SessionQuotas {
  int64_t max_sessions = 0;     // that are open at the task at once
  int64_t max_graph_nodes = 0;  // of the graph of one, those of functions included
  int64_t max_graph_size = 0;   // bytes of that, as it comes
  int64_t max_steps = 0;        // that one runs at once
  // Bytes that kernels took for its steps on the task's devices and that are still held, by steps,
  // variables, queues and the like; docs/security.md says what is on no account.
  int64_t session_memory_limit = 0;
};

// Which task a server is, what it has and what it lets others do.
struct ServerOptions {
  ClusterSpec cluster{};     // all tasks, this one among them
  std::string job_name{};    // of this task, such as "worker"
  int task_index = 0;        // of this task in its job
  int num_cpu_devices = 1;   // /cpu:0, /cpu:1, ...; they share the threads
  int inter_op_threads = 0;  // 0: one per core
  int intra_op_threads = 0;  // that kernels share their work among; 0: one per core
  // GPUs of the task (docs/gpu.md), which all sessions at it use, as the fields of SessionOptions:
  // at most so many (-1: as many as SetGpuOptions says, or all), the fraction of each GPU's memory
  // (0: what is free), whether memory is taken as it is needed, and which GPUs ("1,0"; "": all).
  // Where the last three are as they are here, SetGpuOptions decides.
  int num_gpu_devices = -1;
  double gpu_memory_fraction = 0;  // of each GPU's memory, up to 1; 0: what is free
  bool gpu_allow_growth = false;   // as it is needed; else all of it at the first allocation
  std::string visible_gpus{};      // "1,0": which GPUs are /gpu:0, /gpu:1, ...; "": all
  // What this task proves itself with, to those that it calls too, and asks of those that call it.
  Credentials credentials{};
  // An address that is not loopback is refused (FailedPrecondition) unless there are credentials
  // or this is set: the transport is not encrypted and any client may run any op.
  bool insecure = false;
  // What graphs may do besides computing: of "file_read", "file_write", "environment", "network",
  // "custom_code", with "all" for everything and "none" for nothing; {}: docs/security.md.
  std::vector<std::string> allow{};
  // The only folder whose files graphs may name, links and ".." resolved; "": any.
  std::string file_root{};
  // Whether ShutdownTask may end this server (WaitForShutdown returns).
  bool accept_shutdown = false;
  // What the tasks of one job have in common and those of no other job do: tasks with different
  // names refuse each other. "": a task is told apart by what answers at its address.
  std::string cluster_id{};
  // A task that shows no sign of life for so long is lost: calls that wait for it end with
  // Unavailable. 0: never.
  std::chrono::milliseconds peer_timeout{30'000};
  // Where the graphs of all sessions that are opened at this task are written (docs/dumps.md),
  // "": nowhere. Clients cannot ask for it.
  std::string dump_dir{};
  // Bounds on what whoever reaches the server may take of it; 0: what is said here.
  int64_t max_message_size = 0;  // bytes of one request: 2^31 - 1, all that TensorFlow can send
  int max_connections = 0;       // at once, over TCP: half of the file descriptors there may be
  int max_calls = 0;             // at once, by one connection: 65536
  SessionQuotas quotas{};        // of each session at the task

  // Bytes that the tensors of one step may take on one device of the task (docs/memory.md); 0: no
  // limit; -1: MILLRACE_STEP_MEMORY_LIMIT, or no limit.
  int64_t step_memory_limit = -1;
  // A session opened here that no client calls for so long is closed; 0: never; -1 ms:
  // MILLRACE_SESSION_IDLE_LIMIT (seconds), or never.
  std::chrono::milliseconds session_idle_limit{-1};
};

// Several servers may live in one process. Thread-safe.
class Server {
 public:
  // Binds nothing yet. InvalidArgument if the task is not in the cluster, its address is
  // malformed, or a field or variable of the environment, which it names, cannot be; the error of
  // the file system if dump_dir cannot be made. The environment is read here, once.
  static StatusOr<std::unique_ptr<Server>> Create(const ServerOptions& options);
  ~Server();  // stops

  // Listens on the address of its own task (port 0: one is chosen, see address()).
  // Unavailable, naming address and port, if it is taken. OK if already started;
  // FailedPrecondition "Server has stopped." afterwards.
  Status Start();
  // Refuses new steps, waits up to `grace` for those that run, cancels the rest, frees the
  // port and ends its threads. OK if never started or stopped already.
  Status Stop(std::chrono::milliseconds grace = std::chrono::milliseconds(1000));
  // Blocks until Stop was called or, if accepted, a ShutdownTask arrived.
  void WaitForShutdown();
  // As WaitForShutdown; false if the time passed first.
  bool WaitForShutdown(std::chrono::milliseconds limit);

  std::string target() const;   // "grpc://host:port"
  std::string address() const;  // "host:port" with the port that was bound

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Tells the server at `address` that its job is done. PermissionDenied if it does not accept
// that; Unavailable or DeadlineExceeded, naming the address, if it cannot be reached in time.
Status ShutdownTask(const std::string& address, std::chrono::milliseconds limit);

}  // namespace millrace

#endif  // MILLRACE_SERVER_H_
