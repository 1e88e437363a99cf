// SPDX-License-Identifier: Apache-2.0
// A tensor: element type, shape, and a share of a buffer.
#ifndef MILLRACE_TENSOR_H_
#define MILLRACE_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/dtype.h"
#include "millrace/ref_ptr.h"
#include "millrace/shape.h"
#include "millrace/status.h"

namespace millrace {

class Allocator;

// Names something that lives on one device between steps (a variable, a queue).
struct ResourceHandle {
  std::string device;      // full name of the device where it lives
  std::string container;   // what is emptied together (Session::Reset); "": the default one
  std::string name;        // within the container
  uint64_t hash_code = 0;  // of the C++ type; meaningful only on the device that made it
  std::string type_name;   // the C++ type, for messages
  // What a variable holds, where that is known: one entry for each of its values.
  std::vector<std::pair<DataType, PartialShape>> dtypes_and_shapes;

  // Device, container, name and type in one line.
  std::string DebugString() const;
};

// Which memory a buffer lies in. Host code may touch kHost and kPinned only.
enum class MemorySpace : uint8_t {
  kHost,    // ordinary memory
  kPinned,  // the host's, where a device copies from and to by itself
  kDevice,  // a device's own
};

// A block of memory that tensors share. The subclass that an allocator hands out knows
// how to give the block back. Thread-safe in its reference count only.
class Buffer : public RefCounted {
 public:
  // The first byte, in the memory that space() names.
  void* data() const { return data_; }
  std::size_t size() const { return size_; }  // usable bytes
  // Where it lies: host code reads kHost and kPinned only.
  MemorySpace space() const { return space_; }

 protected:
  // `size` bytes at `data`, which are the subclass's to give back.
  Buffer(void* data, std::size_t size, MemorySpace space)
      : data_(data), size_(size), space_(space) {}
  void* data_;         // of data()
  std::size_t size_;   // of size()
  MemorySpace space_;  // of space()
};

// Where in a program a call is written: the default of a last parameter.
struct CallSite {
  const char* file;  // as the compiler was given it; lives as long as the program
  int line;          // from 1 on
  // The place of the call whose default argument this is.
  static constexpr CallSite Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// What a checked call of Tensor throws where the program breaks its contract, as
// std::vector::at and StatusOr::value do: data<double>() of floats, scalar() of three
// elements, a slice beyond the end. A mistake in the program, not an error to handle: nothing
// catches it on the way, and the program ends with this text, which names the call's file and
// line, type and shape. (In a kernel it ends the step.) Values from outside are for the calls
// that return a Status: TryFlat, TryScalar, TryFromValues, TrySlice, Allocate.
class BadTensorAccess : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Copies share the buffer; a tensor handed to others must be treated as read-only unless
// it is known to be the only owner. Not synchronised: one thread may write a Tensor
// object at a time.
class Tensor {
 public:
  // Not initialised: dtype kInvalid, shape [0].
  Tensor() : shape_({0}) {}
  // Memory from the process's host allocator; plain elements are NOT set to zero, strings
  // and handles are empty. For sizes that the program knows: throws a std::bad_alloc, with the
  // shape and the call's place in what(), when out of memory or if the shape is not valid. What is
  // sized by data uses Allocate, or the calls of a kernel's context, which return a status instead.
  Tensor(DataType dtype, const Shape& shape, CallSite where = CallSite::Here());
  // The same from `allocator`, which outlives the tensor.
  Tensor(Allocator* allocator, DataType dtype, const Shape& shape,
         CallSite where = CallSite::Here());
  // Adopts a share of `buffer`; elements start at `data`, which must lie inside it.
  Tensor(DataType dtype, const Shape& shape, RefPtr<Buffer> buffer, void* data)
      : shape_(shape), dtype_(dtype), buffer_(std::move(buffer)), data_(data) {}

  // Like the allocating constructor, with ResourceExhausted, or InvalidArgument for a shape that
  // is not valid, instead of an exception. Without an allocator: the host's.
  static StatusOr<Tensor> Allocate(DataType dtype, const Shape& shape);
  // From `allocator`, which outlives the tensor.
  static StatusOr<Tensor> Allocate(Allocator* allocator, DataType dtype, const Shape& shape);

  // One element, of rank 0.
  template <typename T>
  static Tensor Scalar(T value) {
    Tensor t(DataTypeOf<T>(), Shape());
    static_cast<T*>(t.data_)[0] = std::move(value);
    return t;
  }
  // A tensor of `shape` (by default one axis) with the given elements in row-major order;
  // BadTensorAccess unless the sizes agree.
  template <typename T>
  static Tensor FromValues(std::span<const T> values, const Shape& shape,
                           CallSite where = CallSite::Here()) {
    if (static_cast<int64_t>(values.size()) != shape.num_elements()) [[unlikely]] {
      WrongCount(values.size(), DataTypeOf<T>(), shape, where);
    }
    Tensor t(DataTypeOf<T>(), shape, where);
    T* out = static_cast<T*>(t.data_);
    for (std::size_t i = 0; i < values.size(); ++i) out[i] = values[i];
    return t;
  }
  // One axis: FromValues<float>({1, 2, 3}).
  template <typename T>
  static Tensor FromValues(std::initializer_list<T> values) {
    return FromValues<T>(std::span<const T>(values.begin(), values.size()),
                         Shape({static_cast<int64_t>(values.size())}));
  }
  // FromValues<float>({1, 2, 3, 4}, {2, 2}).
  template <typename T>
  static Tensor FromValues(std::initializer_list<T> values, const Shape& shape,
                           CallSite where = CallSite::Here()) {
    return FromValues<T>(std::span<const T>(values.begin(), values.size()), shape, where);
  }
  // The same; InvalidArgument if sizes do not agree, and the errors of Allocate.
  template <typename T>
  static StatusOr<Tensor> TryFromValues(std::span<const T> values, const Shape& shape) {
    if (Status status = CheckCount(values.size(), DataTypeOf<T>(), shape); !status.ok()) {
      return status;
    }
    StatusOr<Tensor> t = Allocate(DataTypeOf<T>(), shape);
    if (!t.ok()) return t;
    T* out = static_cast<T*>(t->data_);
    for (std::size_t i = 0; i < values.size(); ++i) out[i] = values[i];
    return t;
  }
  // A scalar of type string.
  static Tensor String(std::string_view value);

