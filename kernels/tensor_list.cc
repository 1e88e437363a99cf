#include "kernels/tensor_list.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/element_copy.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_util.h"

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

// A number of elements may come from a peer; each costs memory before it is set.
constexpr int64_t kMaxElements = int64_t{1} << 24;

Status CheckCount(int64_t count) {
  if (count < 0) {
    return errors::InvalidArgument("The num_elements to reserve must be a non negative number, ",
                                   "but got ", count);
  }
  if (count <= kMaxElements) return OkStatus();
  return errors::ResourceExhausted("a TensorList of ", count, " elements; at most ", kMaxElements,
                                   " are possible");
}

StatusOr<const TensorList*> InputList(KernelContext& ctx, int i) {
  const auto* list = VariantCast<TensorList>(ctx.input(i));
  if (list != nullptr) return list;
  return errors::InvalidArgument("Input handle is not a list. Saw: '", ctx.input(i).DebugString(1),
                                 "'");
}

Status CheckType(const TensorList& list, DataType dtype) {
  if (list.dtype == dtype) return OkStatus();
  return errors::InvalidArgument("Invalid data types; op elements ", DataTypeName(dtype),
                                 " but list elements ", DataTypeName(list.dtype));
}

// The list of input 0 as one that may be changed: itself if nobody else has it, else a copy
// (which shares the elements).
StatusOr<RefPtr<TensorList>> TakeList(KernelContext& ctx) {
  MR_RETURN_IF_ERROR(InputList(ctx, 0).status());
  const Tensor& input = ctx.input(0);
  auto& element = static_cast<Variant*>(input.raw_data())[0];
  auto* list = static_cast<TensorList*>(element.get());
  if (!input.OwnsBufferAlone() || !list->RefCountIsOne()) return list->Copy();
  return RefPtr<TensorList>(static_cast<TensorList*>(element.release()));
}

// -1 or a vector in which negative sizes are unknown.
StatusOr<PartialShape> ShapeOperand(const Tensor& t) {
  if (t.rank() == 0) {
    MR_ASSIGN_OR_RETURN(const int64_t value, IntScalar(t, "element_shape"));
    if (value == -1) return PartialShape();
    return errors::InvalidArgument("The only valid scalar shape tensor is the fully unknown ",
                                   "shape specified as -1.");
  }
  MR_ASSIGN_OR_RETURN(Dims dims, IntVector(t, "element_shape", /*vector_only=*/true));
  for (int64_t& dim : dims) {
    if (dim < -1) {
      return errors::InvalidArgument("element_shape has a size of ", dim);
    }
  }
  return PartialShape(dims);
}

// What the elements of `list` look like, given the op's operand and what has been set.
StatusOr<PartialShape> CommonShape(const TensorList& list, const PartialShape& wanted,
                                   std::span<const Tensor> elements) {
  if (!wanted.IsCompatibleWith(list.element_shape)) {
    return errors::InvalidArgument("Tried to stack list which only contains uninitialized tensors ",
                                   "or has another element shape: op ", wanted.DebugString(),
                                   ", list ", list.element_shape.DebugString());
  }
  MR_ASSIGN_OR_RETURN(PartialShape shape, wanted.MergeWith(list.element_shape));
  for (const Tensor& t : elements) {
    if (!t.IsInitialized()) continue;
    MR_ASSIGN_OR_RETURN(shape, shape.MergeWith(t.shape()));
  }
  return shape;
}

// `elements` along a new first axis; those that are not set are zeros.
Status StackElements(KernelContext& ctx, const TensorList& list, const PartialShape& wanted,
                     std::vector<Tensor> elements) {
  MR_ASSIGN_OR_RETURN(const PartialShape partial, CommonShape(list, wanted, elements));
  const auto shape = partial.AsShape();
  if (!shape) {
    return elements.empty()
               ? errors::InvalidArgument("Tried to stack elements of an empty list with ",
                                         "non-fully-defined element_shape: ", partial.DebugString())
               : errors::InvalidArgument(
                     "Tried to stack list which only contains uninitialized ",
                     "tensors and has a non-fully-defined element_shape: ", partial.DebugString());
  }
  for (Tensor& t : elements) {
    if (t.IsInitialized()) continue;
    MR_ASSIGN_OR_RETURN(t, ZeroTensor(ctx.allocator(), list.dtype, *shape));
  }
  MR_ASSIGN_OR_RETURN(Tensor whole, StackTensors(ctx.allocator(), list.dtype, *shape, elements));
  ctx.SetOutput(0, std::move(whole));
  return OkStatus();
}

