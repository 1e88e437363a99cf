// SPDX-License-Identifier: Apache-2.0
// The parts of an operation as a client sends it, made into what runs.
#ifndef EAGER_OPERATION_INPUTS_H_
#define EAGER_OPERATION_INPUTS_H_

#include <span>
#include <string>
#include <vector>

#include "eager/context.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "ops/attr_map.h"
#include "proto/eager.pb.h"

namespace millrace {

// The attributes of an op. InvalidArgument names the one that cannot be read.
StatusOr<AttrMap> OperationAttrs(const pb::Operation& operation);
// A function with those of its attributes that say what it is, not how it is called.
StatusOr<FunctionName> OperationFunction(const pb::Operation& operation);
// The devices on which the inputs lie, for a call at `device`; what comes with the operation lies
// there too. A resource is where its handle says, which may be another task, the client's own among
// them.
std::vector<std::string> InputDevices(const EagerContext& context, const pb::Operation& operation,
                                      const std::string& device);
// Input `number` as `task` can take it: by value if only this task has it.
pb::Operation::Input InputForTask(const EagerContext& context, const pb::Operation& operation,
                                  int number, const std::string& task);
// Puts the tensors of packed handles in their place among the inputs. Returns how many inputs each
// one has become; empty, and nothing is changed, if none is packed.
std::vector<int> UnpackInputs(const EagerContext& context, pb::Operation* operation);
// Whether UnpackInputs would change something.
bool HasPackedInputs(const EagerContext& context, const pb::Operation& operation);
// The values of the inputs of these numbers, which lie in this task.
StatusOr<std::vector<Tensor>> TakeInputs(EagerContext* context, const pb::Operation& operation,
                                         std::span<const int> numbers);
StatusOr<std::vector<Tensor>> TakeInputs(EagerContext* context, const pb::Operation& operation);

// Makes `values` tensors of the context: of op `op_id`, with these output numbers. All or none. A
// negative id is that of an op whose outputs nobody will name.
Status StoreOutputs(EagerContext* context, int64_t op_id, std::span<const int> outputs,
                    std::span<const Tensor> values);
// 0 to count - 1.
std::vector<int> FirstNumbers(std::size_t count);

}  // namespace millrace

#endif  // EAGER_OPERATION_INPUTS_H_
