// Lists of tensors that are values: an op on a list gives another list. What functional loops
// keep for their way back.
#ifndef KERNELS_LISTS_TENSOR_LIST_H_
#define KERNELS_LISTS_TENSOR_LIST_H_

#include <cstdint>
#include <vector>

#include "kernels/common/variant.h"
#include "millrace/shape.h"

namespace millrace {

// The content of a variant. An element without a buffer and of type kInvalid has not been set:
// it reads as zeros.
struct TensorList : public RefCounted {
  DataType dtype = DataType::kInvalid;
  PartialShape element_shape;
  int64_t max_num_elements = -1;  // negative: no limit
  std::vector<Tensor> elements;

  RefPtr<TensorList> Copy() const;
};

}  // namespace millrace

#endif  // KERNELS_LISTS_TENSOR_LIST_H_