// Element `index`, or zeros if it was never set.
StatusOr<Tensor> ReadElement(KernelContext& ctx, const TensorList& list, const Tensor& element,
                             const PartialShape& wanted) {
  if (element.IsInitialized()) {
    if (!wanted.IsCompatibleWith(element.shape())) {
      return errors::InvalidArgument("Incompatible shapes during merge: op element shape ",
                                     wanted.DebugString(), ", list element ",
                                     element.shape().DebugString());
    }
    return element;
  }
  MR_ASSIGN_OR_RETURN(PartialShape shape, wanted.MergeWith(list.element_shape));
  for (const Tensor& t : list.elements) {
    if (shape.IsFullyDefined() || !t.IsInitialized()) continue;
    MR_ASSIGN_OR_RETURN(shape, shape.MergeWith(t.shape()));
  }
  const auto known = shape.AsShape();
  if (!known) {
    return errors::InvalidArgument("Trying to read an uninitialized tensor but element_shape is ",
                                   "not fully defined: ", shape.DebugString(),
                                   " and no list element is set.");
  }
  return ZeroTensor(ctx.allocator(), list.dtype, *known);
}

Status CheckElement(const TensorList& list, const Tensor& value) {
  MR_RETURN_IF_ERROR(CheckType(list, value.dtype()));
  if (list.element_shape.IsCompatibleWith(value.shape())) return OkStatus();
  return errors::InvalidArgument("Tried to append a tensor with incompatible shape to a list. ",
                                 "Op element shape: ", value.shape().DebugString(),
                                 " list shape: ", list.element_shape.DebugString());
}

void SetList(KernelContext& ctx, RefPtr<TensorList> list) {
  ctx.SetOutput(0, VariantTensor(std::move(list)));
}

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
    MR_ASSIGN_OR_RETURN(list->element_shape, ShapeOperand(ctx.input(0)));
    MR_ASSIGN_OR_RETURN(const int64_t n,
                        IntScalar(ctx.input(1), reserve_ ? "num_elements" : "max_num_elements"));
    if (reserve_) {
      MR_RETURN_IF_ERROR(CheckCount(n));
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
    MR_RETURN_IF_ERROR(CheckElement(*given, value));
    const auto size = static_cast<int64_t>(given->elements.size());
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
    MR_RETURN_IF_ERROR(CheckType(*given, dtype_));
    if (given->elements.empty()) {
      return errors::InvalidArgument("Trying to pop from an empty list.");
    }
    MR_ASSIGN_OR_RETURN(const PartialShape wanted, ShapeOperand(ctx.input(1)));
    MR_ASSIGN_OR_RETURN(Tensor value, ReadElement(ctx, *given, given->elements.back(), wanted));
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
    MR_RETURN_IF_ERROR(CheckType(*list, dtype_));
    MR_ASSIGN_OR_RETURN(const int64_t index, IntScalar(ctx.input(1), "index"));
    if (index < 0 || index >= static_cast<int64_t>(list->elements.size())) {
      return errors::InvalidArgument("Trying to access element ", index, " in a list with ",
                                     list->elements.size(), " elements.");
    }
    MR_ASSIGN_OR_RETURN(const PartialShape wanted, ShapeOperand(ctx.input(2)));
    MR_ASSIGN_OR_RETURN(Tensor value, ReadElement(ctx, *list, list->elements[index], wanted));
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
    MR_RETURN_IF_ERROR(CheckElement(*given, value));
    const auto size = static_cast<int64_t>(given->elements.size());
    if (index < 0 || (index >= size && !resize_)) {
      return errors::InvalidArgument("Trying to modify element ", index, " in a list with ", size,
                                     " elements.");
    }
    if (index >= size) MR_RETURN_IF_ERROR(CheckCount(index + 1));
    MR_ASSIGN_OR_RETURN(RefPtr<TensorList> list, TakeList(ctx));
    if (index >= size) list->elements.resize(index + 1);
    list->elements[index] = std::move(value);
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
    MR_RETURN_IF_ERROR(CheckCount(size));
    MR_ASSIGN_OR_RETURN(RefPtr<TensorList> list, TakeList(ctx));
    list->elements.resize(size);
    SetList(ctx, std::move(list));
    return OkStatus();
  }
};

