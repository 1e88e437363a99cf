// SPDX-License-Identifier: Apache-2.0
// Lists and tensors made of each other: stacked, gathered, scattered, concatenated, split.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"
#include "kernels/lists/tensor_list_util.h"

namespace millrace {
namespace {

class ListStackKernel : public Kernel {
 public:
  explicit ListStackKernel(KernelConstruction& c)
      : Kernel(c),
        dtype_(c.attr<DataType>("element_dtype")),
        num_elements_(c.attr<int64_t>("num_elements")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* list, InputList(ctx, 0));
    MR_RETURN_IF_ERROR(CheckListType(*list, dtype_));
    if (num_elements_ != -1 && num_elements_ != list->elements.size()) {
      return errors::InvalidArgument("Operation expected a list with ", num_elements_,
                                     " elements but got a list with ", list->elements.size(),
                                     " elements.");
    }
    MR_ASSIGN_OR_RETURN(const PartialShape wanted, ElementShapeOperand(ctx.input(1)));
    return StackList(ctx, *list, wanted);
  }

 private:
  const DataType dtype_;
  const int64_t num_elements_;
};

class ListGatherKernel : public Kernel {
 public:
  explicit ListGatherKernel(KernelConstruction& c)
      : Kernel(c), dtype_(c.attr<DataType>("element_dtype")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* list, InputList(ctx, 0));
    MR_RETURN_IF_ERROR(CheckListType(*list, dtype_));
    MR_ASSIGN_OR_RETURN(const Dims indices, IntVector(ctx.input(1), "indices"));
    MR_ASSIGN_OR_RETURN(const PartialShape wanted, ElementShapeOperand(ctx.input(2)));
    for (const int64_t index : indices) {
      if (index < 0 || index >= list->elements.size()) {
        return errors::InvalidArgument("Trying to gather element ", index, " in a list with ",
                                       list->elements.size(), " elements.");
      }
    }
    return StackListElements(ctx, *list, wanted, indices);
  }

 private:
  const DataType dtype_;
};

// TensorListFromTensor: the rows of a tensor.
class ListFromTensorKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor value = ctx.locked_input(0);
    auto list = MakeRef<TensorList>();
    list->dtype = value.dtype();
    MR_ASSIGN_OR_RETURN(list->element_shape, ElementShapeOperand(ctx.input(1)));
    if (value.rank() < 1) {
      return errors::InvalidArgument("Tensor must be at least a vector, but saw shape: ",
                                     value.shape().DebugString());
    }
    const Shape element(value.shape().dims().subspan(1));
    if (!list->element_shape.IsCompatibleWith(element)) {
      return errors::InvalidArgument("Specified a list with shape ",
                                     list->element_shape.DebugString(),
                                     " from a tensor with shape ", element.DebugString());
    }
    MR_RETURN_IF_ERROR(CheckNesting(value));
    // Each takes memory of its own, also where the rows hold nothing.
    if (value.num_elements() == 0) MR_RETURN_IF_ERROR(CheckListSize(value.dim(0)));
    for (int64_t i = 0; i < value.dim(0); ++i) {
      MR_ASSIGN_OR_RETURN(Tensor row, CopyOfRow(ctx.allocator(), value, i));
      list->elements.push_back(std::move(row));
    }
    SetList(ctx, std::move(list));
    return OkStatus();
  }
};

