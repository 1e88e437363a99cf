// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/limited_master.h"

#include <cstdint>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "base/strings.h"
#include "session/forwarding_master.h"

namespace millrace {
namespace {

// What a session's graph takes, or what a part of it would add.
struct GraphSize {
  int64_t nodes = 0;  // with those of functions
  int64_t bytes = 0;  // as it came
  // Clients send their functions again with whatever they add: each counts once.
  StringSet functions;

  void Add(const GraphSize& added) {
    nodes += added.nodes;
    bytes += added.bytes;
    functions.insert(added.functions.begin(), added.functions.end());
  }
  void Take(const GraphSize& added) {
    nodes -= added.nodes;
    bytes -= added.bytes;
    for (const std::string& name : added.functions) functions.erase(name);
  }
};

GraphSize SizeOf(const pb::GraphDef& graph, const StringSet& known) {
  GraphSize size{graph.node_size(), static_cast<int64_t>(graph.ByteSizeLong()), {}};
  for (const pb::FunctionDef& function : graph.library().function()) {
    const std::string& name = function.signature().name();
    if (known.contains(name) || !size.functions.insert(name).second) {
      size.bytes -= static_cast<int64_t>(function.ByteSizeLong());
    } else {
      size.nodes += function.node_def_size();
    }
  }
  return size;
}

// The graph of a call as the message that is measured.
Status ToMessage(std::unique_ptr<NodeBatch>* nodes, pb::GraphDef* graph) {
  if (*nodes == nullptr) return OkStatus();
  return ExportNodes(*std::exchange(*nodes, nullptr), {.origins = true}, graph);
}

class LimitedMaster final : public ForwardingMaster {
 public:
  LimitedMaster(MasterInterface* master, std::string task, const SessionQuotas& quotas,
                std::function<std::vector<std::string>()> open_sessions)
      : ForwardingMaster(master),
        task_(std::move(task)),
        quotas_(quotas),
        open_sessions_(std::move(open_sessions)) {}

  void CreateSessionAsync(const CallOptions& options, CreateSessionArgs args,
                          CreateSessionResult* result, Done done) override {
    if (Status status = ToMessage(&args.nodes, &args.graph); !status.ok()) {
      return done(std::move(status));
    }
    GraphSize size = SizeOf(args.graph, {});
    if (Status status = CheckGraph(size.nodes, size.bytes); !status.ok()) {
      return done(std::move(status));
    }
    if (Status status = BeginSession(); !status.ok()) return done(std::move(status));
    const auto opened = [this, size = std::move(size), result,
                         done = std::move(done)](Status status) mutable {
      {
        MutexLock lock(&mu_);
        --opening_;
        if (status.ok()) sessions_[result->session_handle].graph = std::move(size);
      }
      done(std::move(status));
    };
    master()->CreateSessionAsync(options, std::move(args), result, opened);
  }

  void ExtendSessionAsync(const CallOptions& options, ExtendSessionArgs args,
                          int64_t* new_graph_version, Done done) override {
    if (Status status = ToMessage(&args.nodes, &args.graph); !status.ok()) {
      return done(std::move(status));
    }
    GraphSize added;
    {
      MutexLock lock(&mu_);
      const auto it = sessions_.find(args.session_handle);
      if (it != sessions_.end()) {  // else the master knows what to say
        GraphSize& graph = it->second.graph;
        added = SizeOf(args.graph, graph.functions);
        Status status = CheckGraph(graph.nodes + added.nodes, graph.bytes + added.bytes);
        if (!status.ok()) return done(std::move(status));
        graph.Add(added);
      }
    }
    const auto extended = [this, added = std::move(added), handle = args.session_handle,
                           done = std::move(done)](Status status) {
      if (!status.ok()) {
        MutexLock lock(&mu_);
        const auto it = sessions_.find(handle);
        if (it != sessions_.end()) it->second.graph.Take(added);
      }
      done(std::move(status));
    };
    master()->ExtendSessionAsync(options, std::move(args), new_graph_version, extended);
  }

