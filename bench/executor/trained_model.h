// SPDX-License-Identifier: Apache-2.0
// A model that TensorFlow wrote, in a session of its own: what the training bench times.
#ifndef BENCH_EXECUTOR_TRAINED_MODEL_H_
#define BENCH_EXECUTOR_TRAINED_MODEL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/tensor.h"
#include "proto/graph.pb.h"
#include "session/client_session.h"

namespace millrace {

// Not thread-safe. The caller's thread runs the nodes, and kernels spread over it and
// `threads` - 1 more. Errors end the program.
class TrainedModel {
 public:
  enum class Step {
    kTrain,    // the target "train", nothing fetched
    kForward,  // the fetch "logits"
  };

  // FOLDER/NAME.pb, with feeds x and y (y in training only). The batch is 128 if the name ends
  // so, else 64. Its variables are initialised, and the steps are warm.
  TrainedModel(const std::string& folder, std::string name, int threads, Step step);

  const std::string& name() const { return name_; }
  // Milliseconds of a step, over a block of them that takes about 0.4 s.
  double Measure();
  int steps_per_block() const { return steps_; }

  // What the session runs for a step, and for the target "init", when all rewrites are done.
  // There is one device, so one partition.
  pb::GraphDef StepGraph();
  pb::GraphDef InitGraph();
  // What is fed, by the names of the nodes of that graph which bring it in.
  std::map<std::string, Tensor> FedNodes() const;

 private:
  void RunStep();
  pb::GraphDef GraphOf(ClientSession::RunRequest request);

  const std::string name_;
  const Step step_;
  std::shared_ptr<ClientSession> session_;
  int64_t callable_ = 0;
  std::vector<std::pair<std::string, Tensor>> feeds_;
  std::vector<Tensor> values_, fetched_;
  int steps_ = 1;
};

}  // namespace millrace

#endif  // BENCH_EXECUTOR_TRAINED_MODEL_H_
