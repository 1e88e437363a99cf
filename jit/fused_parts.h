// SPDX-License-Identifier: Apache-2.0
// The nodes that a fused node was made of, computed one after the other as if nothing had been
// fused: where there is no common loop, and where something is wrong, which they know how to say.
#ifndef JIT_FUSED_PARTS_H_
#define JIT_FUSED_PARTS_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/mutex.h"
#include "kernels/kernel_context.h"
#include "ops/fused_program.h"

namespace millrace {

// Thread-safe.
class FusedParts {
 public:
  // Makes the kernel of one part, which gets the name `node`.
  using Maker = absl::FunctionRef<StatusOr<std::unique_ptr<Kernel>>(const FusedInstruction& part,
                                                                    const std::string& node)>;

  // `nodes` are the parts' names as the graph had them, in the order of the instructions; parts
  // beyond them have the name of the fused node. `program` must outlive this.
  FusedParts(const FusedProgram* program, std::vector<std::string> nodes)
      : program_(program), nodes_(std::move(nodes)) {}

  // Sets all outputs of `ctx`, the context of the fused node `name`. Kernels are made by `make`
  // when they are first needed. Errors are theirs, with the name of the part.
  Status Compute(KernelContext& ctx, const std::string& name, Maker make);

 private:
  Status MakeKernels(const std::string& name, Maker make);

  const FusedProgram* const program_;
  const std::vector<std::string> nodes_;
  Mutex mu_;
  // Written under mu_ before made_ is set, constant from then on.
  std::atomic<bool> made_{false};
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<int> last_use_;  // the last part that reads a part's result; -1: an output
};

}  // namespace millrace

#endif  // JIT_FUSED_PARTS_H_
