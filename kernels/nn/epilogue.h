// SPDX-License-Identifier: Apache-2.0
// What a kernel does to a product while it lies in the cache: a bias per column, an activation.
#ifndef KERNELS_NN_EPILOGUE_H_
#define KERNELS_NN_EPILOGUE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/elementwise.h"
#include "kernels/kernel.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// The loop of the op "Relu", "Relu6", "Elu", "Tanh" or "Sigmoid" for float, double, half or
// bfloat16; null for all others.
UnaryLoopFn ActivationLoop(std::string_view op, DataType type);

// Of a kernel with an attribute `activation` ("": none) and a bias as its third input. The same
// bits as BiasAdd and the activation's kernel would make. Thread-safe.
class Epilogue {
 public:
  explicit Epilogue(KernelConstruction& c);

  // InvalidArgument, with the name of the node that the bias had, unless it is one per column.
  Status Check(const Tensor& bias, int64_t columns) const;
  // The kernel's error as the product's: its node was another one.
  Status OfProduct(Status status) const;

  // `rows` of `columns` elements each, `stride` elements apart, in place; `bias` is that of the
  // first column.
  void Apply(void* data, int64_t rows, int64_t columns, int64_t stride, const void* bias) const;

 private:
  using BiasLoopFn = void (*)(void* row, const void* bias, int64_t columns);

  const DataType type_;
  const std::vector<std::string> nodes_;  // product, bias, activation
  const std::string name_;
  BiasLoopFn add_bias_ = nullptr;
  UnaryLoopFn activate_ = nullptr;
};

}  // namespace millrace

#endif  // KERNELS_NN_EPILOGUE_H_
