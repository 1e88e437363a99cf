// SPDX-License-Identifier: Apache-2.0
#include "millrace/tensorboard.h"

#include <chrono>
#include <cmath>
#include <optional>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "millrace/model.h"
#include "model/callbacks/weight_images.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kValidation = "val_";
constexpr char kStep[] = "step";

std::string JsonText(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

// As Keras describes models: what lies within a layer is told of containers only.
std::string DescriptionOf(Layer& layer, bool is_root) {
  std::vector<Layer*> inner = layer.layers();
  const bool is_container = is_root || layer.kind() == "Sequential";
  if (is_root && inner.empty()) inner = {&layer};
  std::string config = StrCat("\"name\": ", JsonText(layer.name()));
  if (is_container) {
    config += ", \"layers\": [";
    for (std::size_t i = 0; i < inner.size(); ++i) {
      StrAppend(&config, i > 0 ? ", " : "", DescriptionOf(*inner[i], false));
    }
    config += "]";
  }
  return StrCat("{\"class_name\": ", JsonText(is_container ? "Sequential" : layer.kind()),
                ", \"config\": {", config, "}}");
}

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double PerSecond(int64_t steps, double seconds) {
  return seconds > 0 ? static_cast<double>(steps) / seconds : 0;
}

}  // namespace

struct TensorBoard::Board {
  explicit Board(TensorBoardOptions o) : options(std::move(o)) {}

  Status Check() const;
  Status Begin(Model& model);
  // Of a directory within log_dir, made when it is first asked for.
  StatusOr<EventWriter*> Writer(const std::string& name);
  Status WriteEpoch(Model& model, int64_t epoch, const Logs& logs);
  Status WriteWeights(Model& model, int64_t epoch);
  Status WriteBatch(int64_t steps, const Logs& logs);
  Status WriteEvaluation(const Logs& logs);
  Status End(bool success);
  // What goes wrong with the files while a model is trained does not end the training.
  Status Survive(const Status& status);

  const TensorBoardOptions options;
  std::vector<std::pair<std::string, std::unique_ptr<EventWriter>>> writers;
  bool training = false;  // between begin and end
  bool failed = false;    // and said so
  bool warned_of_weights = false;
  int64_t step = 0;  // steps so far
  int64_t epoch_begin_step = 0;
  Clock::time_point epoch_begin, last_batch_end;
};

Status TensorBoard::Board::Check() const {
  if (options.log_dir.empty()) {
    return errors::InvalidArgument("TensorBoardOptions.log_dir is empty: name a directory");
  }
  if (options.update_freq < 0 || options.histogram_freq < 0) {
    return errors::InvalidArgument("update_freq and histogram_freq must not be negative; they are ",
                                   options.update_freq, " and ", options.histogram_freq);
  }
  return OkStatus();
}

StatusOr<EventWriter*> TensorBoard::Board::Writer(const std::string& name) {
  for (const auto& [known, writer] : writers) {
    if (known == name) return writer.get();
  }
  MR_RETURN_IF_ERROR(Check());
  const std::string directory = name.empty() ? options.log_dir : StrCat(options.log_dir, "/", name);
  MR_ASSIGN_OR_RETURN(std::unique_ptr<EventWriter> writer, EventWriter::Create(directory));
  return writers.emplace_back(name, std::move(writer)).second.get();
}

Status TensorBoard::Board::Begin(Model& model) {
  // One that another callback's error ended.
  if (training && !failed) Survive(End(false)).IgnoreError();
  writers.clear();
  training = failed = warned_of_weights = false;
  MR_ASSIGN_OR_RETURN(EventWriter* const train, Writer("train"));
  if (options.write_graph && model.root() != nullptr) {
    MR_RETURN_IF_ERROR(train->WriteKerasModel(DescriptionOf(*model.root(), true)));
  }
  if (!options.hparams.empty()) {
    MR_ASSIGN_OR_RETURN(EventWriter* const trial, Writer(""));
    MR_RETURN_IF_ERROR(trial->WriteHParams(options.hparams));
  }
  training = true;
  return OkStatus();
}

Status TensorBoard::Board::WriteEpoch(Model& model, int64_t epoch, const Logs& logs) {
  MR_ASSIGN_OR_RETURN(EventWriter* const train, Writer("train"));
  Logs trained;
  for (const auto& [name, value] : logs) {
    if (!name.starts_with(kValidation)) {
      trained.Set(name, value);
      continue;
    }
    MR_ASSIGN_OR_RETURN(EventWriter* const validation, Writer("validation"));
    MR_RETURN_IF_ERROR(
        validation->WriteScalar(StrCat("epoch_", name.substr(kValidation.size())), value, epoch));
  }
  if (const StatusOr<double> rate = model.GetLearningRate(); rate.ok()) {
    trained.Set("learning_rate", *rate);
  }
  if (options.write_steps_per_second) {
    const std::chrono::duration<double> seconds = last_batch_end - epoch_begin;
    trained.Set("steps_per_second", PerSecond(step - epoch_begin_step, seconds.count()));
  }
  for (const auto& [name, value] : trained) {
    MR_RETURN_IF_ERROR(train->WriteScalar(StrCat("epoch_", name), value, epoch));
  }
  if (options.histogram_freq > 0 && epoch % options.histogram_freq == 0) {
    MR_RETURN_IF_ERROR(WriteWeights(model, epoch));
  }
  for (const auto& [name, writer] : writers) MR_RETURN_IF_ERROR(writer->Flush());
  return OkStatus();
}