// TensorListScatter, its V2, and TensorListScatterIntoExistingList.
class ListScatterKernel : public Kernel {
 public:
  explicit ListScatterKernel(KernelConstruction& c)
      : Kernel(c),
        into_existing_(c.def().name() == "TensorListScatterIntoExistingList"),
        with_count_(c.def().name() == "TensorListScatterV2") {}
  Status Compute(KernelContext& ctx) override {
    const Tensor value = ctx.locked_input(into_existing_ ? 1 : 0);
    MR_ASSIGN_OR_RETURN(const Dims indices, IntVector(ctx.input(into_existing_ ? 2 : 1), "indices",
                                                      /*vector_only=*/true));
    if (value.rank() < 1 || value.dim(0) != static_cast<int64_t>(indices.size())) {
      return errors::InvalidArgument(
          "Invalid number of rows in input tensor. Expected: ", indices.size(),
          " Actual: ", value.rank() < 1 ? 0 : value.dim(0));
    }
    int64_t count = -1;
    RefPtr<TensorList> list;
    if (into_existing_) {
      MR_ASSIGN_OR_RETURN(list, TakeList(ctx));
    } else {
      list = MakeRef<TensorList>();
      list->dtype = value.dtype();
      MR_ASSIGN_OR_RETURN(list->element_shape, ElementShapeOperand(ctx.input(2)));
      if (with_count_) {
        MR_ASSIGN_OR_RETURN(count, IntScalar(ctx.input(3), "num_elements"));
        if (count < -1) {
          return errors::InvalidArgument("TensorListScatter expects num_elements >= -1, found: ",
                                         count);
        }
      }
    }
    MR_RETURN_IF_ERROR(CheckListType(*list, value.dtype()));
    int64_t size = std::max(count, list->elements.size());
    for (const int64_t index : indices) {
      if (index < 0) {
        return errors::InvalidArgument("Indices in TensorListScatter must all be non-negative.");
      }
      if (count >= 0 && index >= count) {
        return errors::InvalidArgument("TensorListScatter: Trying to scatter at index ", index,
                                       " in list with size ", count);
      }
      size = std::max(size, index + 1);
    }
    MR_RETURN_IF_ERROR(CheckListSize(size));
    list->elements.resize(size);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      MR_ASSIGN_OR_RETURN(Tensor row, CopyOfRow(ctx.allocator(), value, static_cast<int64_t>(i)));
      MR_RETURN_IF_ERROR(CheckListElement(*list, row));
      list->elements.Set(indices[i], std::move(row));
    }
    SetList(ctx, std::move(list));
    return OkStatus();
  }

 private:
  const bool into_existing_, with_count_;
};

