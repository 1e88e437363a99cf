// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/health_service.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "transport/grpc/grpc_util.h"

namespace millrace {
namespace {

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
// HealthCheckRequest.service and HealthCheckResponse.status.
constexpr uint32_t kServiceField = 1, kStatusField = 1;
// No service has a longer name: what is longer is not copied to be looked for.
constexpr std::size_t kLongestName = 1024;

grpc::Status NoRequest() {
  return ToGrpcStatus(errors::InvalidArgument("the request is no HealthCheckRequest"));
}

grpc::Status Stopping() { return ToGrpcStatus(errors::Unavailable("the server is stopping")); }

}  // namespace

bool ReadHealthRequest(std::span<const WirePiece> request, std::string* service) {
  service->clear();
  for (WireReader in(request); !in.AtEnd();) {
    uint32_t field = 0, type = 0;
    if (!in.ReadTag(&field, &type)) return false;
    if (field != kServiceField || type != 2) {
      if (!in.SkipValue(type)) return false;
      continue;
    }
    WireReader name;
    if (!in.ReadBody(&name)) return false;
    if (!name.ReadString(service, std::min(name.remaining(), kLongestName + 1))) return false;
  }
  return true;
}

// One call of Watch: an answer is on its way, or the last one is still right. All that is not
// gRPC's is under the service's lock; gRPC never calls back from within what it is told.
class HealthService::Watcher final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  Watcher(HealthService* service, grpc::CallbackServerContext* context)
      : service_(service), context_(context) {}

  void Begin(const grpc::ByteBuffer& request) {
    const bool readable = service_->ReadRequest(request, &known_);
    MutexLock lock(&service_->mu_);
    if (!readable) return Over(NoRequest());
    if (service_->ended_) return Over(Stopping());  // which takes no room at the client's end
    if (service_->watchers_.size() >= kMostWatchers) {
      return Over(ToGrpcStatus(errors::ResourceExhausted(
          "this server is watched by ", kMostWatchers, " callers, as many as may be: ask with ",
          kCheck, " instead, or later")));
    }
    service_->watchers_.insert(this);
    Tell();
  }

  // Said by its service, which holds its own lock: the analysis does not know that it is the same.
  void IsOfHeldService() const ABSL_ASSERT_EXCLUSIVE_LOCK(service_->mu_) {}

  void Tell() ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mu_) {
    if (over_ || writing_) return;
    const Answer now = service_->Now(known_);
    const bool is_news = now != told_;
    if (is_news) {
      WireWriter answer;
      answer.AppendVarintField(kStatusField, now);
      answer_ = ToByteBuffer(answer);
      told_ = now;
    }
    if (service_->ended_) {
      if (!is_news) return Over(Stopping());
      over_ = true;
      StartWriteAndFinish(&answer_, grpc::WriteOptions(), Stopping());
    } else if (is_news) {
      writing_ = true;
      StartWrite(&answer_);
    }
  }

  // Its call is there until OnDone has returned, which waits for the lock.
  void Cancel() ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mu_) { context_->TryCancel(); }

 private:
  void Over(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mu_) {
    if (std::exchange(over_, true)) return;
    Finish(status);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&service_->mu_);
    writing_ = false;
    if (!ok) return Over(grpc::Status::CANCELLED);
    Tell();
  }
  void OnCancel() override {
    MutexLock lock(&service_->mu_);
    Over(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    {
      MutexLock lock(&service_->mu_);
      service_->watchers_.erase(this);
      if (service_->watchers_.empty()) service_->unwatched_.SignalAll();
    }
    delete this;
  }

  HealthService* const service_;
  grpc::CallbackServerContext* const context_;
  bool known_ = false;  // what it asks about
  bool writing_ ABSL_GUARDED_BY(service_->mu_) = false;
  bool over_ ABSL_GUARDED_BY(service_->mu_) = false;
  Answer told_ ABSL_GUARDED_BY(service_->mu_) = kNone;
  grpc::ByteBuffer answer_ ABSL_GUARDED_BY(service_->mu_);
};

HealthService::HealthService() {
  using grpc::internal::RpcMethod;
  using grpc::internal::RpcServiceMethod;
  AddMethod(new RpcServiceMethod(kCheck, RpcMethod::NORMAL_RPC, nullptr));
  MarkMethodRawCallback(
      0, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
             [this](grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                    grpc::ByteBuffer* answer) -> grpc::ServerUnaryReactor* {
               grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
               reactor->Finish(Check(context, *request, answer));
               return reactor;
             }));
  AddMethod(new RpcServiceMethod(kWatch, RpcMethod::SERVER_STREAMING, nullptr));
  MarkMethodRawCallback(
      1,
      new grpc::internal::CallbackServerStreamingHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
          [this](grpc::CallbackServerContext* context,
                 const grpc::ByteBuffer* request) -> grpc::ServerWriteReactor<grpc::ByteBuffer>* {
            auto* const watcher = new Watcher(this, context);
            watcher->Begin(*request);
            return watcher;
          }));
}

void HealthService::AddName(std::string service) { names_.insert(std::move(service)); }

void HealthService::SetServing(bool serving) {
  MutexLock lock(&mu_);
  serving_ = serving && !ended_;
  TellAll();
}

void HealthService::Look() {
  MutexLock lock(&mu_);
  TellAll();
}

void HealthService::End() {
  MutexLock lock(&mu_);
  serving_ = false;
  ended_ = true;
  TellAll();
}

void HealthService::CancelWatchers(Deadline limit) {
  MutexLock lock(&mu_);
  while (!watchers_.empty()) {
    if (unwatched_.WaitUntil(&mu_, limit)) continue;
    for (Watcher* const watcher : watchers_) {
      watcher->IsOfHeldService();
      watcher->Cancel();
    }
    return;
  }
}

void HealthService::TellAll() {
  for (Watcher* const watcher : watchers_) {
    watcher->IsOfHeldService();
    watcher->Tell();
  }
}

bool HealthService::ReadRequest(const grpc::ByteBuffer& request, bool* known) const {
  std::string service;
  if (!ReadHealthRequest(ReceivedBytes(request).pieces(), &service)) return false;
  *known = names_.contains(service);
  return true;
}

grpc::Status HealthService::Check(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer& request, grpc::ByteBuffer* answer) const {
  bool known = false;
  if (!ReadRequest(request, &known)) return NoRequest();
  if (!known) {
    return ToGrpcStatus(errors::NotFound(
        "this server has no such service; leave the name empty to ask about the server"));
  }
  WireWriter writer;
  {
    MutexLock lock(&mu_);
    writer.AppendVarintField(kStatusField, Now(known));
  }
  if (const Status usable = usable_ == nullptr ? OkStatus() : usable_(); !usable.ok()) {
    context->AddTrailingMetadata(kHealthReason, CEscape(Message(usable)));
  }
  *answer = ToByteBuffer(writer);
  return grpc::Status::OK;
}

}  // namespace millrace
