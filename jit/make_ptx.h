// The code of a grid as text for NVIDIA's assembler or driver.
#ifndef JIT_MAKE_PTX_H_
#define JIT_MAKE_PTX_H_

#include <string>

#include "jit/component_api.h"

namespace millrace::jit {

inline constexpr char kNoLibrary[] =
    "exp, log, tanh and sigmoid of doubles are functions of the C library, which a grid has not";

// False with the reason in `error`. Results are the same bits as on a CPU: each operation is one of
// PTX that rounds to nearest (add.rn, mul.rn, div.rn, sqrt.rn), denormals are kept, and nothing is
// joined or approximated. Thread-safe.
bool MakePtx(const MrJitProgram& program, const std::string& arch, std::string* ptx,
             std::string* error);

}  // namespace millrace::jit

#endif  // JIT_MAKE_PTX_H_
