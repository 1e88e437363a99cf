// SPDX-License-Identifier: Apache-2.0
// What a program hooks into the loops of a Model (millrace/model.h). Those that there are:
// millrace/callbacks.h, millrace/checkpoint_callbacks.h, millrace/tensorboard.h.
#ifndef MILLRACE_CALLBACK_H_
#define MILLRACE_CALLBACK_H_

#include <cstdint>
#include <map>
#include <string>

#include "millrace/history.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

class Model;

// What a callback remembers between epochs, by name: what a checkpoint keeps of it.
using CallbackState = std::map<std::string, Tensor>;

// A hook does nothing unless it is overridden. One that returns an error ends the loop: no further
// hook is called, and Fit returns the error with the callback's kind and the place. A batch number
// counts from 0 within its epoch; with steps_per_execution it is the first step's at a begin and
// the last one's at an end. Logs of a batch are means since the epoch began, that batch included.
class Callback {
 public:
  Callback() = default;
  virtual ~Callback() = default;
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;

  // As errors name it.
  virtual std::string kind() const { return "Callback"; }
  // Both are called before the first hook of a loop. The model outlives the loop.
  virtual void SetModel(Model* model) { model_ = model; }
  // Tells what the loop is about to do.
  virtual void SetParams(const LoopParams& params) { params_ = params; }

  // Of all callbacks before OnTrainBegin of any: here one may take the run back to where an earlier
  // one was (TrainingRun::SetState of millrace/training_run.h).
  virtual Status OnTrainRestore() { return OkStatus(); }
  // Before the first epoch of Fit.
  virtual Status OnTrainBegin() { return OkStatus(); }
  virtual Status OnTrainEnd(const Logs& /*logs*/) { return OkStatus(); }  // the last epoch's
  // Also of an epoch that an earlier run has begun and this one goes on with: what is changed in
  // the model's variables then is undone.
  virtual Status OnEpochBegin(int64_t /*epoch*/) { return OkStatus(); }
  // What is set in the logs is seen by the callbacks behind this one and by the history.
  virtual Status OnEpochEnd(int64_t /*epoch*/, Logs& /*logs*/) { return OkStatus(); }
  // Before a step of Fit, or several that are made at once.
  virtual Status OnTrainBatchBegin(int64_t /*batch*/) { return OkStatus(); }
  // After those steps. The logs are empty where no callback of the loop reads_batch_logs().
  virtual Status OnTrainBatchEnd(int64_t /*batch*/, const Logs& /*logs*/) { return OkStatus(); }
  // Of Evaluate, and of the validation within Fit.
  virtual Status OnTestBegin() { return OkStatus(); }
  // After the last step of an evaluation, with the results of the whole data set.
  virtual Status OnTestEnd(const Logs& /*logs*/) { return OkStatus(); }
  // Before a step of the evaluation; batches count from 0 in each.
  virtual Status OnTestBatchBegin(int64_t /*batch*/) { return OkStatus(); }
  // After a step of the evaluation; the logs are means since it began, or empty as those of Fit.
  virtual Status OnTestBatchEnd(int64_t /*batch*/, const Logs& /*logs*/) { return OkStatus(); }
  // Before the first batch of Predict.
  virtual Status OnPredictBegin() { return OkStatus(); }
  // After the last batch of Predict.
  virtual Status OnPredictEnd() { return OkStatus(); }
  // Before a batch of Predict.
  virtual Status OnPredictBatchBegin(int64_t /*batch*/) { return OkStatus(); }
  // After a batch of Predict, with the values of the model's first output: [batch, ...].
  virtual Status OnPredictBatchEnd(int64_t /*batch*/, const Tensor& /*outputs*/) {
    return OkStatus();
  }

  // Whether the logs of batches are looked at. Where no callback of a loop does, they are empty,
  // and a step computes no results of metrics.
  virtual bool reads_batch_logs() const { return true; }

  // What to give to SetState of a new callback so that it goes on where this one is. One that was
  // given a state does not forget it at the next OnTrainBegin.
  virtual CallbackState State() const { return {}; }
  // InvalidArgument names what is missing or of another type.
  virtual Status SetState(const CallbackState& /*state*/) { return OkStatus(); }

 protected:
  // Model of the loop; null before SetModel.
  Model* model() const { return model_; }
  // What the loop is about to do; defaults before SetParams.
  const LoopParams& params() const { return params_; }

 private:
  Model* model_ = nullptr;
  LoopParams params_;
};

// Which way a logged value improves. kAuto: as the model's metric says; InvalidArgument of Fit if
// it has none of that name.
enum class Direction { kAuto, kDown, kUp };

}  // namespace millrace

#endif  // MILLRACE_CALLBACK_H_
