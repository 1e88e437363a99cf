// SPDX-License-Identifier: Apache-2.0
// A callback that shows a training in TensorBoard (docs/tensorboard.md), with the files and tags
// that Keras' callback of this name has.
#ifndef MILLRACE_TENSORBOARD_H_
#define MILLRACE_TENSORBOARD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/callbacks.h"
#include "millrace/status.h"
#include "millrace/summary.h"

namespace millrace {

// Where events of a training go and which there are.
struct TensorBoardOptions {
  std::string log_dir = "logs";  // tensorboard --logdir
  // Batches between two that are logged; 0: epochs only. Batches count over all epochs.
  int64_t update_freq = 0;
  // Epochs between two histograms of every weight; 0: none.
  int64_t histogram_freq = 0;
  bool write_images = false;            // and, with the histograms, weights as grey images
  bool write_graph = true;              // the layers
  bool write_steps_per_second = false;  // of epochs, and of batches if those are logged
  // What the table of trials tells runs apart by.
  std::vector<std::pair<std::string, HParamValue>> hparams{};
};

// Writes events to <log_dir>/train and <log_dir>/validation:
//
//   tag                                where       step
//   epoch_<name>                       both        number of the epoch
//   epoch_learning_rate                train       number of the epoch
//   epoch_steps_per_second             train       number of the epoch
//   batch_<name>                       train       steps so far
//   batch_steps_per_second             train       steps so far
//   evaluation_<name>_vs_iterations    validation  steps so far
//   <weight>/histogram                 train       number of the epoch
//   <weight>/image                     train       number of the epoch
//   keras                              train       none: the layers
//
// and hyperparameters, with how the training ended, to <log_dir>. Every training begins files of
// its own; steps go on over trainings.
//
// OnTrainBegin returns the error of the file system, and InvalidArgument for options that cannot
// be. Later errors end the writing and not the training: they are in the log, once. Weights with
// NaN or infinities have no histogram, which the log says as well.
class TensorBoard : public Callback {
 public:
  // Opens no file; options that cannot be are the error of OnTrainBegin.
  explicit TensorBoard(TensorBoardOptions options = {});
  ~TensorBoard() override;
  std::string kind() const override { return "TensorBoard"; }
  // Opens the files of this training. The errors are above.
  Status OnTrainBegin() override;
  Status OnTrainEnd(const Logs& logs) override;
  Status OnEpochBegin(int64_t epoch) override;
  Status OnEpochEnd(int64_t epoch, Logs& logs) override;
  // Counts the step, and writes batch_<name> every update_freq steps. OK in any case.
  Status OnTrainBatchEnd(int64_t batch, const Logs& logs) override;
  // Writes evaluation_<name>_vs_iterations at the number of steps so far.
  Status OnTestEnd(const Logs& logs) override;
  bool reads_batch_logs() const override;
  // The number of steps so far.
  CallbackState State() const override;
  Status SetState(const CallbackState& state) override;

 private:
  struct Board;
  const std::unique_ptr<Board> board_;
};

}  // namespace millrace

#endif  // MILLRACE_TENSORBOARD_H_