  // The type of the elements; kInvalid before there are any.
  DataType dtype() const { return dtype_; }
  // The sizes of all axes.
  const Shape& shape() const { return shape_; }
  // The number of axes.
  int rank() const { return shape_.rank(); }
  // The size of axis i, counted from 0.
  int64_t dim(int i) const { return shape_.dim(i); }
  // The product of all sizes; 1 for a scalar.
  int64_t num_elements() const { return shape_.num_elements(); }
  // Bytes of all elements; for strings the size of the string objects, not of their text.
  std::size_t num_bytes() const { return num_elements() * DataTypeSize(dtype_); }

  // True once it has a type and, unless it has no elements, a buffer.
  bool IsInitialized() const {
    return dtype_ != DataType::kInvalid && (data_ != nullptr || num_elements() == 0);
  }

  // Elements in row-major order. BadTensorAccess unless T is the C++ type of dtype() and, for
  // scalar(), there is exactly one element.
  template <typename T>
  T* data(CallSite where = CallSite::Here()) {
    if (DataTypeOf<T>() != dtype_) [[unlikely]]
      WrongType(DataTypeOf<T>(), where);
    return static_cast<T*>(data_);
  }
  // To read.
  template <typename T>
  const T* data(CallSite where = CallSite::Here()) const {
    if (DataTypeOf<T>() != dtype_) [[unlikely]]
      WrongType(DataTypeOf<T>(), where);
    return static_cast<const T*>(data_);
  }
  // All elements, as many as num_elements().
  template <typename T>
  std::span<T> flat(CallSite where = CallSite::Here()) {
    return {data<T>(where), static_cast<std::size_t>(num_elements())};
  }
  // All elements, to read.
  template <typename T>
  std::span<const T> flat(CallSite where = CallSite::Here()) const {
    return {data<T>(where), static_cast<std::size_t>(num_elements())};
  }
  // The only element, whatever the rank.
  template <typename T>
  const T& scalar(CallSite where = CallSite::Here()) const {
    if (num_elements() != 1) [[unlikely]]
      NotOneElement(where);
    return data<T>(where)[0];
  }
  // The same with InvalidArgument, for tensors whose type and shape others decide: what a graph
  // from a file yields, what came over a wire.
  template <typename T>
  StatusOr<std::span<const T>> TryFlat() const {
    if (Status status = CheckType(DataTypeOf<T>()); !status.ok()) return status;
    return std::span<const T>(static_cast<const T*>(data_),
                              static_cast<std::size_t>(num_elements()));
  }
  // The only element; InvalidArgument if there is not one of type T.
  template <typename T>
  StatusOr<T> TryScalar() const {
    if (Status status = CheckType(DataTypeOf<T>()); !status.ok()) return status;
    if (Status status = CheckOneElement(); !status.ok()) return status;
    return static_cast<const T*>(data_)[0];
  }
  // The first element as bytes, in the memory of buffer(); null if there are none.
  void* raw_data() const { return data_; }
  // What the elements lie in, which the tensor keeps; null if there are none.
  Buffer* buffer() const { return buffer_.get(); }

  // True if nobody else shares the buffer, so that it may be overwritten.
  bool OwnsBufferAlone() const { return buffer_ && buffer_->RefCountIsOne(); }

  // The same elements under another shape with as many elements (InvalidArgument if not).
  StatusOr<Tensor> Reshaped(const Shape& shape) const;
  // Rows [begin, end) of the first axis, sharing the buffer. BadTensorAccess for a scalar and
  // for a range that is not within the axis; InvalidArgument from TrySlice.
  Tensor Slice(int64_t begin, int64_t end, CallSite where = CallSite::Here()) const;
  // Slice for rows that others decide.
  StatusOr<Tensor> TrySlice(int64_t begin, int64_t end) const;
  // The same bytes as another type of equal element size; BadTensorAccess for any other.
  Tensor BitcastTo(DataType dtype, CallSite where = CallSite::Here()) const;
  // A copy with a buffer of its own.
  Tensor Clone() const;

  // "Tensor<float [2,3]: 1 2 3 ...>" with at most `max_entries` values.
  std::string DebugString(int max_entries = 10) const;

 private:
  // What the checks above are made of, in tensor.cc; the first three throw.
  [[noreturn, gnu::cold]] void WrongType(DataType asked, CallSite where) const;
  [[noreturn, gnu::cold]] void NotOneElement(CallSite where) const;
  [[noreturn, gnu::cold]] static void WrongCount(std::size_t count, DataType dtype,
                                                 const Shape& shape, CallSite where);
  static Status CheckCount(std::size_t count, DataType dtype, const Shape& shape);
  Status CheckType(DataType asked) const;
  Status CheckOneElement() const;

  Shape shape_;
  DataType dtype_ = DataType::kInvalid;
  RefPtr<Buffer> buffer_;
  void* data_ = nullptr;
};

// True if dtype, shape and all elements are equal (bitwise for plain types).
bool TensorsEqual(const Tensor& a, const Tensor& b);

}  // namespace millrace

#endif  // MILLRACE_TENSOR_H_
