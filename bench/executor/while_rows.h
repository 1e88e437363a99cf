// SPDX-License-Identifier: Apache-2.0
// A while loop of five scalar operations, in the three forms in which programs have them.
#ifndef BENCH_EXECUTOR_WHILE_ROWS_H_
#define BENCH_EXECUTOR_WHILE_ROWS_H_

#include "bench/executor/row.h"

namespace millrace {

enum class LoopForm {
  kNodes,       // Enter, Merge, Switch...: as TensorFlow 1 writes it
  kLowered,     // a StatelessWhile of two functions that asks to be made such nodes
  kFunctional,  // one that does not
};

// 100,000 iterations, in nanoseconds of an operation of the body. With `threads` of a pool, 0 for
// as many as the machine has cores, or in the caller's alone (-1).
Row WhileRow(LoopForm form, int threads);

}  // namespace millrace

#endif  // BENCH_EXECUTOR_WHILE_ROWS_H_
