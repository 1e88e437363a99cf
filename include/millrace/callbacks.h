// SPDX-License-Identifier: Apache-2.0
// Callbacks that stop training, change its rate or tell of it. They are called in the thread of
// Fit, Evaluate or Predict, in the order of the list.
#ifndef MILLRACE_CALLBACKS_H_
#define MILLRACE_CALLBACKS_H_

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/callback.h"
#include "millrace/history.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Stops when a value has not improved for `patience` epochs. Without the value in the logs it warns
// and waits.
struct EarlyStoppingOptions {
  std::string monitor = "val_loss";        // value in the epoch's logs that is watched
  double min_delta = 0;                    // least change that counts as an improvement
  int64_t patience = 0;                    // epochs without an improvement before it acts
  Direction direction = Direction::kAuto;  // which way is better; kAuto: the metric's own
  std::optional<double> baseline{};        // patience counts until a value is better than this
  // The model ends with the weights of the best epoch, whether training was stopped or not.
  bool restore_best_weights = false;
  int64_t start_from_epoch = 0;  // epochs before this one, from 0, are not looked at
};
// Callback by EarlyStoppingOptions, as Keras 3's.
class EarlyStopping : public Callback {
 public:
  // Options are kept; nothing is checked before training.
  explicit EarlyStopping(EarlyStoppingOptions options = {}) : options_(std::move(options)) {}
  std::string kind() const override { return "EarlyStopping"; }
  Status OnTrainBegin() override;  // InvalidArgument: no known direction
  Status OnEpochEnd(int64_t epoch, Logs& logs) override;
  Status OnTrainEnd(const Logs& logs) override;
  bool reads_batch_logs() const override { return false; }
  CallbackState State() const override;
  Status SetState(const CallbackState& state) override;

  int64_t wait() const { return wait_; }                       // epochs since the last improvement
  const std::optional<double>& best() const { return best_; }  // empty: none yet
  int64_t best_epoch() const { return best_epoch_; }           // from 0
  int64_t stopped_epoch() const { return stopped_epoch_; }     // 0: it was not stopped

 private:
  const EarlyStoppingOptions options_;
  bool up_ = false, keeps_state_ = false;
  int64_t wait_ = 0, best_epoch_ = 0, stopped_epoch_ = 0;
  std::optional<double> best_;
  std::vector<Tensor> best_weights_;
};

// Multiplies the learning rate when a value has not improved for `patience` epochs. Logs the rate
// that an epoch was trained with as "learning_rate".
struct ReduceLrOnPlateauOptions {
  std::string monitor = "val_loss";        // value in the epoch's logs that is watched
  double factor = 0.1;                     // below 1
  int64_t patience = 10;                   // epochs without an improvement before it acts
  double min_delta = 1e-4;                 // least change that counts as an improvement
  int64_t cooldown = 0;                    // epochs after a reduction that do not count
  double min_learning_rate = 0;            // never reduced below this
  Direction direction = Direction::kAuto;  // which way is better; kAuto: the metric's own
};
// Callback by ReduceLrOnPlateauOptions, as Keras 3's ReduceLROnPlateau.
class ReduceLrOnPlateau : public Callback {
 public:
  // Options are kept; nothing is checked before training.
  explicit ReduceLrOnPlateau(ReduceLrOnPlateauOptions options = {})
      : options_(std::move(options)) {}
  std::string kind() const override { return "ReduceLrOnPlateau"; }
  Status OnTrainBegin() override;  // InvalidArgument: no direction, or a factor of 1 or more
  Status OnEpochEnd(int64_t epoch, Logs& logs) override;
  bool reads_batch_logs() const override { return false; }
  CallbackState State() const override;
  Status SetState(const CallbackState& state) override;

  int64_t wait() const { return wait_; }  // epochs since the last improvement
  int64_t cooldown_counter() const { return cooldown_counter_; }  // epochs of it that are left
  const std::optional<double>& best() const { return best_; }     // empty: none yet

 private:
  const ReduceLrOnPlateauOptions options_;
  bool up_ = false, keeps_state_ = false;
  int64_t wait_ = 0, cooldown_counter_ = 0;
  std::optional<double> best_;
};

// Sets the learning rate before every epoch, from its number and the rate so far; logs it as
// "learning_rate".
class LearningRateScheduler : public Callback {
 public:
  using Schedule = std::function<double(int64_t epoch, double learning_rate)>;  // rate to use

  // Epochs are counted from 0.
  explicit LearningRateScheduler(Schedule schedule) : schedule_(std::move(schedule)) {}
  std::string kind() const override { return "LearningRateScheduler"; }
  Status OnEpochBegin(int64_t epoch) override;
  Status OnEpochEnd(int64_t epoch, Logs& logs) override;
  bool reads_batch_logs() const override { return false; }

 private:
  const Schedule schedule_;
};

