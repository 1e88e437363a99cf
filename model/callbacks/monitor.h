// SPDX-License-Identifier: Apache-2.0
// What the callbacks that watch one logged value share.
#ifndef MODEL_CALLBACKS_MONITOR_H_
#define MODEL_CALLBACKS_MONITOR_H_

#include <optional>
#include <string>
#include <string_view>

#include "millrace/callbacks.h"

namespace millrace::model {

// Whether the value improves upwards. InvalidArgument if the model does not say.
StatusOr<bool> IsUpwards(const Callback& callback, const Model* model, const std::string& monitor,
                         Direction direction);
// By more than `min_delta`. Anything is better than nothing.
bool IsImprovement(double value, const std::optional<double>& than, bool up, double min_delta);
// The value in the logs; a warning if there is none.
std::optional<double> Monitored(const Callback& callback, const Logs& logs,
                                const std::string& monitor);

// Numbers of a state, which a scalar tensor holds each; an absent optional has none.
void Put(CallbackState& state, const std::string& name, int64_t value);
void Put(CallbackState& state, const std::string& name, const std::optional<double>& value);
Status Get(const CallbackState& state, const std::string& name, int64_t* value);
Status Get(const CallbackState& state, const std::string& name, std::optional<double>* value);

}  // namespace millrace::model

#endif  // MODEL_CALLBACKS_MONITOR_H_