class ListStackKernel : public Kernel {
 public:
  explicit ListStackKernel(KernelConstruction& c)
      : Kernel(c),
        dtype_(c.attr<DataType>("element_dtype")),
        num_elements_(c.attr<int64_t>("num_elements")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* list, InputList(ctx, 0));
    MR_RETURN_IF_ERROR(CheckType(*list, dtype_));
    if (num_elements_ != -1 && num_elements_ != static_cast<int64_t>(list->elements.size())) {
      return errors::InvalidArgument("Operation expected a list with ", num_elements_,
                                     " elements but got a list with ", list->elements.size(),
                                     " elements.");
    }
    MR_ASSIGN_OR_RETURN(const PartialShape wanted, ShapeOperand(ctx.input(1)));
    return StackElements(ctx, *list, wanted, list->elements);
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
    MR_RETURN_IF_ERROR(CheckType(*list, dtype_));
    MR_ASSIGN_OR_RETURN(const Dims indices, IntVector(ctx.input(1), "indices"));
    MR_ASSIGN_OR_RETURN(const PartialShape wanted, ShapeOperand(ctx.input(2)));
    std::vector<Tensor> elements;
    for (const int64_t index : indices) {
      if (index < 0 || index >= static_cast<int64_t>(list->elements.size())) {
        return errors::InvalidArgument("Index ", index, " out o range; list only has ",
                                       list->elements.size(), " elements.");
      }
      elements.push_back(list->elements[index]);
    }
    return StackElements(ctx, *list, wanted, std::move(elements));
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
    MR_ASSIGN_OR_RETURN(list->element_shape, ShapeOperand(ctx.input(1)));
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
      MR_ASSIGN_OR_RETURN(list->element_shape, ShapeOperand(ctx.input(2)));
      if (with_count_) {
        MR_ASSIGN_OR_RETURN(count, IntScalar(ctx.input(3), "num_elements"));
        if (count < -1) {
          return errors::InvalidArgument("TensorListScatter expects num_elements >= -1, found: ",
                                         count);
        }
      }
    }
    MR_RETURN_IF_ERROR(CheckType(*list, value.dtype()));
    int64_t size = std::max<int64_t>(count, static_cast<int64_t>(list->elements.size()));
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
    MR_RETURN_IF_ERROR(CheckCount(size));
    list->elements.resize(size);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      MR_ASSIGN_OR_RETURN(Tensor row, CopyOfRow(ctx.allocator(), value, static_cast<int64_t>(i)));
      MR_RETURN_IF_ERROR(CheckElement(*list, row));
      list->elements[indices[i]] = std::move(row);
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
    MR_RETURN_IF_ERROR(CheckType(*list, dtype_));
    MR_ASSIGN_OR_RETURN(const PartialShape wanted, ShapeOperand(ctx.input(1)));
    MR_ASSIGN_OR_RETURN(const Dims leading, IntVector(ctx.input(2), "leading_dims"));
    MR_ASSIGN_OR_RETURN(PartialShape tail, Tail(wanted));
    MR_ASSIGN_OR_RETURN(const PartialShape of_list, Tail(list->element_shape));
    MR_ASSIGN_OR_RETURN(tail, tail.MergeWith(of_list));
    for (const Tensor& t : list->elements) {
      if (!t.IsInitialized()) continue;
      if (t.rank() < 1) {
        return errors::InvalidArgument("Concat saw a scalar shape at an index but requires at ",
                                       "least vectors.");
      }
      MR_ASSIGN_OR_RETURN(tail, tail.MergeWith(PartialShape(t.shape().dims().subspan(1))));
    }
    const auto element = tail.AsShape();
    if (!element) {
      return errors::InvalidArgument(
          "All except the first dimension must be fully defined when concating an empty tensor "
          "list. element_shape: ",
          wanted.DebugString());
    }
    return Concat(ctx, *list, *element, leading);
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

  Status Concat(KernelContext& ctx, const TensorList& list, const Shape& tail,
                const Dims& leading) const {
    const auto n = static_cast<int64_t>(list.elements.size());
    Dims rows(n);
    int64_t sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const Tensor& t = list.elements[i];
      if (t.IsInitialized()) {
        rows[i] = t.dim(0);
      } else if (i < static_cast<int64_t>(leading.size()) && leading[i] >= 0) {
        rows[i] = leading[i];
      } else {
        return errors::InvalidArgument("Concating lists with uninitialized tensors is not ",
                                       "supported in this version of TensorListConcat. Consider ",
                                       "updating your GraphDef to run the newer version.");
      }
      sum += rows[i];
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
    MR_ASSIGN_OR_RETURN(list->element_shape, ShapeOperand(ctx.input(1)));
    MR_ASSIGN_OR_RETURN(const Dims lengths,
                        IntVector(ctx.input(2), "lengths", /*vector_only=*/true));
    if (value.rank() < 1) {
      return errors::InvalidArgument("Tensor must be at least a vector, but saw shape: ",
                                     value.shape().DebugString());
    }
    int64_t at = 0;
    for (const int64_t n : lengths) {
      if (n < 0 || n > value.dim(0) - at) {
        return errors::InvalidArgument("Invalid value in lengths: ", n, "; the tensor has ",
                                       value.dim(0), " rows");
      }
      Tensor part = value.Slice(at, at + n).Clone();
      MR_RETURN_IF_ERROR(CheckElement(*list, part));
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
    Tensor out(kVariant, a.shape());
    for (int64_t i = 0; i < a.num_elements(); ++i) {
      const auto* x = dynamic_cast<TensorList*>(a.data<Variant>()[i].get());
      const auto* y = dynamic_cast<TensorList*>(b.data<Variant>()[i].get());
      if (x == nullptr || y == nullptr) {
        return errors::InvalidArgument("an input of ", name(), " is not a list");
      }
      MR_RETURN_IF_ERROR(CheckType(*y, x->dtype));
      RefPtr<TensorList> both = x->Copy();
      MR_ASSIGN_OR_RETURN(both->element_shape, x->element_shape.MergeWith(y->element_shape));
      both->elements.insert(both->elements.end(), y->elements.begin(), y->elements.end());
      out.data<Variant>()[i] = std::move(both);
    }
    ctx.SetOutput(0, std::move(out));
    return OkStatus();
  }
};

