// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/gated_master.h"

#include <utility>

#include "base/calls/request_text.h"
#include "base/errors.h"
#include "base/linked_cancellation.h"
#include "base/string_map.h"

namespace millrace {

struct GatedMaster::Call : public LinkedCancellation {
  int64_t* request_id = nullptr;              // of a step that got its name here
  Call *previous = nullptr, *next = nullptr;  // guarded by the gate's lock
};

GatedMaster::GatedMaster(MasterInterface* master, std::string name)
    : master_(master), name_(std::move(name)) {}

GatedMaster::~GatedMaster() = default;

template <typename Body>
void GatedMaster::Pass(const CallOptions& options, Done done, Body body, int64_t* request_id) {
  auto call = MakeRef<Call>();
  bool closed;
  {
    MutexLock lock(&mu_);
    closed = closed_;
    if (!closed) {
      call->next = first_;
      if (first_ != nullptr) first_->previous = call.get();
      first_ = call.get();
    }
  }
  if (closed) {
    done(errors::Unavailable("the server ", name_, " has stopped"));
    return;
  }
  if (request_id != nullptr && *request_id == 0) {
    *request_id = NewRequestId();
    call->request_id = request_id;
  }
  call->Link(options.cancellation);
  const CallOptions inner{options.deadline, call->get()};
  body(inner, [this, call, done = std::move(done)](Status status) mutable {
    call->Unlink();
    if (call->request_id != nullptr) {
      // The caller may use its arguments again.
      status = OfRequest(std::move(status), std::exchange(*call->request_id, 0));
    }
    // The client first: it may not be told after the gate, and with it the server, is gone.
    done(std::move(status));
    done = nullptr;
    Leave(call.get());
  });
}

void GatedMaster::Leave(Call* call) {
  MutexLock lock(&mu_);
  (call->previous != nullptr ? call->previous->next : first_) = call->next;
  if (call->next != nullptr) call->next->previous = call->previous;
  if (first_ == nullptr) empty_.SignalAll();
}

void GatedMaster::Close(Deadline grace) {
  std::vector<RefPtr<Call>> left;
  {
    MutexLock lock(&mu_);
    closed_ = true;
    while (first_ != nullptr && empty_.WaitUntil(&mu_, grace)) {
    }
    for (Call* call = first_; call != nullptr; call = call->next) {
      left.push_back(RefPtr<Call>::Share(call));
    }
  }
  for (const auto& call : left) {
    call->get()->StartCancel(errors::Cancelled("the server ", name_, " is stopping"));
  }
  left.clear();
  MutexLock lock(&mu_);
  while (first_ != nullptr) empty_.Wait(&mu_);
}

void GatedMaster::CreateSessionAsync(const CallOptions& options, CreateSessionArgs args,
                                     CreateSessionResult* result, Done done) {
  Pass(options, std::move(done), [&](const CallOptions& inner, Done inner_done) {
    master_->CreateSessionAsync(inner, std::move(args), result, std::move(inner_done));
  });
}

void GatedMaster::ExtendSessionAsync(const CallOptions& options, ExtendSessionArgs args,
                                     int64_t* new_graph_version, Done done) {
  Pass(options, std::move(done), [&](const CallOptions& inner, Done inner_done) {
    master_->ExtendSessionAsync(inner, std::move(args), new_graph_version, std::move(inner_done));
  });
}

void GatedMaster::RunStepAsync(const CallOptions& options, RunStepArgs* args, RunStepResult* result,
                               Done done) {
  Pass(
      options, std::move(done),
      [&](const CallOptions& inner, Done inner_done) {
        master_->RunStepAsync(inner, args, result, std::move(inner_done));
      },
      &args->request_id);
}

void GatedMaster::PartialRunSetupAsync(const CallOptions& options, PartialRunSetupArgs args,
                                       std::string* partial_run_handle, Done done) {
  Pass(options, std::move(done), [&](const CallOptions& inner, Done inner_done) {
    master_->PartialRunSetupAsync(inner, std::move(args), partial_run_handle,
                                  std::move(inner_done));
  });
}

void GatedMaster::MakeCallableAsync(const CallOptions& options, MakeCallableArgs args,
                                    int64_t* callable, Done done) {
  Pass(options, std::move(done), [&](const CallOptions& inner, Done inner_done) {
    master_->MakeCallableAsync(inner, std::move(args), callable, std::move(inner_done));
  });
}

void GatedMaster::RunCallableAsync(const CallOptions& options, RunCallableArgs* args,
                                   RunStepResult* result, Done done) {
  Pass(
      options, std::move(done),
      [&](const CallOptions& inner, Done inner_done) {
        master_->RunCallableAsync(inner, args, result, std::move(inner_done));
      },
      &args->request_id);
}

void GatedMaster::ReleaseCallableAsync(const CallOptions& options,
                                       const std::string& session_handle, int64_t callable,
                                       Done done) {
  Pass(options, std::move(done), [&](const CallOptions& inner, Done inner_done) {
    master_->ReleaseCallableAsync(inner, session_handle, callable, std::move(inner_done));
  });
}

void GatedMaster::CloseSessionAsync(const CallOptions& options, const std::string& session_handle,
                                    Done done) {
  Pass(options, std::move(done), [&](const CallOptions& inner, Done inner_done) {
    master_->CloseSessionAsync(inner, session_handle, std::move(inner_done));
  });
}

void GatedMaster::ListDevicesAsync(const CallOptions& options, const std::string& session_handle,
                                   ListDevicesResult* result, Done done) {
  Pass(options, std::move(done), [&](const CallOptions& inner, Done inner_done) {
    master_->ListDevicesAsync(inner, session_handle, result, std::move(inner_done));
  });
}

void GatedMaster::ResetAsync(const CallOptions& options, std::vector<std::string> containers,
                             std::vector<std::string> device_filters, Done done) {
  Pass(options, std::move(done), [&](const CallOptions& inner, Done inner_done) {
    master_->ResetAsync(inner, std::move(containers), std::move(device_filters),
                        std::move(inner_done));
  });
}

namespace {

struct Published {
  Mutex mu;
  StringMap<std::shared_ptr<GatedMaster>> masters ABSL_GUARDED_BY(mu);
};

Published& AllPublished() {
  static auto* const published = new Published;  // outlives whatever ends late
  return *published;
}

}  // namespace

void PublishMaster(std::string address, std::shared_ptr<GatedMaster> master) {
  MutexLock lock(&AllPublished().mu);
  AllPublished().masters.insert_or_assign(std::move(address), std::move(master));
}

void WithdrawMaster(std::string_view address) {
  MutexLock lock(&AllPublished().mu);
  const auto it = AllPublished().masters.find(address);
  if (it != AllPublished().masters.end()) AllPublished().masters.erase(it);
}

std::shared_ptr<MasterInterface> FindPublishedMaster(std::string_view address) {
  MutexLock lock(&AllPublished().mu);
  const auto it = AllPublished().masters.find(address);
  return it == AllPublished().masters.end() ? nullptr : it->second;
}

}  // namespace millrace
