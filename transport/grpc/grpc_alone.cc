// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/grpc_alone.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <future>
#include <string>

#include "base/log.h"
#include "base/strings.h"
#include "transport/grpc/credentials.h"

namespace millrace {
namespace {

// Answers one call.
class Answer final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Answer(const grpc::ByteBuffer& answer) : answer_(answer) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer request_, answer_;
};

class Service final : public grpc::CallbackGenericService {
 public:
  explicit Service(std::size_t bytes) {
    const grpc::Slice slice(std::string(bytes, 'x'));
    answer_ = grpc::ByteBuffer(&slice, 1);
  }
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Answer(answer_);
  }

 private:
  grpc::ByteBuffer answer_;
};

}  // namespace

struct GrpcAlone::Parts {
  explicit Parts(std::size_t bytes) : service(bytes) {}
  Service service;
  std::unique_ptr<grpc::Server> server;
  std::shared_ptr<grpc::Channel> channel;
};

GrpcAlone::GrpcAlone(const Credentials& server, const Credentials& client, std::size_t bytes)
    : parts_(std::make_unique<Parts>(bytes)) {
  // TLS as tasks have it, or the comparison would be with other checks of certificates.
  std::shared_ptr<grpc::ServerCredentials> at_server = grpc::InsecureServerCredentials();
  std::shared_ptr<grpc::ChannelCredentials> at_client = grpc::InsecureChannelCredentials();
  if (server.tls()) {
    auto own = LoadedCredentials::Load(server), callers = LoadedCredentials::Load(client);
    MR_CHECK(own.ok() && callers.ok());
    at_server = (*own)->ForServer();
    at_client = (*callers)->ForChannel("", nullptr);
  }
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", at_server, &port);
  builder.RegisterCallbackGenericService(&parts_->service);
  parts_->server = builder.BuildAndStart();
  MR_CHECK(parts_->server != nullptr);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  parts_->channel = grpc::CreateCustomChannel(StrCat("127.0.0.1:", port), at_client, arguments);
}

GrpcAlone::~GrpcAlone() { parts_->server->Shutdown(); }

void GrpcAlone::Call() {
  grpc::ClientContext context;
  const grpc::Slice nothing("");
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> answered;
  grpc::GenericStub(parts_->channel)
      .UnaryCall(&context, "/bench/Call", grpc::StubOptions(), &request, &response,
                 [&](grpc::Status status) { answered.set_value(std::move(status)); });
  const grpc::Status status = answered.get_future().get();
  if (!status.ok()) MR_LOG(kError, "gRPC alone: ", status.error_message());
  MR_CHECK(status.ok());
}

}  // namespace millrace
