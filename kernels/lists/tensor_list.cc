// SPDX-License-Identifier: Apache-2.0
#include "kernels/lists/tensor_list.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/lists/tensor_list_util.h"

namespace millrace {

RefPtr<TensorList> TensorList::Copy() const {
  auto copy = MakeRef<TensorList>();
  copy->dtype = dtype;
  copy->element_shape = element_shape;
  copy->max_num_elements = max_num_elements;
  copy->elements = elements;
  return copy;
}

namespace {

// EmptyTensorList and TensorListReserve.
class NewListKernel : public Kernel {
 public:
  explicit NewListKernel(KernelConstruction& c)
      : Kernel(c),
        reserve_(c.def().name() == "TensorListReserve"),
        dtype_(c.attr<DataType>("element_dtype")) {}
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    auto list = MakeRef<TensorList>();
    list->dtype = dtype_;
    MR_ASSIGN_OR_RETURN(list->element_shape, ElementShapeOperand(ctx.input(0)));
    MR_ASSIGN_OR_RETURN(const int64_t n,
                        IntScalar(ctx.input(1), reserve_ ? "num_elements" : "max_num_elements"));
    if (reserve_) {
      MR_RETURN_IF_ERROR(CheckListSize(n));
      list->elements.resize(n);
    } else {
      list->max_num_elements = n;
    }
    SetList(ctx, std::move(list));
    return OkStatus();
  }

 private:
  const bool reserve_;
  const DataType dtype_;
};

class ListPushBackKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* given, InputList(ctx, 0));
    Tensor value = ctx.locked_input(1);
    MR_RETURN_IF_ERROR(CheckListElement(*given, value));
    const int64_t size = given->elements.size();
    if (given->max_num_elements >= 0 && size >= given->max_num_elements) {
      return errors::InvalidArgument("Tried to push item into a full list list size: ", size,
                                     " max_num_elements: ", given->max_num_elements);
    }
    MR_ASSIGN_OR_RETURN(RefPtr<TensorList> list, TakeList(ctx));
    list->elements.push_back(std::move(value));
    SetList(ctx, std::move(list));
    return OkStatus();
  }
};

class ListPopBackKernel : public Kernel {
 public:
  explicit ListPopBackKernel(KernelConstruction& c)
      : Kernel(c), dtype_(c.attr<DataType>("element_dtype")) {}
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* given, InputList(ctx, 0));
    MR_RETURN_IF_ERROR(CheckListType(*given, dtype_));
    if (given->elements.empty()) {
      return errors::InvalidArgument("Trying to pop from an empty list.");
    }
    MR_ASSIGN_OR_RETURN(const PartialShape wanted, ElementShapeOperand(ctx.input(1)));
    MR_ASSIGN_OR_RETURN(Tensor value, ReadListElement(ctx, *given, given->elements.back(), wanted));
    MR_ASSIGN_OR_RETURN(RefPtr<TensorList> list, TakeList(ctx));
    list->elements.pop_back();
    SetList(ctx, std::move(list));
    ctx.SetOutput(1, std::move(value));
    return OkStatus();
  }

 private:
  const DataType dtype_;
};

class ListGetItemKernel : public Kernel {
 public:
  explicit ListGetItemKernel(KernelConstruction& c)
      : Kernel(c), dtype_(c.attr<DataType>("element_dtype")) {}
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* list, InputList(ctx, 0));
    MR_RETURN_IF_ERROR(CheckListType(*list, dtype_));
    MR_ASSIGN_OR_RETURN(const int64_t index, IntScalar(ctx.input(1), "index"));
    if (index < 0 || index >= list->elements.size()) {
      return errors::InvalidArgument("Trying to access element ", index, " in a list with ",
                                     list->elements.size(), " elements.");
    }
    MR_ASSIGN_OR_RETURN(const PartialShape wanted, ElementShapeOperand(ctx.input(2)));
    MR_ASSIGN_OR_RETURN(Tensor value, ReadListElement(ctx, *list, list->elements[index], wanted));
    ctx.SetOutput(0, std::move(value));
    return OkStatus();
  }

 private:
  const DataType dtype_;
};

class ListSetItemKernel : public Kernel {
 public:
  explicit ListSetItemKernel(KernelConstruction& c)
      : Kernel(c), resize_(c.attrs().GetOr<bool>("resize_if_index_out_of_bounds", false)) {}
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* given, InputList(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t index, IntScalar(ctx.input(1), "index"));
    Tensor value = ctx.locked_input(2);
    MR_RETURN_IF_ERROR(CheckListElement(*given, value));
    const int64_t size = given->elements.size();
    if (index < 0 || (index >= size && !resize_)) {
      return errors::InvalidArgument("Trying to modify element ", index, " in a list with ", size,
                                     " elements.");
    }
    if (index >= size) MR_RETURN_IF_ERROR(CheckListSize(index + 1));
    MR_ASSIGN_OR_RETURN(RefPtr<TensorList> list, TakeList(ctx));
    if (index >= size) list->elements.resize(index + 1);
    list->elements.Set(index, std::move(value));
    SetList(ctx, std::move(list));
    return OkStatus();
  }

 private:
  const bool resize_;
};

class ListLengthKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* list, InputList(ctx, 0));
    ctx.SetOutput(0, Tensor::Scalar(static_cast<int32_t>(list->elements.size())));
    return OkStatus();
  }
};

class ListElementShapeKernel : public Kernel {
 public:
  explicit ListElementShapeKernel(KernelConstruction& c)
      : Kernel(c), dtype_(c.attr<DataType>("shape_type")) {}
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* list, InputList(ctx, 0));
    if (list->element_shape.has_rank()) {
      MR_RETURN_IF_ERROR(CheckFits(dtype_, list->element_shape.dims()));
      ctx.SetOutput(0, IndexTensor(dtype_, list->element_shape.dims()));
    } else {
      ctx.SetOutput(0,
                    dtype_ == kInt32 ? Tensor::Scalar<int32_t>(-1) : Tensor::Scalar<int64_t>(-1));
    }
    return OkStatus();
  }

 private:
  const DataType dtype_;
};

class ListResizeKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int64_t size, IntScalar(ctx.input(1), "size"));
    if (size < 0) {
      return errors::InvalidArgument("TensorListSlice expects size to be non-negative. Got: ",
                                     size);
    }
    MR_RETURN_IF_ERROR(CheckListSize(size));
    MR_ASSIGN_OR_RETURN(RefPtr<TensorList> list, TakeList(ctx));
    list->elements.resize(size);
    SetList(ctx, std::move(list));
    return OkStatus();
  }
};

}  // namespace

void RegisterTensorListKernels(KernelRegistry& r) {
  RegisterCpu<NewListKernel>(r, "EmptyTensorList");
  RegisterCpu<NewListKernel>(r, "TensorListReserve");
  RegisterCpu<ListPushBackKernel>(r, "TensorListPushBack");
  RegisterCpu<ListPopBackKernel>(r, "TensorListPopBack");
  RegisterCpu<ListGetItemKernel>(r, "TensorListGetItem");
  RegisterCpu<ListSetItemKernel>(r, "TensorListSetItem");
  RegisterCpu<ListLengthKernel>(r, "TensorListLength");
  RegisterCpu<ListElementShapeKernel>(r, "TensorListElementShape");
  RegisterCpu<ListResizeKernel>(r, "TensorListResize");
  RegisterTensorListArrayKernels(r);
}

}  // namespace millrace