  void RunStepAsync(const CallOptions& options, RunStepArgs* args, RunStepResult* result,
                    Done done) override {
    if (Status status = BeginStep(args->session_handle); !status.ok()) {
      return done(std::move(status));
    }
    master()->RunStepAsync(options, args, result, EndsStep(args->session_handle, std::move(done)));
  }
  void RunCallableAsync(const CallOptions& options, RunCallableArgs* args, RunStepResult* result,
                        Done done) override {
    if (Status status = BeginStep(args->session_handle); !status.ok()) {
      return done(std::move(status));
    }
    master()->RunCallableAsync(options, args, result,
                               EndsStep(args->session_handle, std::move(done)));
  }

 private:
  struct Session {
    GraphSize graph;
    int64_t steps = 0;  // that run
  };

  Status CheckGraph(int64_t nodes, int64_t bytes) const {
    if (quotas_.max_graph_nodes > 0 && nodes > quotas_.max_graph_nodes) {
      return errors::ResourceExhausted(
          "the graph of a session at ", task_, " may have ", quotas_.max_graph_nodes,
          " nodes, those of functions included (--max_graph_nodes); this one would have ", nodes);
    }
    if (quotas_.max_graph_size > 0 && bytes > quotas_.max_graph_size) {
      return errors::ResourceExhausted("the graph of a session at ", task_, " may have ",
                                       quotas_.max_graph_size,
                                       " bytes (--max_graph_size); this one would have ", bytes,
                                       ": feed or restore what is in its biggest constants");
    }
    return OkStatus();
  }

  Status BeginSession() {
    MutexLock lock(&mu_);
    ForgetClosed();
    const auto open = static_cast<int64_t>(sessions_.size()) + opening_;
    if (quotas_.max_sessions > 0 && open >= quotas_.max_sessions) {
      return errors::ResourceExhausted(
          "no more than ", quotas_.max_sessions, " sessions may be open at ", task_,
          " (--max_sessions), and so many are: close those that are not used (the ones that nobody "
          "calls are closed after --session_idle_limit)");
    }
    ++opening_;
    return OkStatus();
  }

  // Sessions that are not open any more cost nothing.
  void ForgetClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    StringSet open;
    for (std::string& handle : open_sessions_()) open.insert(std::move(handle));
    absl::erase_if(sessions_, [&](const auto& entry) { return !open.contains(entry.first); });
  }

  Status BeginStep(const std::string& handle) {
    if (quotas_.max_steps <= 0) return OkStatus();
    MutexLock lock(&mu_);
    const auto it = sessions_.find(handle);
    if (it == sessions_.end()) return OkStatus();  // the master knows what to say
    if (it->second.steps >= quotas_.max_steps) {
      return errors::ResourceExhausted("session ", handle, " at ", task_, " already runs ",
                                       it->second.steps, " steps, of ", quotas_.max_steps,
                                       " that it may (--max_steps): wait for some of them");
    }
    ++it->second.steps;
    return OkStatus();
  }

  Done EndsStep(const std::string& handle, Done done) {
    if (quotas_.max_steps <= 0) return done;
    return [this, handle, done = std::move(done)](Status status) {
      {
        MutexLock lock(&mu_);
        const auto it = sessions_.find(handle);
        if (it != sessions_.end() && it->second.steps > 0) --it->second.steps;
      }
      done(std::move(status));
    };
  }

  const std::string task_;
  const SessionQuotas quotas_;
  const std::function<std::vector<std::string>()> open_sessions_;
  Mutex mu_;
  int64_t opening_ ABSL_GUARDED_BY(mu_) = 0;  // sessions that are being made
  StringMap<Session> sessions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

bool LimitsSessions(const SessionQuotas& quotas) {
  return quotas.max_sessions > 0 || quotas.max_graph_nodes > 0 || quotas.max_graph_size > 0 ||
         quotas.max_steps > 0;
}

std::unique_ptr<MasterInterface> NewLimitedMaster(
    MasterInterface* master, std::string task, const SessionQuotas& quotas,
    std::function<std::vector<std::string>()> open_sessions) {
  return std::make_unique<LimitedMaster>(master, std::move(task), quotas, std::move(open_sessions));
}

}  // namespace millrace
