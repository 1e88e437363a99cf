// SPDX-License-Identifier: Apache-2.0
#include "cluster/tf_config.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

using nlohmann::json;

Status AddJob(const std::string& job, const json& tasks, ClusterSpec* cluster) {
  int64_t index = 0;
  if (!tasks.is_array() && !tasks.is_object()) {
    return errors::InvalidArgument("TF_CONFIG: job '", job, "' is not a list of addresses");
  }
  for (const auto& item : tasks.items()) {
    if (tasks.is_object() && !ParseInt64(item.key(), &index)) {
      return errors::InvalidArgument("TF_CONFIG: job '", job, "' has a task '", item.key(),
                                     "' that is not a number");
    }
    if (!item.value().is_string()) {
      return errors::InvalidArgument("TF_CONFIG: task ", index, " of job '", job,
                                     "' is not a \"host:port\"");
    }
    MR_RETURN_IF_ERROR(
        cluster->AddTask(job, static_cast<int>(index), item.value().get<std::string>()));
    ++index;
  }
  return OkStatus();
}

}  // namespace

StatusOr<TfConfig> ParseTfConfig(std::string_view text) {
  TfConfig config;
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return errors::InvalidArgument("TF_CONFIG is not a JSON object");
  if (root.contains("cluster")) {
    const json& cluster = root["cluster"];
    if (!cluster.is_object()) {
      return errors::InvalidArgument("TF_CONFIG: \"cluster\" is not an object");
    }
    for (const auto& job : cluster.items()) {
      MR_RETURN_IF_ERROR(AddJob(job.key(), job.value(), &config.cluster));
    }
  }
  if (root.contains("task")) {
    const json& task = root["task"];
    if (!task.is_object()) return errors::InvalidArgument("TF_CONFIG: \"task\" is not an object");
    if (task.contains("type")) {
      if (!task["type"].is_string()) {
        return errors::InvalidArgument("TF_CONFIG: \"type\" of the task is not text");
      }
      config.job_name = task["type"].get<std::string>();
    }
    if (task.contains("index")) {
      // Programs write it as a number or as text.
      const json& index = task["index"];
      int64_t number = 0;
      const std::string digits = index.is_string() ? index.get<std::string>() : index.dump();
      if (!ParseInt64(digits, &number) || number < 0 || number > INT32_MAX) {
        return errors::InvalidArgument("TF_CONFIG: \"index\" of the task is not a number: ",
                                       digits);
      }
      config.task_index = static_cast<int>(number);
    }
  }
  const std::pair<const char*, std::string*> texts[] = {{"rpc_layer", &config.rpc_layer},
                                                        {"environment", &config.environment},
                                                        {"session_master", &config.session_master}};
  for (const auto& [key, value] : texts) {
    if (!root.contains(key)) continue;
    if (!root[key].is_string()) {
      return errors::InvalidArgument("TF_CONFIG: \"", key, "\" is not text");
    }
    *value = root[key].get<std::string>();
  }
  return config;
}

Status AddEvaluator(TfConfig* config) {
  constexpr char kEvaluator[] = "evaluator";
  if (config->job_name != kEvaluator) return OkStatus();
  if (config->task_index.value_or(0) > 0 || config->cluster.num_tasks(kEvaluator) > 1) {
    return errors::InvalidArgument(
        "TF_CONFIG: there must be at most one evaluator, task 0, as with TensorFlow, and this is "
        "task ",
        config->task_index.value_or(0), " of ", config->cluster.ToString());
  }
  if (config->cluster.num_tasks(kEvaluator) > 0) return OkStatus();
  config->cluster = ClusterSpec();
  return config->cluster.AddTask(kEvaluator, config->task_index.value_or(0), "127.0.0.1:0");
}

}  // namespace millrace
