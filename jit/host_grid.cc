// SPDX-License-Identifier: Apache-2.0
#include "jit/host_grid.h"

#include <cstring>

#include "jit/ptx_test_util.h"
#include "jit/translated_program.h"

namespace millrace::jit {

HostGrid::HostGrid(const FusedProgram& program, const std::vector<DataType>& types,
                   const FusedLayout& layout, int32_t reduction)
    : program_(program), layout_(layout) {
  const TranslatedProgram translated(program, types, layout.spreads, reduction);
  const char* const error = Compiler()->make_host_grid(&translated.program(), &function_);
  if (error != nullptr) error_ = error;
}

std::vector<Tensor> HostGrid::Run(const std::vector<Tensor>& inputs, int64_t threads, int shift,
                                  bool in_place) {
  std::vector<std::vector<char>> memory;
  std::vector<char*> in, out;
  for (const Tensor& input : inputs) {
    in.push_back(Place(input.num_bytes(), DataTypeSize(input.dtype()), shift, &memory));
    if (input.num_bytes() > 0) std::memcpy(in.back(), input.raw_data(), input.num_bytes());
  }
  std::vector<bool> taken(inputs.size());
  for (std::size_t k = 0; k < program_.outputs.size(); ++k) {
    const DataType type = program_.instructions[program_.outputs[k]].result;
    char* to = nullptr;
    for (std::size_t i = 0; in_place && i < inputs.size() && to == nullptr; ++i) {
      if (taken[i] || layout_.spreads[i] != Spread::kEach) continue;
      if (DataTypeSize(inputs[i].dtype()) != DataTypeSize(type)) continue;
      taken[i] = true;
      to = in[i];
    }
    if (to == nullptr) {
      const std::size_t size = DataTypeSize(type);
      to = Place(static_cast<std::size_t>(layout_.count) * size, size, shift, &memory);
    }
    out.push_back(to);
  }
  const std::vector<const void*> from(in.begin(), in.end());
  const std::vector<void*> to(out.begin(), out.end());
  for (int64_t thread = threads - 1; thread >= 0; --thread) {
    function_(from.data(), to.data(), layout_.count, layout_.period, 0, thread, threads);
  }
  std::vector<Tensor> results;
  for (std::size_t k = 0; k < out.size(); ++k) {
    // Bounded: by the memory of the results that it copies; and only tests run grids on the host.
    Tensor result(program_.instructions[program_.outputs[k]].result, layout_.output_shapes[k]);
    if (result.num_bytes() > 0) std::memcpy(result.raw_data(), out[k], result.num_bytes());
    results.push_back(std::move(result));
  }
  return results;
}

Tensor HostGrid::Reduce(const std::vector<Tensor>& inputs, int64_t threads, const FusedRows& rows) {
  std::vector<const void*> in;
  for (const Tensor& input : inputs) in.push_back(input.raw_data());
  // Bounded: by the rows of the inputs.
  Tensor out(program_.instructions[program_.outputs[0]].result, rows.out);
  void* to = out.raw_data();
  for (int64_t thread = threads - 1; thread >= 0; --thread) {
    function_(in.data(), &to, rows.rows, layout_.period, rows.row, thread, threads);
  }
  return out;
}

char* HostGrid::Place(std::size_t bytes, std::size_t size, int shift,
                      std::vector<std::vector<char>>* memory) {
  std::vector<char>& block = memory->emplace_back(bytes + 64 + 16 * size);
  const auto at = reinterpret_cast<std::uintptr_t>(block.data());
  return block.data() + (64 - at % 64) + static_cast<std::size_t>(shift) * size;
}

}  // namespace millrace::jit
