// SPDX-License-Identifier: Apache-2.0
// A function that runs in several tasks: placed, and cut by task, for arguments that lie where they
// lie.
#ifndef EAGER_FUNCTION_PLAN_H_
#define EAGER_FUNCTION_PLAN_H_

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/string_map.h"
#include "eager/program.h"
#include "graph/function_library.h"
#include "millrace/attr_value.h"
#include "millrace/status.h"
#include "proto/eager.pb.h"

namespace millrace {

// The devices of all tasks of a context, this one's included.
struct ContextDevices {
  std::vector<std::pair<std::string, std::string>> devices;  // name, type
  StringMap<uint64_t> incarnations;                          // by name
};

// What another task runs of a function, as a function of its own.
struct RemotePart {
  std::string task;
  std::string device;              // one that it uses
  std::string name;                // of the function there
  std::vector<int> args, results;  // of the whole function, in the order of the part's own
  pb::RegisterFunctionOp registration;
  std::atomic<bool> is_registered{false};
};

// Constant but for is_registered. Thread-safe.
struct FunctionPlan {
  std::shared_ptr<const EagerProgram> own;  // null if nothing runs here
  std::vector<int> own_args, own_results;
  std::vector<std::unique_ptr<RemotePart>> remote;
  std::vector<std::string> result_devices;  // by result; "" for those of this task
};

struct PlanInput {
  std::shared_ptr<const FunctionLibrary> library;
  FunctionName function;
  std::string device;                    // where the call is
  std::vector<std::string> arg_devices;  // where the inputs of the call lie
  // How many inputs each argument has: more than one for a packed one, of which every node takes
  // the input that lies on its own device. Empty: all have one.
  std::vector<int> arg_widths;
  const ContextDevices* cluster = nullptr;
  // Names of the parts at other tasks begin with it, and are not given twice.
  std::string part_prefix;
};

// "" for what is no name of a device.
std::string TaskOfDevice(const std::string& device);

// What InstantiateFunction, the placer and the partitioner say is wrong, and InvalidArgument for a
// wrong number of arguments.
StatusOr<std::shared_ptr<const FunctionPlan>> PlanFunction(const ProgramEnv& env,
                                                           const PlanInput& input);
// A part of a function that another task has placed and cut: all of it runs in this one, what asks
// for no device on that of the call.
StatusOr<std::shared_ptr<const FunctionPlan>> PlanComponent(const ProgramEnv& env,
                                                            const PlanInput& input);

}  // namespace millrace

#endif  // EAGER_FUNCTION_PLAN_H_
