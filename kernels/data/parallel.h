// SPDX-License-Identifier: Apache-2.0
// Stages of data sets that work ahead of whoever asks, on threads of their own.
#ifndef KERNELS_DATA_PARALLEL_H_
#define KERNELS_DATA_PARALLEL_H_

#include <cstdint>
#include <vector>

#include "kernels/data/captured_function.h"
#include "kernels/data/dataset.h"

namespace millrace {

// The elements of `input`, of which up to `buffer` are made before they are asked for, from the
// first call of Next on. An iterator that goes, or whose device's work is awaited, cancels what
// its thread does.
RefPtr<DatasetValue> NewPrefetchDataset(DatasetPtr input, int64_t buffer, Device* device);

// `function` of each element, of which up to `parallelism` are under way at a time; in order.
RefPtr<DatasetValue> NewParallelMapDataset(DatasetPtr input, FunctionPtr function,
                                           std::vector<DataType> types, int64_t parallelism);

}  // namespace millrace

#endif  // KERNELS_DATA_PARALLEL_H_
