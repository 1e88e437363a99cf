// SPDX-License-Identifier: Apache-2.0
// One step of a program as its device recorded it.
#ifndef EXECUTOR_CAPTURE_RECORDED_STEP_H_
#define EXECUTOR_CAPTURE_RECORDED_STEP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/capture.h"
#include "executor/capture/capture_plan.h"
#include "executor/compiled_graph.h"
#include "kernels/kernel_context.h"
#include "millrace/tensor.h"

namespace millrace {

// What a recording changes or reads, as it was then.
struct UsedVariable {
  std::string container, name;
  const void* data = nullptr;
  DataType dtype = DataType::kInvalid;
  Shape shape;
  bool is_updated = false;
};

// What was recorded, and all that it reads and writes but variables and constants.
struct RecordedStep {
  // What a send gets.
  struct Sent {
    Tensor value;          // host memory, or constant
    int variable = -1;     // the value of this variable, after the launch
    void* data = nullptr;  // in memory of the recording
    DataType dtype = DataType::kInvalid;
    Shape shape;
  };

  RefPtr<RecordedOperations> operations;
  std::string first_node, last_node;  // that enqueue something
  int64_t block_bytes = 0;
  RefPtr<Buffer> block;
  std::vector<Tensor> inputs;  // by head: where the recording reads it
  std::vector<UsedVariable> variables;
  std::vector<Sent> sends;
  std::map<int32_t, Tensor> copied;  // by receive: of host values that never change
  // What kernels that draw are told before each launch, in device memory, and who knows it.
  Tensor drawn;  // uint64 [draws.size()]
  std::vector<std::function<uint64_t()>> draws;
  std::atomic<int> in_use{0};  // values that were sent and that somebody still has

  // A value in memory of the recording, which lives and is not written until the value is gone.
  static Tensor Lend(const std::shared_ptr<RecordedStep>& self, const Sent& sent);
};

// Runs the kernels that the plan puts between receives and sends, without anything of theirs being
// computed, twice: to see what memory they need when, and to record them at the places that were
// planned. `inputs` are the values of the heads. An error says why it could not be done; nothing
// has changed then. `env` must have an account of the device's work.
StatusOr<std::shared_ptr<RecordedStep>> RecordStep(const CompiledGraph& graph,
                                                   const CapturePlan& plan, StepEnv* env,
                                                   std::span<const Tensor> inputs);

}  // namespace millrace

#endif  // EXECUTOR_CAPTURE_RECORDED_STEP_H_
