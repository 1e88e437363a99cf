// SPDX-License-Identifier: Apache-2.0
// A call of gRPC's health service, as its own clients make it, for tests.
#ifndef TRANSPORT_GRPC_HEALTH_WATCH_TESTLIB_H_
#define TRANSPORT_GRPC_HEALTH_WATCH_TESTLIB_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/grpc/grpc_util.h"

namespace millrace::testing {

// What grpc.health.v1.HealthCheckResponse says.
enum Health { kEnded = -2, kNothingNew = -1, kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

inline grpc::ByteBuffer HealthRequest(const std::string& service) {
  WireWriter request;
  if (!service.empty()) request.AppendBytesField(1, service);
  return ToByteBuffer(request);
}
inline int ReadHealth(const grpc::ByteBuffer& answer) {
  const ReceivedBytes bytes(answer);
  WireReader in = bytes.reader();
  uint32_t field = 0, type = 0;
  uint64_t status = 0;
  return in.ReadTag(&field, &type) && field == 1 && type == 0 && in.ReadVarint(&status)
             ? static_cast<int>(status)
             : 0;
}

// In the clear.
inline std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
}

// One call of Watch. Not thread-safe. Every wait is bounded.
class HealthWatch {
 public:
  using Metadata = std::vector<std::pair<std::string, std::string>>;

  HealthWatch(std::shared_ptr<grpc::Channel> channel, const grpc::ByteBuffer& request,
              const Metadata& metadata = {})
      : stub_(std::move(channel)) {
    for (const auto& [key, value] : metadata) context_.AddMetadata(key, value);
    stream_ = stub_.PrepareCall(&context_, "/grpc.health.v1.Health/Watch", &queue_);
    stream_->StartCall(this);
    if (Wait() != Event::kOk) return;
    stream_->WriteLast(request, grpc::WriteOptions(), this);
    if (Wait() != Event::kOk) return;
    Read();
  }
  HealthWatch(std::shared_ptr<grpc::Channel> channel, const std::string& service)
      : HealthWatch(std::move(channel), HealthRequest(service)) {}
  ~HealthWatch() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) continue;
  }
  HealthWatch(const HealthWatch&) = delete;
  HealthWatch& operator=(const HealthWatch&) = delete;

  // The next answer; kEnded once there are no more, kNothingNew if none came in time.
  int Next(std::chrono::milliseconds limit = std::chrono::seconds(30)) {
    if (!reading_) return kEnded;
    switch (Wait(limit)) {
      case Event::kNone:
        return kNothingNew;
      case Event::kFailed:
        reading_ = false;
        return kEnded;
      case Event::kOk:
        break;
    }
    const int status = ReadHealth(answer_);
    Read();
    return status;
  }
  // How the call ended, once it has.
  grpc::Status Finish() {
    grpc::Status status;
    stream_->Finish(&status, this);
    return Wait() == Event::kNone ? grpc::Status(grpc::StatusCode::UNKNOWN, "no end") : status;
  }

 private:
  enum class Event { kNone, kOk, kFailed };

  Event Wait(std::chrono::milliseconds limit = std::chrono::seconds(30)) {
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + limit) !=
        grpc::CompletionQueue::GOT_EVENT) {
      return Event::kNone;
    }
    return ok ? Event::kOk : Event::kFailed;
  }
  void Read() {
    answer_.Clear();
    reading_ = true;
    stream_->Read(&answer_, this);
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer answer_;
  bool reading_ = false;
};

}  // namespace millrace::testing

#endif  // TRANSPORT_GRPC_HEALTH_WATCH_TESTLIB_H_
