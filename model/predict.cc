// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/preemption.h"
#include "model/loops.h"

namespace millrace {
namespace model {
namespace {

// One tensor of all rows of several, in order.
StatusOr<Tensor> Concatenate(const std::vector<Tensor>& parts) {
  if (parts.size() == 1) return parts[0];
  Shape shape = parts[0].shape();
  int64_t rows = 0;
  for (const Tensor& part : parts) {
    if (part.rank() != shape.rank() || part.rank() == 0 || part.dtype() != parts[0].dtype()) {
      return errors::InvalidArgument("predictions of one batch are of shape ", shape.DebugString(),
                                     " and of another ", part.shape().DebugString());
    }
    rows += part.dim(0);
  }
  shape.SetDim(0, rows);
  MR_ASSIGN_OR_RETURN(Tensor all, Tensor::Allocate(parts[0].dtype(), shape));
  int64_t next = 0;
  for (const Tensor& part : parts) {
    if (part.num_elements() * rows != all.num_elements() * part.dim(0)) {
      return errors::InvalidArgument(
          "predictions of batches differ in shape beyond the first axis: ",
          parts[0].shape().DebugString(), " and ", part.shape().DebugString(),
          "; ask for batches that all have it, or for one with PredictOnBatch");
    }
    if (part.dtype() == kString) {
      std::copy_n(part.data<std::string>(), part.num_elements(), all.data<std::string>() + next);
    } else if (part.num_elements() > 0) {
      std::memcpy(static_cast<char*>(all.raw_data()) +
                      static_cast<std::size_t>(next) * DataTypeSize(part.dtype()),
                  part.raw_data(), part.num_bytes());
    }
    next += part.num_elements();
  }
  return all;
}

}  // namespace

StatusOr<std::vector<Tensor>> PredictLoop(Model* model, Steps* steps, const PredictOptions& options,
                                          std::unique_ptr<Source> source) {
  const LoopUnderWay loop(steps);
  MR_RETURN_IF_ERROR(loop.status());
  MR_ASSIGN_OR_RETURN(const int64_t count, CountBatches(*source, options.steps, "steps"));
  CallbackList callbacks(model, options.callbacks,
                         {.verbose = options.verbose, .epochs = 1, .steps = count});
  MR_RETURN_IF_ERROR(callbacks.Start());
  MR_RETURN_IF_ERROR(source->Restart());
  MR_RETURN_IF_ERROR(
      callbacks.Call([](Callback& c) { return c.OnPredictBegin(); }, "at the begin of predicting"));
  std::vector<std::vector<Tensor>> parts(steps->output_names().size());  // of each output
  for (int64_t i = 0; (!options.steps || i < *options.steps) && !source->at_end(); ++i) {
    if (const Status notice = CheckPreemption(); i > 0 && !notice.ok()) {
      return Annotate(notice, StrCat("; prediction ended after ", i, " batches"));
    }
    MR_RETURN_IF_ERROR(callbacks.Call([&](Callback& c) { return c.OnPredictBatchBegin(i); },
                                      "at the begin of batch ", i));
    StatusOr<std::vector<Tensor>> outputs = source->Predict();
    if (source->IsEnd(outputs.status())) break;
    MR_RETURN_IF_ERROR(outputs.status());
    MR_RETURN_IF_ERROR(
        callbacks.Call([&](Callback& c) { return c.OnPredictBatchEnd(i, outputs->front()); },
                       "at the end of batch ", i));
    for (std::size_t k = 0; k < parts.size(); ++k) parts[k].push_back((*outputs)[k]);
  }
  MR_RETURN_IF_ERROR(
      callbacks.Call([](Callback& c) { return c.OnPredictEnd(); }, "at the end of predicting"));
  if (parts[0].empty()) return errors::InvalidArgument("there are no batches to predict of");
  std::vector<Tensor> predicted;
  for (const std::vector<Tensor>& of_output : parts) {
    MR_ASSIGN_OR_RETURN(predicted.emplace_back(), Concatenate(of_output));
  }
  return predicted;
}

namespace {

// InvalidArgument if there are several.
Status CheckOneOutput(const Steps& steps, const char* call) {
  if (steps.output_names().size() == 1) return OkStatus();
  return errors::InvalidArgument(call, " is for a model with one output; this one has ",
                                 StrJoin(steps.output_names(), ", "), ": call PredictOutputs");
}

}  // namespace

}  // namespace model

StatusOr<Tensor> Model::Predict(const Samples& x, const PredictOptions& options) {
  MR_RETURN_IF_ERROR(model::CheckOneOutput(impl_->steps, "Predict"));
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, PredictOutputs(x, options));
  return std::move(outputs[0]);
}

StatusOr<Tensor> Model::Predict(const Dataset& batches, const PredictOptions& options) {
  MR_RETURN_IF_ERROR(model::CheckOneOutput(impl_->steps, "Predict"));
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, PredictOutputs(batches, options));
  return std::move(outputs[0]);
}

StatusOr<std::vector<Tensor>> Model::PredictOutputs(const Samples& x,
                                                    const PredictOptions& options) {
  model::Steps& steps = impl_->steps;
  MR_RETURN_IF_ERROR(model::CheckOptions(options));
  MR_RETURN_IF_ERROR(model::CheckSamples(x, {}, Tensor()));
  MR_ASSIGN_OR_RETURN(
      auto source,
      model::MakeSource(&steps, model::Kind::kPredict,
                        std::make_unique<model::Batches>(
                            model::Batch{{x.tensors().begin(), x.tensors().end()}, {}, Tensor()},
                            options.batch_size)));
  return model::PredictLoop(this, &steps, options, std::move(source));
}

StatusOr<std::vector<Tensor>> Model::PredictOutputs(const Dataset& batches,
                                                    const PredictOptions& options) {
  model::Steps& steps = impl_->steps;
  MR_RETURN_IF_ERROR(model::CheckOptions(options));
  MR_ASSIGN_OR_RETURN(auto source, model::MakeSource(&steps, model::Kind::kPredict, batches));
  return model::PredictLoop(this, &steps, options, std::move(source));
}

StatusOr<Tensor> Model::PredictOnBatch(const Samples& x) {
  model::Steps& steps = impl_->steps;
  MR_RETURN_IF_ERROR(model::CheckOneOutput(steps, "PredictOnBatch"));
  MR_RETURN_IF_ERROR(model::CheckSamples(x, {}, Tensor()));
  const model::Batch batch{{x.tensors().begin(), x.tensors().end()}, {}, Tensor()};
  MR_ASSIGN_OR_RETURN(model::Steps::Function * function,
                      steps.FunctionFor(model::Kind::kPredict, batch));
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, steps.Predict(function, batch.x));
  return std::move(outputs[0]);
}

}  // namespace millrace