// ZerosLike of lists: every element that is set becomes zeros.
class ZerosLikeVariantKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    Tensor out(kVariant, in.shape());
    for (int64_t i = 0; i < in.num_elements(); ++i) {
      const auto* list = dynamic_cast<TensorList*>(in.data<Variant>()[i].get());
      if (list == nullptr) {
        return errors::InvalidArgument("ZerosLike of a variant that is not a list: ",
                                       in.DebugString(1));
      }
      RefPtr<TensorList> zeros = list->Copy();
      for (Tensor& t : zeros->elements) {
        if (!t.IsInitialized()) continue;
        MR_ASSIGN_OR_RETURN(t, ZeroTensor(ctx.allocator(), t.dtype(), t.shape()));
      }
      out.data<Variant>()[i] = std::move(zeros);
    }
    ctx.SetOutput(0, std::move(out));
    return OkStatus();
  }
};

// AddN of lists of equal length, element by element.
class AddNVariantKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* first, InputList(ctx, 0));
    RefPtr<TensorList> sum = first->Copy();
    for (int i = 1; i < ctx.num_inputs(); ++i) {
      MR_ASSIGN_OR_RETURN(const TensorList* list, InputList(ctx, i));
      MR_RETURN_IF_ERROR(CheckType(*list, sum->dtype));
      if (list->elements.size() != sum->elements.size()) {
        return errors::InvalidArgument(
            "Trying to add two lists of tensors with different lengths. One is ",
            sum->elements.size(), " and the other is ", list->elements.size());
      }
      MR_ASSIGN_OR_RETURN(sum->element_shape, sum->element_shape.MergeWith(list->element_shape));
      for (std::size_t k = 0; k < list->elements.size(); ++k) {
        const Tensor& t = list->elements[k];
        Tensor& to = sum->elements[k];
        if (!t.IsInitialized()) continue;
        if (to.IsInitialized()) {
          MR_ASSIGN_OR_RETURN(to, AddTensors(ctx.allocator(), to, t));
        } else {
          to = t;
        }
      }
    }
    SetList(ctx, std::move(sum));
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
  r.Register(KernelDef("ZerosLike").Type<Variant>("T").Priority(1),
             MakeKernel<ZerosLikeVariantKernel>);
  r.Register(KernelDef("AddN").Type<Variant>("T"), MakeKernel<AddNVariantKernel>);
}

}  // namespace millrace
