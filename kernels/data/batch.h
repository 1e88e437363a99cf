// SPDX-License-Identifier: Apache-2.0
// Batches, for stages that end in one.
#ifndef KERNELS_DATA_BATCH_H_
#define KERNELS_DATA_BATCH_H_

#include <cstdint>

#include "kernels/data/dataset.h"

namespace millrace {

// Each `size` > 0 elements of the input stacked; the last ones too, unless `drop_remainder`.
RefPtr<DatasetValue> NewBatchDataset(DatasetPtr input, int64_t size, bool drop_remainder);

}  // namespace millrace

#endif  // KERNELS_DATA_BATCH_H_
