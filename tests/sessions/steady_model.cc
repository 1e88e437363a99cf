// SPDX-License-Identifier: Apache-2.0
#include "tests/sessions/steady_model.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "millrace/ops.h"

namespace millrace::testing {
namespace {

Variable Weights(const Scope& s, const std::string& name, const Shape& shape) {
  int64_t inputs = 1;  // of a unit
  for (int i = 0; i + 1 < shape.rank(); ++i) inputs *= shape.dim(i);
  const float deviation = std::sqrt(2.0f / static_cast<float>(inputs));
  return MakeVariable(s, name, TruncatedNormal(s, shape, {.stddev = deviation}),
                      {.use_resource = true});
}

Output Dense(const Scope& s, const std::string& name, const Output& x, int64_t in, int64_t out) {
  return ops::BiasAdd(s, ops::MatMul(s, x, Weights(s, name + "_w", {in, out}).read),
                      Weights(s, name + "_b", {out}).read);
}

Output Convolve(const Scope& s, const std::string& name, const Output& x, int64_t in, int64_t out) {
  const Output y = ops::BiasAdd(
      s, ops::Conv2D(s, x, Weights(s, name + "_w", {5, 5, in, out}).read, {1, 1, 1, 1}, "SAME"),
      Weights(s, name + "_b", {out}).read);
  return ops::MaxPool(s, ops::Relu(s, y), {1, 2, 2, 1}, {1, 2, 2, 1}, "SAME");
}

Output Perceptron(const Scope& s, const Output& x, const ModelSize& size) {
  const Output a = ops::Relu(s, Dense(s, "a", x, 784, size.first));
  const Output b = ops::Relu(s, Dense(s, "b", a, size.first, size.second));
  return Dense(s, "c", b, size.second, 10);
}

Output Convolutional(const Scope& s, const Output& x, const ModelSize& size) {
  const Output image = ops::Reshape(s, x, {-1, 28, 28, 1});
  const Output y =
      Convolve(s, "b", Convolve(s, "a", image, 1, size.first), size.first, size.second);
  const int64_t pixels = 7 * 7 * size.second;
  const Output flat = ops::Reshape(s, y, {-1, static_cast<int>(pixels)});
  return Dense(s, "d", ops::Relu(s, Dense(s, "c", flat, pixels, size.dense)), size.dense, 10);
}

int64_t MinorFaults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

}  // namespace

StatusOr<std::unique_ptr<SteadyModel>> SteadyModel::Make(const ModelSize& size,
                                                         const SessionOptions& options) {
  std::unique_ptr<SteadyModel> model(new SteadyModel);
  const Scope s = model->graph_.root();
  const Output x = Placeholder(s.WithOpName("x"), kFloat, {size.batch, 784});
  const Output y = Placeholder(s.WithOpName("y"), kFloat, {size.batch, 10});
  const Output logits = size.convolutional ? Convolutional(s, x, size) : Perceptron(s, x, size);
  const Output loss = ReduceMean(s, SoftmaxCrossEntropy(s, logits, y));
  MR_ASSIGN_OR_RETURN(const Operation train,
                      GradientDescent({.learning_rate = 0.01f})->Minimize(s, loss, nullptr));
  const Operation init = InitializeVariables(s);
  MR_RETURN_IF_ERROR(model->graph_.status());
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(model->graph_, options));
  model->session_ = std::make_unique<Session>(std::move(session));
  MR_RETURN_IF_ERROR(model->session_->RunTargets({init}));
  const Output feeds[] = {x, y}, fetches[] = {loss};
  MR_ASSIGN_OR_RETURN(Callable step,
                      model->session_->MakeCallable(feeds, fetches, std::span(&train, 1)));
  model->step_ = std::make_unique<Callable>(std::move(step));
  Tensor images(kFloat, {size.batch, 784}), labels(kFloat, {size.batch, 10});
  for (int64_t i = 0; i < images.num_elements(); ++i) {
    images.data<float>()[i] = static_cast<float>(i * 7919 % 1000) / 1000;
  }
  for (int64_t i = 0; i < labels.num_elements(); ++i) {
    labels.data<float>()[i] = i % 10 == (i / 10) % 10 ? 1 : 0;
  }
  model->values_ = {images, labels};
  return model;
}

Status SteadyModel::Run(int steps) {
  Status status;
  for (int i = 0; i < steps && status.ok(); ++i) status = step_->Run(values_, &results_);
  return status;
}

StatusOr<MallocCount> SteadyModel::CountMallocs(int steps) {
  BeginMallocCount();
  const Status status = Run(steps);
  const MallocCount count = EndMallocCount();
  MR_RETURN_IF_ERROR(status);
  return count;
}

StatusOr<int64_t> SteadyModel::CountFaults(int steps, int rounds) {
  int64_t least = INT64_MAX;
  for (int round = 0; round < rounds && least > 0; ++round) {
    const int64_t before = MinorFaults();
    MR_RETURN_IF_ERROR(Run(steps));
    least = std::min(least, MinorFaults() - before);
  }
  return least;
}

}  // namespace millrace::testing
