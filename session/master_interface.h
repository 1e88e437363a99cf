// SPDX-License-Identifier: Apache-2.0
// A master as a client sees it: the master of this process, or a stub for a remote one.
// Plain structs on purpose: only the gRPC stub and service know the wire.
#ifndef SESSION_MASTER_INTERFACE_H_
#define SESSION_MASTER_INTERFACE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/node_batch.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "proto/config.pb.h"
#include "proto/device_attributes.pb.h"
#include "proto/graph.pb.h"
#include "session/worker_interface.h"  // CallOptions

namespace millrace {

// A graph comes as a message, or, from a client in the master's process, as nodes.
struct CreateSessionArgs {
  pb::GraphDef graph;
  std::unique_ptr<NodeBatch> nodes;  // instead of `graph`; null: none
  pb::ConfigProto config;
  std::string target{};  // what the client called, "grpc://host:port"; "" if that is not known
};
struct CreateSessionResult {
  std::string session_handle;  // 16 lower-case hexadecimal digits
  int64_t graph_version = 0;
};

struct ExtendSessionArgs {
  std::string session_handle;
  pb::GraphDef graph;                // what is added
  std::unique_ptr<NodeBatch> nodes;  // instead of `graph`; null: none
  int64_t current_graph_version = 0;
};

// Tensor names everywhere: "n:0", or "n" for the same. Targets are node names.
struct RunStepArgs {
  std::string session_handle;
  std::vector<std::pair<std::string, Tensor>> feeds;
  std::vector<std::string> fetches;  // may repeat a name
  std::vector<std::string> targets;
  pb::RunOptions options;
  std::string partial_run_handle;  // not empty: one part of that run
  int64_t request_id = 0;          // of the client's request, for logs and pages; 0: none
};
struct RunStepResult {
  std::vector<Tensor> fetches;  // in the order of the request
  pb::RunMetadata metadata;
};

struct PartialRunSetupArgs {
  std::string session_handle;
  std::vector<std::string> feeds, fetches, targets;
};

struct MakeCallableArgs {
  std::string session_handle;
  pb::CallableOptions options;
};

struct RunCallableArgs {
  std::string session_handle;
  int64_t callable = 0;
  std::vector<Tensor> feeds;  // in the order of CallableOptions.feed
  // Whether to record what ran, as FULL_TRACE does, for somebody who watches the master of this
  // process. The master takes it back where the callable's own options ask for a trace, which is
  // the caller's.
  bool trace = false;
  int64_t request_id = 0;  // as RunStepArgs'
};

struct ListDevicesResult {
  std::vector<pb::DeviceAttributes> local_devices, remote_devices;
};

// Tensors at equal distances in memory: an array of them, or a member of the elements of one.
class TensorSpan {
 public:
  TensorSpan(std::span<const Tensor> tensors)  // NOLINT: implicit on purpose
      : TensorSpan(tensors.data(), sizeof(Tensor), tensors.size()) {}
  TensorSpan(const Tensor* first, std::size_t distance, std::size_t size)
      : first_(reinterpret_cast<const char*>(first)), distance_(distance), size_(size) {}
  std::size_t size() const { return size_; }
  const Tensor& operator[](std::size_t i) const {
    return *reinterpret_cast<const Tensor*>(first_ + i * distance_);
  }

 private:
  const char* first_;
  std::size_t distance_;  // bytes
  std::size_t size_;
};

// A callable that its master runs on the caller's thread, without lookups and messages. Keeps
// the session's memory, but does not keep it open. Thread-safe.
class PreparedRun {
 public:
  virtual ~PreparedRun() = default;
  // As RunCallableAsync, waited for; a timeout of 0 is the callable's own. The fetches replace
  // what `fetches` holds, which stays as it is after an error.
  virtual Status Run(std::chrono::milliseconds timeout, TensorSpan feeds,
                     std::vector<Tensor>* fetches) = 0;
};

// Thread-safe. Every call ends by exactly one call of `done`, on an engine thread or before
// the call returns; by its deadline with DeadlineExceeded and by its cancellation with
// Cancelled. Arguments passed by pointer, and results, must stay valid until `done`.
// An unknown session is Aborted "Session H is not found.".
class MasterInterface {
 public:
  using Done = std::function<void(Status)>;
  virtual ~MasterInterface() = default;

  // Validates and places the whole graph on the devices of the cluster; waits for its
  // workers. InvalidArgument and NotFound say what is wrong with which node.
  virtual void CreateSessionAsync(const CallOptions& options, CreateSessionArgs args,
                                  CreateSessionResult* result, Done done) = 0;
  // All or nothing. Aborted if the version is not the session's current one.
  virtual void ExtendSessionAsync(const CallOptions& options, ExtendSessionArgs args,
                                  int64_t* new_graph_version, Done done) = 0;
  // The earlier of the call's deadline and options.timeout_in_ms (else the session's
  // operation_timeout_in_ms) limits the step, which has drained when `done` is called.
  virtual void RunStepAsync(const CallOptions& options, RunStepArgs* args, RunStepResult* result,
                            Done done) = 0;
  virtual void PartialRunSetupAsync(const CallOptions& options, PartialRunSetupArgs args,
                                    std::string* partial_run_handle, Done done) = 0;
  virtual void MakeCallableAsync(const CallOptions& options, MakeCallableArgs args,
                                 int64_t* callable, Done done) = 0;
  virtual void RunCallableAsync(const CallOptions& options, RunCallableArgs* args,
                                RunStepResult* result, Done done) = 0;
  // Whether Prepare is worth a try.
  virtual bool PreparesRuns() const { return false; }
  // Null if that callable can only be called by RunCallableAsync, which gives the same results.
  virtual std::shared_ptr<PreparedRun> Prepare(const std::string& session_handle,
                                               int64_t callable) {
    return nullptr;
  }
  virtual void ReleaseCallableAsync(const CallOptions& options, const std::string& session_handle,
                                    int64_t callable, Done done) = 0;
  // Cancels the session's running steps ("Session::Close()") and waits for them.
  virtual void CloseSessionAsync(const CallOptions& options, const std::string& session_handle,
                                 Done done) = 0;
  // Of the session ("" = of the cluster). With a session all devices are in local_devices.
  virtual void ListDevicesAsync(const CallOptions& options, const std::string& session_handle,
                                ListDevicesResult* result, Done done) = 0;
  // Closes all sessions and clears the containers ("" or none: the default one) of the
  // workers that match a filter (none: of all).
  virtual void ResetAsync(const CallOptions& options, std::vector<std::string> containers,
                          std::vector<std::string> device_filters, Done done) = 0;
};

}  // namespace millrace

#endif  // SESSION_MASTER_INTERFACE_H_
