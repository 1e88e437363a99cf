// SPDX-License-Identifier: Apache-2.0
#include "serving/rest_service.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "proto/serving.pb.h"
#include "saved_model/signatures.h"
#include "serving/json_tensors.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kModels = "/v1/models/", kVersions = "/versions/";
constexpr std::string_view kPredict = ":predict", kMetadata = "/metadata";
constexpr char kJsonType[] = "application/json";
constexpr std::chrono::milliseconds kStopCheck(20);

int HttpStatusOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 200;
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kOutOfRange:
      return 400;
    case StatusCode::kUnauthenticated:
      return 401;
    case StatusCode::kPermissionDenied:
      return 403;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kResourceExhausted:
      return 429;
    case StatusCode::kUnimplemented:
      return 501;
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled:
      return 503;
    case StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

HttpAnswer AsJson(int status, const Json& value) {
  return {status, {{"Content-Type", kJsonType}}, JsonText(value)};
}

HttpAnswer AsError(const Status& status) {
  return AsJson(HttpStatusOf(status.code()), {{"error", Message(status)}});
}

// "/v1/models/digits/versions/3:predict" in parts.
struct Target {
  std::string_view name, verb;  // verb: kPredict, kMetadata or ""
  std::optional<int64_t> version;
};

StatusOr<Target> ParseTarget(std::string_view path) {
  path = path.substr(0, path.find('?'));
  if (!path.starts_with(kModels)) {
    return errors::NotFound("there is nothing at ", CEscape(path), ", but below ", kModels);
  }
  Target target;
  target.name = path.substr(kModels.size());
  for (const std::string_view verb : {kPredict, kMetadata}) {
    if (!target.name.ends_with(verb)) continue;
    target.verb = verb;
    target.name.remove_suffix(verb.size());
    break;
  }
  if (const std::size_t at = target.name.find(kVersions); at != std::string_view::npos) {
    int64_t version = 0;
    const std::string_view text = target.name.substr(at + kVersions.size());
    if (!ParseInt64(text, &version) || version < 0) {
      return errors::InvalidArgument("'", CEscape(text), "' is no number of a version");
    }
    target.version = version;
    target.name = target.name.substr(0, at);
  }
  if (target.name.empty() || target.name.find_first_of("/:") != std::string_view::npos) {
    return errors::NotFound("there is nothing at ", CEscape(path), ", but ", kModels, "NAME, ",
                            kModels, "NAME", kPredict, " and ", kModels, "NAME", kMetadata);
  }
  return target;
}

// Values of a request by the names of inputs; a bare value is that of the only input.
using Columns = std::map<std::string, Json>;

bool NamesInputs(const Json& value, const ModelSignature& signature) {
  if (!value.is_object()) return false;
  if (signature.inputs.size() != 1) return true;
  // {"b64": ...} is the value of a text.
  return value.contains(signature.inputs.begin()->first);
}

Status BareValue(const ModelSignature& signature) {
  std::vector<std::string> names;
  for (const auto& [name, unused] : signature.inputs) names.push_back(name);
  return errors::InvalidArgument("a value without a name, and the signature has the inputs ",
                                 StrJoin(names, ", "), ": give an object of them");
}

StatusOr<Columns> ColumnsOfInputs(Json value, const ModelSignature& signature) {
  Columns columns;
  if (NamesInputs(value, signature)) {
    for (auto& [name, column] : value.items()) columns.emplace(name, std::move(column));
    return columns;
  }
  if (signature.inputs.size() != 1) return BareValue(signature);
  columns.emplace(signature.inputs.begin()->first, std::move(value));
  return columns;
}

StatusOr<Columns> ColumnsOfInstances(Json rows, const ModelSignature& signature) {
  if (!rows.is_array() || rows.empty()) {
    return errors::InvalidArgument("\"instances\" must be a list of at least one row");
  }
  const bool named = NamesInputs(rows[0], signature);
  if (!named && signature.inputs.size() != 1) return BareValue(signature);
  Columns columns;
  if (!named) {
    columns.emplace(signature.inputs.begin()->first, std::move(rows));
    return columns;
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!NamesInputs(rows[i], signature) || rows[i].size() != rows[0].size()) {
      return errors::InvalidArgument("row ", i, " has other inputs than row 0");
    }
    for (auto& [name, value] : rows[i].items()) columns[name].push_back(std::move(value));
  }
  for (const auto& [name, column] : columns) {
    if (column.size() == rows.size()) continue;
    return errors::InvalidArgument("input '", CEscape(name), "' is in ", column.size(), " of ",
                                   rows.size(), " rows");
  }
  return columns;
}

struct Question {
  std::string signature;
  bool rows = false;  // "instances", and so an answer by rows
  std::size_t row_count = 0;
  std::map<std::string, Tensor> inputs;
};

