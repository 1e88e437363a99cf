#include "serving/model_server.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "serving/predict_service.h"

namespace millrace {
namespace {

// Requests are read and put in order here; steps have threads of their own.
constexpr int kControlThreads = 1, kWorkThreads = 2;

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
  RpcLimits limits;
  limits.loopback_only = !options_.insecure && credentials == nullptr;
  grpc_ = std::make_unique<RpcServer>(&control_, &work_, limits, nullptr, std::move(credentials));
  AddPredictMethods(grpc_.get(), model_);
  MR_ASSIGN_OR_RETURN(grpc_port_, grpc_->Start(StrCat(options_.host, ":", options_.grpc_port)));
  return OkStatus();
}

void ModelServer::Stop(std::chrono::milliseconds grace) {
  if (grpc_ != nullptr) grpc_->Shutdown(DeadlineAfter(grace));
}

}  // namespace millrace