class ListConcatKernel : public Kernel {
 public:
  explicit ListConcatKernel(KernelConstruction& c)
      : Kernel(c), dtype_(c.attr<DataType>("element_dtype")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* list, InputList(ctx, 0));
    MR_RETURN_IF_ERROR(CheckListType(*list, dtype_));
    MR_ASSIGN_OR_RETURN(const PartialShape wanted, ElementShapeOperand(ctx.input(1)));
    MR_ASSIGN_OR_RETURN(const Dims leading, IntVector(ctx.input(2), "leading_dims"));
    MR_ASSIGN_OR_RETURN(PartialShape tail, Tail(wanted));
    MR_ASSIGN_OR_RETURN(const PartialShape of_list, Tail(list->element_shape));
    MR_ASSIGN_OR_RETURN(tail, tail.MergeWith(of_list));
    MR_RETURN_IF_ERROR(list->elements.ForEachSet([&](int64_t i, const Tensor& t) -> Status {
      if (t.rank() < 1) {
        return errors::InvalidArgument("Concat saw a scalar shape at index ", i,
                                       " but requires at least vectors.");
      }
      MR_ASSIGN_OR_RETURN(tail, tail.MergeWith(PartialShape(t.shape().dims().subspan(1))));
      return OkStatus();
    }));
    const auto element = tail.AsShape();
    if (!element) {
      return list->elements.empty()
                 ? errors::InvalidArgument(
                       "All except the first dimension must be fully defined when concating an "
                       "empty tensor list. element_shape: ",
                       tail.DebugString())
                 : errors::InvalidArgument(
                       "Trying to concat list with only uninitialized tensors but "
                       "element_shape_except_first_dim is not fully defined: ",
                       tail.DebugString());
    }
    int64_t rows = DefaultRows(wanted, list->element_shape);
    if (rows < 0) rows = CommonRows(*list);
    return Concat(ctx, *list, *element, leading, rows);
  }

 private:
  static StatusOr<PartialShape> Tail(const PartialShape& shape) {
    if (!shape.has_rank()) return PartialShape();
    if (shape.rank() < 1) {
      return errors::InvalidArgument("Concat requires elements to be at least vectors, found ",
                                     "scalars instead.");
    }
    return PartialShape(shape.dims().subspan(1));
  }

  // The rows of an element that nobody wrote, -1 if no shape tells.
  static int64_t DefaultRows(const PartialShape& wanted, const PartialShape& of_list) {
    for (const PartialShape* shape : {&wanted, &of_list}) {
      if (shape->has_rank() && shape->rank() > 0 && shape->dim(0) >= 0) return shape->dim(0);
    }
    return -1;
  }

  // Those of all elements that were written, -1 if they differ or there are none.
  static int64_t CommonRows(const TensorList& list) {
    int64_t rows = -1;
    const Status same = list.elements.ForEachSet([&](int64_t, const Tensor& t) -> Status {
      if (rows >= 0 && t.dim(0) != rows) return errors::Unknown("they differ");
      rows = t.dim(0);
      return OkStatus();
    });
    return same.ok() ? rows : -1;
  }

  Status Concat(KernelContext& ctx, const TensorList& list, const Shape& tail, const Dims& leading,
                int64_t default_rows) const {
    const int64_t n = list.elements.size();
    Dims rows(n);
    int64_t sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const Tensor& t = list.elements[i];
      if (t.IsInitialized()) {
        rows[i] = t.dim(0);
      } else if (i < static_cast<int64_t>(leading.size()) && leading[i] >= 0) {
        rows[i] = leading[i];
      } else if (default_rows >= 0) {
        rows[i] = default_rows;  // zeros
      } else {
        if (i < static_cast<int64_t>(leading.size())) {
          return errors::InvalidArgument("leading_dims[", i, "] = ", leading[i],
                                         " must not be negative");
        }
        return errors::InvalidArgument("List contains uninitialized tensor at index ", i,
                                       " but leading_dims has only ", leading.size(), " elements.");
      }
      if (__builtin_add_overflow(sum, rows[i], &sum)) {
        return errors::InvalidArgument("Concat: the elements of the list have too many rows");
      }
    }
    Dims dims = {sum};
    dims.insert(dims.end(), tail.dims().begin(), tail.dims().end());
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    MR_ASSIGN_OR_RETURN(Tensor * lengths, ctx.AllocateOutput(1, Shape({n})));
    int64_t at = 0;
    for (int64_t i = 0; i < n; ++i) {
      const Tensor& t = list.elements[i];
      const int64_t count = rows[i] * tail.num_elements();
      if (t.IsInitialized()) {
        CopyRange(t, 0, out, at, count);
      } else {
        ClearRange(out, at, count);
      }
      at += count;
      lengths->data<int64_t>()[i] = rows[i];
    }
    return OkStatus();
  }

  const DataType dtype_;
};

class ListSplitKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor value = ctx.locked_input(0);
    auto list = MakeRef<TensorList>();
    list->dtype = value.dtype();
    MR_ASSIGN_OR_RETURN(list->element_shape, ElementShapeOperand(ctx.input(1)));
    if (list->element_shape.has_rank() && list->element_shape.rank() < 1) {
      return errors::InvalidArgument("TensorListSplit requires element_shape to be at least of ",
                                     "rank 1, but saw: ", list->element_shape.DebugString());
    }
    if (ctx.input(2).rank() != 1) {
      return errors::InvalidArgument("Expected lengths to be a vector, received shape: ",
                                     ctx.input(2).shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const Dims lengths, IntVector(ctx.input(2), "lengths"));
    if (value.rank() < 1) {
      return errors::InvalidArgument("Tensor must be at least a vector, but saw shape: ",
                                     value.shape().DebugString());
    }
    if (list->element_shape.has_rank() &&
        !PartialShape(list->element_shape.dims().subspan(1))
             .IsCompatibleWith(Shape(value.shape().dims().subspan(1)))) {
      return errors::InvalidArgument("tensor shape ", value.shape().DebugString(),
                                     " is not compatible with element_shape ",
                                     list->element_shape.DebugString());
    }
    MR_RETURN_IF_ERROR(CheckListSize(static_cast<int64_t>(lengths.size())));
    int64_t at = 0;
    for (const int64_t n : lengths) {
      if (n < 0) return errors::InvalidArgument("Invalid value in lengths: ", n);
      if (n > value.dim(0) - at) {
        // In 64 bits that wrap: the length is any number that a client sent.
        const auto end = static_cast<int64_t>(static_cast<uint64_t>(at) + static_cast<uint64_t>(n));
        return errors::InvalidArgument("Attempting to slice [", at, ", ", end,
                                       "] from tensor with length ", value.dim(0));
      }
      Tensor part = value.Slice(at, at + n).Clone();
      MR_RETURN_IF_ERROR(CheckListElement(*list, part));
      list->elements.push_back(std::move(part));
      at += n;
    }
    if (at != value.dim(0)) {
      return errors::InvalidArgument("Unused values in tensor. Length of tensor: ", value.dim(0),
                                     " Values used: ", at);
    }
    SetList(ctx, std::move(list));
    return OkStatus();
  }
};

class ListConcatListsKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &a = ctx.input(0), &b = ctx.input(1);
    if (!(a.shape() == b.shape())) {
      return errors::InvalidArgument("Cannot concatenate lists of shapes ", a.shape().DebugString(),
                                     " and ", b.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor out, ctx.AllocateTemp(kVariant, a.shape()));
    for (int64_t i = 0; i < a.num_elements(); ++i) {
      const auto* x = dynamic_cast<TensorList*>(a.data<Variant>()[i].get());
      const auto* y = dynamic_cast<TensorList*>(b.data<Variant>()[i].get());
      if (x == nullptr || y == nullptr) {
        return errors::InvalidArgument("an input of ", name(), " is not a list");
      }
      MR_RETURN_IF_ERROR(CheckListType(*y, x->dtype));
      RefPtr<TensorList> both = x->Copy();
      MR_ASSIGN_OR_RETURN(both->element_shape, x->element_shape.MergeWith(y->element_shape));
      const int64_t before = both->elements.size();
      MR_RETURN_IF_ERROR(CheckListSize(before + y->elements.size()));
      both->elements.resize(before + y->elements.size());
      MR_RETURN_IF_ERROR(y->elements.ForEachSet([&](int64_t k, const Tensor& t) {
        both->elements.Set(before + k, t);
        return OkStatus();
      }));
      out.data<Variant>()[i] = std::move(both);
    }
    ctx.SetOutput(0, std::move(out));
    return OkStatus();
  }
};

}  // namespace

void RegisterTensorListArrayKernels(KernelRegistry& r) {
  RegisterCpu<ListStackKernel>(r, "TensorListStack");
  RegisterCpu<ListGatherKernel>(r, "TensorListGather");
  RegisterCpu<ListFromTensorKernel>(r, "TensorListFromTensor");
  for (const char* op :
       {"TensorListScatter", "TensorListScatterV2", "TensorListScatterIntoExistingList"}) {
    RegisterCpu<ListScatterKernel>(r, op);
  }
  RegisterCpu<ListConcatKernel>(r, "TensorListConcatV2");
  RegisterCpu<ListSplitKernel>(r, "TensorListSplit");
  RegisterCpu<ListConcatListsKernel>(r, "TensorListConcatLists");
}

}  // namespace millrace
