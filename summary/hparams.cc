// SPDX-License-Identifier: Apache-2.0
// Hyperparameters of a run, for TensorBoard's table of trials.
#include <cmath>
#include <map>
#include <string>

#include "base/errors.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "proto/hparams.pb.h"
#include "summary/event_writer.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

constexpr char kExperimentTag[] = "_hparams_/experiment";
constexpr char kStartTag[] = "_hparams_/session_start_info";
constexpr char kEndTag[] = "_hparams_/session_end_info";

// The data is in the content of the plugin; the value is empty.
Status AddHParams(const pb::HParamsPluginData& data, std::string_view tag, pb::Event* event) {
  const std::string content = data.SerializeAsString();
  MR_ASSIGN_OR_RETURN(pb::Summary::Value * value,
                      AddValue({.plugin = "hparams", .content = content}, tag, "", event));
  TensorToProto(Tensor(kFloat, Shape({0})), value->mutable_tensor());
  return OkStatus();
}

Status SetValue(std::string_view name, const HParamValue& value, pb::HParamValue* out) {
  if (const bool* flag = std::get_if<bool>(&value)) {
    out->set_bool_value(*flag);
  } else if (const int64_t* integer = std::get_if<int64_t>(&value)) {
    out->set_number_value(static_cast<double>(*integer));
  } else if (const double* number = std::get_if<double>(&value)) {
    if (!std::isfinite(*number)) {
      return errors::InvalidArgument("the hyperparameter '", name, "' is ", *number,
                                     ": a finite number was expected");
    }
    out->set_number_value(*number);
  } else {
    MR_RETURN_IF_ERROR(
        CheckUtf8(StrCat("the hyperparameter '", name, "'"), std::get<std::string>(value)));
    out->set_string_value(std::get<std::string>(value));
  }
  return OkStatus();
}

pb::HParamInfo::DataType TypeOf(const HParamValue& value) {
  if (std::holds_alternative<bool>(value)) return pb::HParamInfo::DATA_TYPE_BOOL;
  if (std::holds_alternative<std::string>(value)) return pb::HParamInfo::DATA_TYPE_STRING;
  return pb::HParamInfo::DATA_TYPE_FLOAT64;
}

std::string TrialId(const std::map<std::string, std::string>& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    StrAppend(&text, name.size(), ":", name, value.size(), ":", value);
  }
  return Hex16(Hash64(text));
}

}  // namespace

Status EventWriter::WriteHParams(std::span<const std::pair<std::string, HParamValue>> values,
                                 const HParamsOptions& options) {
  const double now = impl_->wall_time();
  pb::HParamsPluginData experiment, start;
  experiment.mutable_experiment()->set_time_created_secs(now);
  start.mutable_session_start_info()->set_start_time_secs(now);
  auto& hparams = *start.mutable_session_start_info()->mutable_hparams();
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : values) {
    if (name.empty()) return errors::InvalidArgument("a hyperparameter has no name");
    MR_RETURN_IF_ERROR(CheckUtf8("the name of a hyperparameter", name));
    pb::HParamValue message;
    MR_RETURN_IF_ERROR(SetValue(name, value, &message));
    if (!texts.emplace(name, message.SerializeAsString()).second) {
      return errors::InvalidArgument("the hyperparameter '", name, "' is given twice");
    }
    hparams[name] = message;
    pb::HParamInfo* info = experiment.mutable_experiment()->add_hparam_infos();
    info->set_name(name);
    info->set_type(TypeOf(value));
  }
  MR_RETURN_IF_ERROR(CheckUtf8("the name of a trial", options.trial_id));
  start.mutable_session_start_info()->set_group_name(options.trial_id.empty() ? TrialId(texts)
                                                                              : options.trial_id);
  pb::Event event;
  // An experiment without metrics would hide them all.
  if (!options.metrics.empty()) {
    for (const auto& [tag, run] : options.metrics) {
      MR_RETURN_IF_ERROR(CheckUtf8("the tag of a metric", tag));
      MR_RETURN_IF_ERROR(CheckUtf8("the run of a metric", run));
      auto* name = experiment.mutable_experiment()->add_metric_infos()->mutable_name();
      name->set_tag(tag);
      name->set_group(run);
    }
    MR_RETURN_IF_ERROR(AddHParams(experiment, kExperimentTag, &event));
  }
  MR_RETURN_IF_ERROR(AddHParams(start, kStartTag, &event));
  return impl_->Write(&event);
}

Status EventWriter::WriteHParamsEnd(bool success) {
  pb::HParamsPluginData data;
  data.mutable_session_end_info()->set_end_time_secs(impl_->wall_time());
  data.mutable_session_end_info()->set_status(success ? pb::HParamsSessionEnd::STATUS_SUCCESS
                                                      : pb::HParamsSessionEnd::STATUS_FAILURE);
  pb::Event event;
  MR_RETURN_IF_ERROR(AddHParams(data, kEndTag, &event));
  return impl_->Write(&event);
}

}  // namespace millrace
