// SPDX-License-Identifier: Apache-2.0
#include "serving/predict_service.h"

#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "proto/serving.pb.h"
#include "saved_model/signatures.h"
#include "tensor/tensor_proto.h"
#include "transport/server_call.h"

namespace millrace {
namespace {

constexpr uint32_t kInputsField = 2, kOutputsField = 1;  // of PredictRequest, PredictResponse
constexpr char kSignatureMetadata[] = "signature_def";
constexpr char kSignatureMapUrl[] = "type.googleapis.com/tensorflow.serving.SignatureDefMap";

Status CheckSpec(const ServedModel& model, const pb::ModelSpec& spec) {
  if (!spec.version_label().empty()) {
    return errors::InvalidArgument("this server has no versions with labels, such as '",
                                   CEscape(spec.version_label()), "'; ask for a number");
  }
  std::optional<int64_t> version;
  if (spec.has_version()) version = spec.version().value();
  return model.CheckIs(spec.name(), version);
}

void FillSpec(const ServedModel& model, std::string_view signature, pb::ModelSpec* spec) {
  spec->set_name(model.name());
  spec->mutable_version()->set_value(model.version());
  spec->set_signature_name(std::string(signature));
}

// Texts as lists, which is how clients in Python expect them; all else as it lies in memory.
StatusOr<WireWriter> EncodeResponse(const ServedModel::Outputs& outputs,
                                    pb::PredictResponse* rest) {
  WireWriter response;
  for (const auto& [name, tensor] : outputs) {
    if (tensor.dtype() == kString) {
      TensorToReadableProto(tensor, &(*rest->mutable_outputs())[name]);
    } else {
      // An entry of a map is a message of a name and a value, as a NamedTensorProto is.
      MR_RETURN_IF_ERROR(response.AppendNamedTensorField(kOutputsField, name, tensor));
    }
  }
  response.AppendMessage(*rest);
  return response;
}

void Predict(ServedModel* model, ServerCall* call) {
  pb::PredictRequest request;
  std::map<std::string, Tensor> inputs;
  Status status = ReadMessageWithTensors(
      call->reader(), kInputsField,
      [&](WireReader body) {
        std::string name;
        Tensor tensor;
        MR_RETURN_IF_ERROR(ReadNamedTensor(body, &name, &tensor));
        inputs.insert_or_assign(std::move(name), std::move(tensor));
        return OkStatus();
      },
      &request);
  if (status.ok()) status = CheckSpec(*model, request.model_spec());
  if (!status.ok()) return call->Finish(status);
  const auto& filter = request.output_filter();
  const std::string& asked = request.model_spec().signature_name();
  std::string signature = asked.empty() ? kServingDefault : asked;
  model->Predict(signature, inputs, {filter.begin(), filter.end()}, call->options().deadline,
                 [model, call, signature](const Status& done, ServedModel::Outputs outputs) {
                   if (!done.ok()) return call->Finish(done);
                   pb::PredictResponse rest;
                   FillSpec(*model, signature, rest.mutable_model_spec());
                   StatusOr<WireWriter> response = EncodeResponse(outputs, &rest);
                   if (!response.ok()) return call->Finish(response.status());
                   call->Finish(*std::move(response));
                 });
}

void GetMetadata(const ServedModel& model, ServerCall* call) {
  pb::GetModelMetadataRequest request;
  Status status = call->Parse(&request);
  if (status.ok()) status = CheckSpec(model, request.model_spec());
  for (const std::string& field : request.metadata_field()) {
    if (!status.ok() || field == kSignatureMetadata) continue;
    status = errors::InvalidArgument("there is no metadata '", CEscape(field), "', but ",
                                     kSignatureMetadata);
  }
  if (!status.ok()) return call->Finish(status);
  pb::SignatureDefMap signatures;
  for (const auto& [name, signature] : model.model().signatures()) {
    SignatureToProto(signature, &(*signatures.mutable_signature_def())[name]);
  }
  pb::GetModelMetadataResponse response;
  FillSpec(model, "", response.mutable_model_spec());
  google::protobuf::Any& any = (*response.mutable_metadata())[kSignatureMetadata];
  any.set_type_url(kSignatureMapUrl);
  any.set_value(signatures.SerializeAsString());
  call->Finish(response);
}

void GetStatus(const ServedModel& model, ServerCall* call) {
  pb::GetModelStatusRequest request;
  Status status = call->Parse(&request);
  if (status.ok()) status = CheckSpec(model, request.model_spec());
  if (!status.ok()) return call->Finish(status);
  pb::GetModelStatusResponse response;
  pb::ModelVersionStatus* const version = response.add_model_version_status();
  version->set_version(model.version());
  version->set_state(pb::ModelVersionStatus::AVAILABLE);
  version->mutable_status();
  call->Finish(response);
}

}  // namespace

void AddPredictMethods(RpcServer* server, ServedModel* model) {
  server->AddMethod(
      kPredictPath, [model](ServerCall* call) { Predict(model, call); }, RpcLane::kWork);
  server->AddMethod(kMetadataPath, [model](ServerCall* call) { GetMetadata(*model, call); });
  server->AddMethod(kStatusPath, [model](ServerCall* call) { GetStatus(*model, call); });
}

}  // namespace millrace
