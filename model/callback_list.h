// SPDX-License-Identifier: Apache-2.0
// The callbacks of one loop.
#ifndef MODEL_CALLBACK_LIST_H_
#define MODEL_CALLBACK_LIST_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/model.h"

namespace millrace::model {

// Calls one hook of all of them, in order, until one returns an error. Adds a progress bar if the
// list has none and `verbose` is not silent.
class CallbackList {
 public:
  CallbackList(Model* model, std::vector<Callback*> callbacks, const LoopParams& params);

  // InvalidArgument if an entry is null.
  Status Start();
  bool reads_batch_logs() const;

  // Call([&](Callback& c) { return c.OnEpochBegin(3); }, "at the begin of epoch 3"). An exception
  // of a hook is an error as one that it returns.
  template <typename Hook, typename... Place>
  Status Call(const Hook& hook, const Place&... place) {
    for (Callback* callback : callbacks_) {
      const Status status = StatusOf([&] { return hook(*callback); });
      if (!status.ok()) {
        return Named(*callback, status, (Text(place) + ...));
      }
    }
    return OkStatus();
  }

 private:
  // What the call returns, or what its exception says.
  static Status StatusOf(const std::function<Status()>& call);
  static std::string Text(const char* text) { return text; }
  static std::string Text(int64_t number) { return std::to_string(number); }
  static Status Named(const Callback& callback, const Status& status, const std::string& place);

  Model* const model_;
  const LoopParams params_;
  std::vector<Callback*> callbacks_;
  std::unique_ptr<ProgressBar> bar_;
};

}  // namespace millrace::model

#endif  // MODEL_CALLBACK_LIST_H_
