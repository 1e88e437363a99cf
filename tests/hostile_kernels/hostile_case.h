// SPDX-License-Identifier: Apache-2.0
// One call of one kernel with what nobody in their right mind would give it.
#ifndef TESTS_HOSTILE_KERNELS_HOSTILE_CASE_H_
#define TESTS_HOSTILE_KERNELS_HOSTILE_CASE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/device.h"
#include "kernels/kernel_registry.h"
#include "millrace/tensor.h"
#include "ops/attr_map.h"
#include "ops/op_registry.h"

namespace millrace::testing {

// What all cases of a process share.
struct HostileWorld {
  const OpRegistry* ops = nullptr;
  const KernelRegistry* kernels = nullptr;
  Device* device = nullptr;
  Allocator* memory = nullptr;  // of operands and results
};

// A node and its operands; all of it follows from the seed.
struct HostileCase {
  const OpInfo* op = nullptr;
  AttrMap attrs;
  std::vector<DataType> input_types, output_types;
  std::vector<Tensor> inputs;
  std::string text;  // for people
};

// Why cases of the op are not made: it needs a whole engine around it, or it writes files. Null if
// they are.
const char* WhyNotTried(const OpInfo& op);

// False if these random attributes are none that a graph with the op may have.
bool MakeHostileCase(const HostileWorld& world, const OpInfo& op, uint64_t seed,
                     HostileCase* hostile);

// Infers shapes, makes the kernel and runs it. The error it ends in, which is no fault; a fault is
// given to `fault`: a result that is not what its shape says, a kernel that does not end.
Status RunHostileCase(const HostileWorld& world, const HostileCase& hostile,
                      const std::function<void(const std::string&)>& fault);

}  // namespace millrace::testing

#endif  // TESTS_HOSTILE_KERNELS_HOSTILE_CASE_H_
