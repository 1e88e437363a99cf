// SPDX-License-Identifier: Apache-2.0
// Fused programs as grids of threads that run on the host, one thread after the other, by the code
// that PTX is made of.
#ifndef JIT_HOST_GRID_H_
#define JIT_HOST_GRID_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "jit/component_api.h"
#include "jit/fused_layout.h"
#include "millrace/tensor.h"
#include "ops/fused_program.h"

namespace millrace::jit {

class HostGrid {
 public:
  // `types` are the inputs'. The program and its layout outlive the grid.
  HostGrid(const FusedProgram& program, const std::vector<DataType>& types,
           const FusedLayout& layout, int32_t reduction = kMrJitNoReduction);
  // "" if there is code.
  const std::string& error() const { return error_; }

  // The outputs, computed by the last thread first. Addresses are moved by `shift` elements from
  // where memory is aligned; `in_place`: outputs take the memory of inputs, where they may.
  std::vector<Tensor> Run(const std::vector<Tensor>& inputs, int64_t threads, int shift,
                          bool in_place);
  // The one output of a program that reduces rows.
  Tensor Reduce(const std::vector<Tensor>& inputs, int64_t threads, const FusedRows& rows);

 private:
  static char* Place(std::size_t bytes, std::size_t size, int shift,
                     std::vector<std::vector<char>>* memory);

  const FusedProgram& program_;
  const FusedLayout& layout_;
  MrJitGridFunction function_ = nullptr;
  std::string error_;
};

}  // namespace millrace::jit

#endif  // JIT_HOST_GRID_H_