// One line per epoch in a file: its number and the logs in the order of their names, "NA" for one
// that is missing; lines end in "\r\n". The columns are those of the first epoch, with "val_" ones
// for all of them if the first epoch was not validated.
struct CsvLoggerOptions {
  std::string separator = ",";  // between two fields
  bool append = false;          // to what the file has; else it is begun anew by every training
};
// Callback by CsvLoggerOptions, as Keras 3's CSVLogger.
class CsvLogger : public Callback {
 public:
  // `path` is the file, opened when training begins.
  explicit CsvLogger(std::string path, CsvLoggerOptions options = {});
  ~CsvLogger() override;
  std::string kind() const override { return "CsvLogger"; }
  Status OnTrainBegin() override;  // Unavailable if the file cannot be opened
  Status OnEpochEnd(int64_t epoch, Logs& logs) override;
  Status OnTrainEnd(const Logs& logs) override;
  bool reads_batch_logs() const override { return false; }
  // With one, training goes on with the file as it was then: lines behind are taken away.
  CallbackState State() const override;
  Status SetState(const CallbackState& state) override;

 private:
  const std::string path_;
  const CsvLoggerOptions options_;
  std::vector<std::string> columns_;
  bool writes_header_ = true, keeps_state_ = false;
  int64_t bytes_ = 0;  // of the file
  std::unique_ptr<std::ofstream> file_;
};

// Stops when the loss after a batch is NaN or infinite.
struct TerminateOnNanOptions {
  bool return_error = false;  // Fit ends with InvalidArgument instead of a line on the console
};
// Callback by TerminateOnNanOptions, as Keras 3's TerminateOnNaN.
class TerminateOnNan : public Callback {
 public:
  // Options are kept.
  explicit TerminateOnNan(TerminateOnNanOptions options = {}) : options_(options) {}
  std::string kind() const override { return "TerminateOnNan"; }
  Status OnTrainBatchEnd(int64_t batch, const Logs& logs) override;  // looks at "loss"

 private:
  const TerminateOnNanOptions options_;
};

// The lines on the console. Fit, Evaluate and Predict add one of their own unless the list has one.
struct ProgressBarOptions {
  Verbose verbose = Verbose::kAuto;  // kAuto: a bar on a terminal, else lines
  std::ostream* out = nullptr;       // null: the standard output
};
// Callback by ProgressBarOptions: a bar or lines with steps, times and logs.
class ProgressBar : public Callback {
 public:
  // Writes to options.out, which must outlive this.
  explicit ProgressBar(ProgressBarOptions options = {});
  ~ProgressBar() override;
  std::string kind() const override { return "ProgressBar"; }
  Status OnTrainBegin() override;  // evaluations within have no line of their own
  Status OnTrainEnd(const Logs& logs) override;
  Status OnEpochBegin(int64_t epoch) override;
  Status OnEpochEnd(int64_t epoch, Logs& logs) override;
  Status OnTrainBatchEnd(int64_t batch, const Logs& logs) override;  // draws the bar
  Status OnTestBegin() override;
  Status OnTestBatchEnd(int64_t batch, const Logs& logs) override;          // draws the bar
  Status OnTestEnd(const Logs& logs) override;                              // not within Fit
  Status OnPredictBegin() override;                                         // begins to count steps
  Status OnPredictBatchEnd(int64_t batch, const Tensor& outputs) override;  // draws the bar
  Status OnPredictEnd() override;                                           // the last line
  bool reads_batch_logs() const override;

 private:
  struct Bar;
  const std::unique_ptr<Bar> bar_;
};

// Functions as hooks.
struct LambdaCallbackOptions {
  std::function<Status()> on_train_begin{};               // once per Fit, before the first epoch
  std::function<Status(const Logs&)> on_train_end{};      // with the logs of the last epoch
  std::function<Status(int64_t epoch)> on_epoch_begin{};  // epochs from 0
  std::function<Status(int64_t epoch, Logs&)> on_epoch_end{};   // may add to the logs
  std::function<Status(int64_t batch)> on_train_batch_begin{};  // batches of the epoch, from 0
  std::function<Status(int64_t batch, const Logs&)> on_train_batch_end{};  // the epoch so far
};
// Callback by LambdaCallbackOptions; a function that is empty is not called.
class LambdaCallback : public Callback {
 public:
  // Functions that are called in place of the callback's own.
  explicit LambdaCallback(LambdaCallbackOptions hooks) : hooks_(std::move(hooks)) {}
  std::string kind() const override { return "LambdaCallback"; }
  Status OnTrainBegin() override;  // LambdaCallbackOptions::on_train_begin
  Status OnTrainEnd(const Logs& logs) override;
  Status OnEpochBegin(int64_t epoch) override;
  Status OnEpochEnd(int64_t epoch, Logs& logs) override;
  Status OnTrainBatchBegin(int64_t batch) override;                  // on_train_batch_begin
  Status OnTrainBatchEnd(int64_t batch, const Logs& logs) override;  // on_train_batch_end
  bool reads_batch_logs() const override { return hooks_.on_train_batch_end != nullptr; }

 private:
  const LambdaCallbackOptions hooks_;
};

}  // namespace millrace

#endif  // MILLRACE_CALLBACKS_H_