Status TensorBoard::Board::WriteWeights(Model& model, int64_t epoch) {
  MR_ASSIGN_OR_RETURN(EventWriter* const train, Writer("train"));
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> values, model.GetWeights());
  const std::vector<ShardedVariable> weights = JoinParts(model.weights());
  for (std::size_t i = 0; i < weights.size() && i < values.size(); ++i) {
    const std::string& name = weights[i].name;
    const Status status = train->WriteHistogram(StrCat(name, "/histogram"), values[i], epoch);
    if (errors::IsInvalidArgument(status)) {
      if (!warned_of_weights) MR_LOG(kWarning, "epoch ", epoch, ": ", Message(status));
      warned_of_weights = true;
    } else {
      MR_RETURN_IF_ERROR(status);
    }
    if (!options.write_images) continue;
    const Tensor images = model::ImagesOf(values[i]);
    if (!images.IsInitialized()) continue;
    MR_RETURN_IF_ERROR(train->WriteImages(StrCat(name, "/image"), images, epoch));
  }
  return OkStatus();
}

Status TensorBoard::Board::WriteBatch(int64_t steps, const Logs& logs) {
  const double seconds = SecondsSince(last_batch_end);
  if (options.update_freq == 0 || step % options.update_freq != 0) return OkStatus();
  MR_ASSIGN_OR_RETURN(EventWriter* const train, Writer("train"));
  if (options.write_steps_per_second) {
    MR_RETURN_IF_ERROR(
        train->WriteScalar("batch_steps_per_second", PerSecond(steps, seconds), step));
  }
  for (const auto& [name, value] : logs) {
    MR_RETURN_IF_ERROR(train->WriteScalar(StrCat("batch_", name), value, step));
  }
  return OkStatus();
}

Status TensorBoard::Board::WriteEvaluation(const Logs& logs) {
  MR_ASSIGN_OR_RETURN(EventWriter* const validation, Writer("validation"));
  for (const auto& [name, value] : logs) {
    MR_RETURN_IF_ERROR(
        validation->WriteScalar(StrCat("evaluation_", name, "_vs_iterations"), value, step));
  }
  return validation->Flush();
}

Status TensorBoard::Board::End(bool success) {
  training = false;
  if (!options.hparams.empty()) {
    MR_ASSIGN_OR_RETURN(EventWriter* const trial, Writer(""));
    MR_RETURN_IF_ERROR(trial->WriteHParamsEnd(success));
  }
  for (const auto& [name, writer] : writers) MR_RETURN_IF_ERROR(writer->Close());
  writers.clear();
  return OkStatus();
}

Status TensorBoard::Board::Survive(const Status& status) {
  if (!status.ok() && !failed) {
    MR_LOG(kWarning, "TensorBoard shows nothing of this training from here on: ", Message(status));
    failed = true;
  }
  return OkStatus();
}

TensorBoard::TensorBoard(TensorBoardOptions options)
    : board_(std::make_unique<Board>(std::move(options))) {}

TensorBoard::~TensorBoard() {
  if (board_->training && !board_->failed) board_->Survive(board_->End(false)).IgnoreError();
}

Status TensorBoard::OnTrainBegin() { return board_->Begin(*model()); }

Status TensorBoard::OnTrainEnd(const Logs&) {
  return board_->failed ? OkStatus() : board_->Survive(board_->End(true));
}

Status TensorBoard::OnEpochBegin(int64_t) {
  board_->epoch_begin_step = board_->step;
  board_->epoch_begin = board_->last_batch_end = Clock::now();
  return OkStatus();
}

Status TensorBoard::OnEpochEnd(int64_t epoch, Logs& logs) {
  return board_->failed ? OkStatus() : board_->Survive(board_->WriteEpoch(*model(), epoch, logs));
}

Status TensorBoard::OnTrainBatchEnd(int64_t batch, const Logs& logs) {
  const int64_t before = board_->step;
  board_->step = board_->epoch_begin_step + batch + 1;
  if (!board_->failed)
    board_->Survive(board_->WriteBatch(board_->step - before, logs)).IgnoreError();
  board_->last_batch_end = Clock::now();
  return OkStatus();
}

Status TensorBoard::OnTestEnd(const Logs& logs) {
  return board_->failed ? OkStatus() : board_->Survive(board_->WriteEvaluation(logs));
}

bool TensorBoard::reads_batch_logs() const { return board_->options.update_freq > 0; }

CallbackState TensorBoard::State() const {
  return {{kStep, Tensor::Scalar<int64_t>(board_->step)}};
}

Status TensorBoard::SetState(const CallbackState& state) {
  const auto it = state.find(kStep);
  const bool fits = it != state.end() && it->second.dtype() == kInt64 && it->second.rank() == 0;
  if (!fits) {
    return errors::InvalidArgument("the state of a TensorBoard has no '", kStep,
                                   "' that is an int64 scalar");
  }
  board_->step = it->second.scalar<int64_t>();
  return OkStatus();
}

}  // namespace millrace
