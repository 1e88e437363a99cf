// SPDX-License-Identifier: Apache-2.0
// How fast this machine multiplies and adds, for benches that are bound by it.
#ifndef BENCH_EXECUTOR_ARITHMETIC_PEAK_H_
#define BENCH_EXECUTOR_ARITHMETIC_PEAK_H_

namespace millrace {

// Operations on floats per second (a product that is added counts two) of so many threads that
// run for `seconds` in registers alone, with the widest vectors of the processor.
double MeasureArithmeticPeak(int threads, double seconds);

}  // namespace millrace

#endif  // BENCH_EXECUTOR_ARITHMETIC_PEAK_H_
