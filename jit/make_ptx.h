// SPDX-License-Identifier: Apache-2.0
// The code of a grid as text for NVIDIA's assembler or driver.
#ifndef JIT_MAKE_PTX_H_
#define JIT_MAKE_PTX_H_

#include <string>

#include "jit/component_api.h"

namespace millrace::jit {

// False with the reason in `error`. Results are the same bits as those of EmitGrid's code on a CPU:
// each operation is one of PTX that rounds to nearest (add.rn, mul.rn, div.rn, sqrt.rn), denormals
// are kept, and nothing is approximated, or joined but for what emit_double_math.h joins (fma.rn).
// Thread-safe.
bool MakePtx(const MrJitProgram& program, const std::string& arch, std::string* ptx,
             std::string* error);

}  // namespace millrace::jit

#endif  // JIT_MAKE_PTX_H_
