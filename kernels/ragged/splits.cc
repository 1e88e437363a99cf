// SPDX-License-Identifier: Apache-2.0
#include "kernels/ragged/splits.h"

#include <algorithm>

#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"

namespace millrace {

Splits ReadSplits(const Tensor& tensor) {
  Splits splits(static_cast<std::size_t>(tensor.num_elements()));
  DispatchType(IndexTypes(), tensor.dtype(), [&]<typename T>() {
    std::copy_n(tensor.data<T>(), tensor.num_elements(), splits.begin());
  });
  return splits;
}

Status SetSplits(KernelContext& ctx, int i, DataType dtype, std::span<const int64_t> splits) {
  MR_RETURN_IF_ERROR(CheckFits(dtype, splits));
  MR_ASSIGN_OR_RETURN(Tensor* const out,
                      ctx.AllocateOutput(i, Shape({static_cast<int64_t>(splits.size())})));
  DispatchType(IndexTypes(), dtype, [&]<typename T>() {
    std::transform(splits.begin(), splits.end(), out->data<T>(),
                   [](int64_t at) { return static_cast<T>(at); });
  });
  return OkStatus();
}

std::vector<DataType> RaggedValueTypes() {
  std::vector<DataType> types = DataTypesOf(JoinTypes<NumberTypes, TypeList<bool, std::string>>());
  for (const DataType quantized : {DataType::kQint8, DataType::kQuint8, DataType::kQint32,
                                   DataType::kQint16, DataType::kQuint16}) {
    types.push_back(quantized);
  }
  return types;
}

}  // namespace millrace