StatusOr<Question> ParseQuestion(const ServedModel& model, const std::string& body) {
  MR_ASSIGN_OR_RETURN(Json json, ParseJson(body));
  if (!json.is_object()) return errors::InvalidArgument("the request must be a JSON object");
  Question question;
  question.signature = kServingDefault;
  if (const auto it = json.find("signature_name"); it != json.end()) {
    if (!it->is_string()) return errors::InvalidArgument("\"signature_name\" must be a text");
    if (!it->get_ref<const std::string&>().empty()) question.signature = it->get<std::string>();
  }
  const bool has_instances = json.contains("instances"), has_inputs = json.contains("inputs");
  if (has_instances == has_inputs) {
    return errors::InvalidArgument("the request must have either \"instances\" or \"inputs\"");
  }
  MR_ASSIGN_OR_RETURN(const ModelSignature* const found,
                      model.model().FindSignature(question.signature));
  const ModelSignature& signature = *found;
  if (signature.inputs.empty()) {
    return errors::InvalidArgument("signature '", CEscape(question.signature), "' has no inputs");
  }
  question.rows = has_instances;
  if (has_instances) question.row_count = json["instances"].size();
  MR_ASSIGN_OR_RETURN(const Columns columns,
                      has_instances ? ColumnsOfInstances(std::move(json["instances"]), signature)
                                    : ColumnsOfInputs(std::move(json["inputs"]), signature));
  for (const auto& [name, column] : columns) {
    const auto it = signature.inputs.find(name);
    if (it == signature.inputs.end()) {
      return errors::InvalidArgument("there is no input '", CEscape(name), "' in signature '",
                                     CEscape(question.signature), "'");
    }
    StatusOr<Tensor> tensor = TensorFromJson(column, it->second.dtype);
    if (!tensor.ok()) {
      return WithMessage(tensor.status(),
                         StrCat("input '", CEscape(name), "': ", Message(tensor.status())));
    }
    question.inputs.emplace(name, *std::move(tensor));
  }
  return question;
}

// One answer by name, or the bare value of the only output.
StatusOr<Json> OutputsByName(Json outputs) {
  if (outputs.size() != 1) return outputs;
  return Json(std::move(outputs.begin().value()));
}

StatusOr<Json> OutputsByRow(Json outputs, std::size_t rows) {
  for (const auto& [name, column] : outputs.items()) {
    if (column.is_array() && column.size() == rows) continue;
    return errors::InvalidArgument("output '", CEscape(name), "' has not one row for each of the ",
                                   rows, " instances: ask with \"inputs\"");
  }
  if (outputs.size() == 1) return Json(std::move(outputs.begin().value()));
  Json predictions = Json::array();
  for (std::size_t i = 0; i < rows; ++i) {
    Json row = Json::object();
    for (auto& [name, column] : outputs.items()) row[name] = std::move(column[i]);
    predictions.push_back(std::move(row));
  }
  return predictions;
}

// What a call of the model leaves for the thread that waits for it, which may have given up.
struct Waiting {
  Notification done;
  Status status;
  ServedModel::Outputs outputs;
};

StatusOr<ServedModel::Outputs> Ask(ServedModel* model, const Question& question, Deadline deadline,
                                   const std::function<bool()>& stopping) {
  const auto waiting = std::make_shared<Waiting>();
  model->Predict(question.signature, question.inputs, {}, deadline,
                 [waiting](const Status& status, ServedModel::Outputs outputs) {
                   waiting->status = status;
                   waiting->outputs = std::move(outputs);
                   waiting->done.Notify();
                 });
  while (!waiting->done.WaitUntil(std::min(deadline, DeadlineAfter(kStopCheck)))) {
    if (stopping()) return errors::Unavailable("this server is stopping");
    if (std::chrono::steady_clock::now() >= deadline) {
      return errors::DeadlineExceeded("the model did not answer in time");
    }
  }
  MR_RETURN_IF_ERROR(waiting->status);
  return std::move(waiting->outputs);
}

StatusOr<Json> Predict(ServedModel* model, const std::string& body, Deadline deadline,
                       const std::function<bool()>& stopping) {
  MR_ASSIGN_OR_RETURN(const Question question, ParseQuestion(*model, body));
  MR_ASSIGN_OR_RETURN(const ServedModel::Outputs outputs, Ask(model, question, deadline, stopping));
  MR_ASSIGN_OR_RETURN(Json json, TensorsToJson(outputs));
  if (question.rows) {
    MR_ASSIGN_OR_RETURN(Json rows, OutputsByRow(std::move(json), question.row_count));
    return Json{{"predictions", std::move(rows)}};
  }
  MR_ASSIGN_OR_RETURN(Json columns, OutputsByName(std::move(json)));
  return Json{{"outputs", std::move(columns)}};
}

Json StatusJson(const ServedModel& model) {
  return {{"model_version_status",
           Json::array({{{"version", StrCat(model.version())},
                         {"state", "AVAILABLE"},
                         {"status", {{"error_code", "OK"}, {"error_message", ""}}}}})}};
}

StatusOr<Json> MetadataJson(const ServedModel& model) {
  pb::SignatureDefMap signatures;
  for (const auto& [name, signature] : model.model().signatures()) {
    SignatureToProto(signature, &(*signatures.mutable_signature_def())[name]);
  }
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(signatures, &text, options).ok()) {
    return errors::Internal("the signatures have no form in JSON");
  }
  MR_ASSIGN_OR_RETURN(Json json, ParseJson(text));
  return Json{
      {"model_spec",
       {{"name", model.name()}, {"signature_name", ""}, {"version", StrCat(model.version())}}},
      {"metadata", {{"signature_def", std::move(json)}}}};
}

StatusOr<Json> Answer(ServedModel* model, const HttpRequest& request, Deadline deadline,
                      const std::function<bool()>& stopping) {
  MR_ASSIGN_OR_RETURN(const Target target, ParseTarget(request.target));
  MR_RETURN_IF_ERROR(model->CheckIs(target.name, target.version));
  const bool predicts = target.verb == kPredict;
  if (predicts != (request.method == "POST")) {
    return errors::InvalidArgument(kPredict, " is asked by POST, all else by GET");
  }
  if (predicts) return Predict(model, request.body, deadline, stopping);
  return target.verb == kMetadata ? MetadataJson(*model) : StatusJson(*model);
}

}  // namespace

HttpAnswer AnswerRest(ServedModel* model, const HttpRequest& request, Deadline deadline,
                      const std::function<bool()>& stopping) {
  const StatusOr<Json> answer = Answer(model, request, deadline, stopping);
  return answer.ok() ? AsJson(200, *answer) : AsError(answer.status());
}

}  // namespace millrace
