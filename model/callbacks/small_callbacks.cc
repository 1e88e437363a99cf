// SPDX-License-Identifier: Apache-2.0
// Those that need no state of their own.
#include <cmath>
#include <cstdio>

#include "base/errors.h"
#include "millrace/model.h"

namespace millrace {
namespace {

constexpr char kHint[] =
    "Compile with check_numerics = true to be told which node was the first that made it";

}  // namespace

Status TerminateOnNan::OnTrainBatchEnd(int64_t batch, const Logs& logs) {
  const std::optional<double> loss = logs.Find("loss");
  if (!loss || std::isfinite(*loss)) return OkStatus();
  if (options_.return_error) {
    return errors::InvalidArgument("NaN or Inf loss encountered at batch ", batch,
                                   ". Loss value: ", *loss, ". Terminating training immediately. (",
                                   kHint, ")");
  }
  std::printf("Batch %lld: Invalid loss, terminating training\n%s\n", static_cast<long long>(batch),
              kHint);
  model()->set_stop_training(true);
  return OkStatus();
}

Status LambdaCallback::OnTrainBegin() {
  return hooks_.on_train_begin ? hooks_.on_train_begin() : OkStatus();
}
Status LambdaCallback::OnTrainEnd(const Logs& logs) {
  return hooks_.on_train_end ? hooks_.on_train_end(logs) : OkStatus();
}
Status LambdaCallback::OnEpochBegin(int64_t epoch) {
  return hooks_.on_epoch_begin ? hooks_.on_epoch_begin(epoch) : OkStatus();
}
Status LambdaCallback::OnEpochEnd(int64_t epoch, Logs& logs) {
  return hooks_.on_epoch_end ? hooks_.on_epoch_end(epoch, logs) : OkStatus();
}
Status LambdaCallback::OnTrainBatchBegin(int64_t batch) {
  return hooks_.on_train_batch_begin ? hooks_.on_train_batch_begin(batch) : OkStatus();
}
Status LambdaCallback::OnTrainBatchEnd(int64_t batch, const Logs& logs) {
  return hooks_.on_train_batch_end ? hooks_.on_train_batch_end(batch, logs) : OkStatus();
}

}  // namespace millrace
