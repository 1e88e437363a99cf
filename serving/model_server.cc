// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "observe/page_server.h"
#include "serving/predict_service.h"
#include "serving/rest_service.h"

namespace millrace {
namespace {

// Requests are read and put in order here; steps have threads of their own.
constexpr int kControlThreads = 1, kWorkThreads = 2;
// A thread waits for each request over HTTP: so many are in one batch at most.
constexpr int kHttpThreads = 32, kHttpConnections = 256;
constexpr std::chrono::seconds kHttpRequestTime(30);
// Bodies of the greatest size that are there at once: as JSON values they take many times as much.
constexpr std::size_t kHttpBodies = 4;

}  // namespace

ModelServer::ModelServer(ServedModel* model, const ModelServerOptions& options)
    : model_(model),
      options_(options),
      control_("serve_control", kControlThreads),
      work_("serve", kWorkThreads) {}

ModelServer::~ModelServer() { Stop(std::chrono::milliseconds(0)); }

Status ModelServer::Start() {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const LoadedCredentials> credentials,
                      LoadedCredentials::Load(options_.credentials));
  if (options_.http_port >= 0) MR_RETURN_IF_ERROR(StartHttp(credentials));
  RpcLimits limits;
  limits.loopback_only = !options_.insecure && credentials == nullptr;
  grpc_ = std::make_unique<RpcServer>(&control_, &work_, limits, nullptr, std::move(credentials));
  AddPredictMethods(grpc_.get(), model_);
  MR_ASSIGN_OR_RETURN(grpc_port_, grpc_->Start(StrCat(options_.host, ":", options_.grpc_port)));
  return OkStatus();
}

Status ModelServer::StartHttp(std::shared_ptr<const LoadedCredentials> credentials) {
  HttpLimits limits;
  limits.connections = kHttpConnections;
  limits.body_bytes = options_.max_http_body;
  limits.all_body_bytes = kHttpBodies * options_.max_http_body;
  limits.request_time = kHttpRequestTime;
  // The visitor is to read why there is no answer.
  limits.answer_time = options_.http_deadline + std::chrono::seconds(5);
  limits.handler_threads = kHttpThreads;
  limits.background = false;
  const bool has_token = credentials != nullptr && credentials->has_token();
  MR_ASSIGN_OR_RETURN(
      http_,
      HttpServer::Start(options_.host, options_.http_port,
                        /*loopback_only=*/!options_.insecure && !has_token, limits,
                        [this, credentials = std::move(credentials)](const HttpRequest& request) {
                          return AnswerHttp(credentials.get(), request);
                        }));
  return OkStatus();
}

HttpAnswer ModelServer::AnswerHttp(const LoadedCredentials* credentials,
                                   const HttpRequest& request) const {
  const auto refuse = [](int status, const char* why) {
    return HttpAnswer{
        status, {{"Content-Type", "application/json"}}, StrCat("{\"error\":\"", why, "\"}")};
  };
  if (credentials != nullptr && credentials->has_token()) {
    if (!BringsToken(request, [&](std::string_view text) { return credentials->IsToken(text); })) {
      HttpAnswer refused = refuse(401, "this server asks for a token: Authorization: Bearer TOKEN");
      refused.headers.emplace_back("WWW-Authenticate", "Bearer");
      return refused;
    }
  } else if (!options_.insecure && !AsksForAddress(request)) {
    // A page of another site, whose name was made to stand for this host, must not get answers.
    return refuse(403, "ask for this server by address, or as localhost");
  }
  return AnswerRest(model_, request, DeadlineAfter(options_.http_deadline),
                    [this] { return stopping_.load(); });
}

void ModelServer::Stop(std::chrono::milliseconds grace) {
  stopping_.store(true);
  http_ = nullptr;
  if (grpc_ != nullptr) grpc_->Shutdown(DeadlineAfter(grace));
}

}  // namespace millrace
