// SPDX-License-Identifier: Apache-2.0
#include "model/callbacks/monitor.h"

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/model.h"

namespace millrace::model {

StatusOr<bool> IsUpwards(const Callback& callback, const Model* model, const std::string& monitor,
                         Direction direction) {
  if (direction == Direction::kAuto) direction = model->DirectionOf(monitor);
  if (direction != Direction::kAuto) return direction == Direction::kUp;
  return errors::InvalidArgument(callback.kind(), " monitors '", monitor,
                                 "', and the model has no metric of that name, so "
                                 "that it is not known whether it improves upwards; give a "
                                 "direction, or the name of a metric");
}

bool IsImprovement(double value, const std::optional<double>& than, bool up, double min_delta) {
  if (!than) return true;
  return up ? value - min_delta > *than : value + min_delta < *than;
}

std::optional<double> Monitored(const Callback& callback, const Logs& logs,
                                const std::string& monitor) {
  const std::optional<double> value = logs.Find(monitor);
  if (!value) {
    MR_LOG(kWarning, callback.kind(), " monitors '", monitor,
           "', which is not in the logs of this epoch: there are ", logs.Names());
  }
  return value;
}

void Put(CallbackState& state, const std::string& name, int64_t value) {
  state[name] = Tensor::Scalar<int64_t>(value);
}

void Put(CallbackState& state, const std::string& name, const std::optional<double>& value) {
  if (value) state[name] = Tensor::Scalar<double>(*value);
}

Status Get(const CallbackState& state, const std::string& name, int64_t* value) {
  const auto found = state.find(name);
  if (found == state.end()) return errors::InvalidArgument("the state has no '", name, "'");
  MR_ASSIGN_OR_RETURN(*value, found->second.TryScalar<int64_t>());
  return OkStatus();
}

Status Get(const CallbackState& state, const std::string& name, std::optional<double>* value) {
  value->reset();
  const auto found = state.find(name);
  if (found == state.end()) return OkStatus();
  MR_ASSIGN_OR_RETURN(*value, found->second.TryScalar<double>());
  return OkStatus();
}

}  // namespace millrace::model
