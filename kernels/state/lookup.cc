// SPDX-License-Identifier: Apache-2.0
// The ops on lookup tables, in both forms: handles as resources (V2) and as references to
// strings.
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/input_stream.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/step_resource.h"
#include "kernels/host_kernels.h"
#include "kernels/state/lookup_table.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

constexpr std::string_view kAnonymous = "Anonymous";

class TableKernel : public HandleKernel<LookupTable> {
 public:
  explicit TableKernel(KernelConstruction& c) : HandleKernel<LookupTable>(c) {
    options_.kind = c.def().name();
    if (options_.kind.ends_with("V2")) options_.kind.resize(options_.kind.size() - 2);
    if (options_.kind.starts_with(kAnonymous)) options_.kind.erase(0, kAnonymous.size());
    options_.name = resource_name();
    options_.fixed = options_.kind == "HashTable";
    options_.key_dtype = c.attr<DataType>("key_dtype");
    options_.value_dtype = c.attr<DataType>("value_dtype");
    const auto shape = c.attrs().GetOr<PartialShape>("value_shape", PartialShape({})).AsShape();
    if (!shape) {
      c.SetError(errors::InvalidArgument("value_shape must be fully defined"));
    } else {
      options_.value_shape = *shape;
    }
    if (options_.kind == "MutableHashTableOfTensors" && options_.value_shape.rank() != 1) {
      c.SetError(errors::InvalidArgument("Default value must be a vector, got shape ",
                                         options_.value_shape.DebugString()));
    }
    for (const DataType type : {options_.key_dtype, options_.value_dtype}) {
      if (type != kString && !IsMemcpyable(type)) {
        c.SetError(
            errors::InvalidArgument("a table cannot hold elements of type ", DataTypeName(type)));
      }
    }
  }

 protected:
  virtual StatusOr<LookupTable::Options> OptionsFor(KernelContext&) { return options_; }
  StatusOr<RefPtr<LookupTable>> Make() override { return MakeRef<LookupTable>(options_); }
  Status CheckSame(const LookupTable& existing) const override {
    const LookupTable::Options& o = existing.options();
    if (o.kind == options_.kind && o.key_dtype == options_.key_dtype &&
        o.value_dtype == options_.value_dtype && o.value_shape == options_.value_shape) {
      return OkStatus();
    }
    return errors::InvalidArgument(
        "Conflicting key/value dtypes ", DataTypeName(options_.key_dtype), "->",
        DataTypeName(options_.value_dtype), " with ", DataTypeName(o.key_dtype), "-",
        DataTypeName(o.value_dtype), " for table ", resource_name());
  }

  LookupTable::Options options_;
};

// A new table for each step, gone with it. `Base` says what a table is like.
template <typename Base>
class AnonymousTableKernel : public Base {
 public:
  using Base::Base;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(LookupTable::Options options, this->OptionsFor(ctx));
    RefPtr<LookupTable> table = MakeRef<LookupTable>(std::move(options));
    MR_ASSIGN_OR_RETURN(Tensor handle, AddStepResource(ctx, "table", std::move(table)));
    ctx.SetOutput(0, std::move(handle));
    return OkStatus();
  }
};

// MutableDenseHashTable: two keys are given up for marks, which this table does not need but
// refuses all the same; and the number of buckets is seen by whoever exports it.
class DenseTableKernel : public TableKernel {
 public:
  explicit DenseTableKernel(KernelConstruction& c) : TableKernel(c) {
    options_.buckets = c.attr<int64_t>("initial_num_buckets");
    options_.max_load = c.attr<float>("max_load_factor");
    if (options_.buckets < 4 || (options_.buckets & (options_.buckets - 1)) != 0) {
      c.SetError(errors::InvalidArgument("Number of buckets must be at least 4 and a power of 2, ",
                                         "got: ", options_.buckets));
    }
    if (!(options_.max_load > 0 && options_.max_load < 1)) {
      c.SetError(errors::InvalidArgument("max_load_factor must be between 0 and 1, got: ",
                                         options_.max_load));
    }
  }
  Status Compute(KernelContext& ctx) override {
    MutexLock lock(&mu_);
    MR_ASSIGN_OR_RETURN(options_, OptionsFor(ctx));
    return TableKernel::Compute(ctx);
  }

 protected:
  StatusOr<LookupTable::Options> OptionsFor(KernelContext& ctx) override {
    // The first form of the op has no deleted key.
    const Tensor& empty = ctx.input(0);
    const Tensor deleted = ctx.num_inputs() > 1 ? ctx.input(1) : Tensor();
    if (deleted.IsInitialized() && !(empty.shape() == deleted.shape())) {
      return errors::InvalidArgument(
          "Empty and deleted keys must have same shape, got shapes: ", empty.shape().DebugString(),
          " and ", deleted.shape().DebugString());
    }
    if (TensorsEqual(empty, deleted)) {
      return errors::InvalidArgument("Empty and deleted keys cannot be equal");
    }
    LookupTable::Options options = options_;
    options.empty_key = empty;
    options.deleted_key = deleted;
    options.key_shape = empty.shape();
    return options;
  }

 private:
  Mutex mu_;
};

class TableFindKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, LookupHandle<LookupTable>(ctx, 0));
    MR_ASSIGN_OR_RETURN(Tensor values,
                        table->Find(ctx.allocator(), ctx.locked_input(1), ctx.locked_input(2)));
    ctx.SetOutput(0, std::move(values));
    return OkStatus();
  }
};

// What changes a table by a tensor of keys and one of values.
template <Status (LookupTable::*kChange)(const Tensor&, const Tensor&)>
class TableChangeKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, LookupHandle<LookupTable>(ctx, 0));
    return ((*table).*kChange)(ctx.locked_input(1), ctx.locked_input(2));
  }
};

class TableInitializeKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, LookupHandle<LookupTable>(ctx, 0));
    const Tensor keys = ctx.locked_input(1), values = ctx.locked_input(2);
    if (keys.rank() != 1) {
      return errors::InvalidArgument("Keys must be a vector, but received shape ",
                                     keys.shape().DebugString());
    }
    if (!(values.shape() == keys.shape())) {
      return errors::InvalidArgument("Values must be a vector of the same size as keys, but ",
                                     "received shapes ", keys.shape().DebugString(), " and ",
                                     values.shape().DebugString());
    }
    if (!table->options().fixed) {
      return errors::InvalidArgument("Table ", table->options().name, " is not initializable");
    }
    if (keys.num_elements() == 0) {
      return errors::InvalidArgument("keys and values cannot be empty tensors.");
    }
    return table->Initialize(keys, values);
  }
};

class TableRemoveKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, LookupHandle<LookupTable>(ctx, 0));
    return table->Remove(ctx.locked_input(1));
  }
};

class TableSizeKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, LookupHandle<LookupTable>(ctx, 0));
    ctx.SetOutput(0, Tensor::Scalar<int64_t>(table->size()));
    return OkStatus();
  }
};

class TableExportKernel : public Kernel {
 public:
  explicit TableExportKernel(KernelConstruction& c)
      : Kernel(c),
        key_dtype_(c.attr<DataType>("Tkeys")),
        value_dtype_(c.attr<DataType>("Tvalues")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, LookupHandle<LookupTable>(ctx, 0));
    const LookupTable::Options& o = table->options();
    if (o.key_dtype != key_dtype_ || o.value_dtype != value_dtype_) {
      return errors::InvalidArgument("the table maps ", DataTypeName(o.key_dtype), " to ",
                                     DataTypeName(o.value_dtype), ", not ",
                                     DataTypeName(key_dtype_), " to ", DataTypeName(value_dtype_));
    }
    Tensor keys, values;
    MR_RETURN_IF_ERROR(table->Export(ctx.allocator(), &keys, &values));
    ctx.SetOutput(0, std::move(keys));
    ctx.SetOutput(1, std::move(values));
    return OkStatus();
  }

 private:
  const DataType key_dtype_, value_dtype_;
};

// --- Vocabulary files ------------------------------------------------------------------------

constexpr int64_t kWholeLine = -2, kLineNumber = -1;

// The elements of one column of a text file, as they are read.
class TextColumn {
 public:
  TextColumn(DataType dtype, int64_t index) : dtype_(dtype), index_(index) {}

  Status Check(std::string_view what) const {
    const bool fits = index_ == kWholeLine ? dtype_ == kString || dtype_ == kInt64
                      : index_ == kLineNumber
                          ? dtype_ == kInt64 || dtype_ == kInt32
                          : dtype_ == kString || dtype_ == kInt64 || dtype_ == kInt32 ||
                                dtype_ == kFloat || dtype_ == kDouble;
    if (index_ >= kWholeLine && fits) return OkStatus();
    return errors::InvalidArgument(what, " index ", index_, " of a text file cannot give a ",
                                   DataTypeName(dtype_));
  }

  Status Add(const std::string& line, const std::vector<std::string_view>& fields, int64_t number) {
    if (index_ == kWholeLine) return AddField(line, number);
    if (index_ == kLineNumber) return AddNumber(number, static_cast<double>(number));
    if (index_ >= static_cast<int64_t>(fields.size())) {
      return errors::InvalidArgument("Invalid number of columns in line ", number, " (", line,
                                     ") : expected at least ", index_ + 1, " got ", fields.size());
    }
    return AddField(fields[index_], number);
  }

  StatusOr<Tensor> Take() {
    if (dtype_ == kString) {
      return Tensor::FromValues<std::string>(strings_,
                                             Shape({static_cast<int64_t>(strings_.size())}));
    }
    const auto n = static_cast<int64_t>(bytes_.size() / DataTypeSize(dtype_));
    MR_ASSIGN_OR_RETURN(Tensor t, Tensor::Allocate(HostAllocator(), dtype_, Shape({n})));
    if (n > 0) std::memcpy(t.raw_data(), bytes_.data(), bytes_.size());
    return t;
  }

 private:
  Status AddField(std::string_view field, int64_t number) {
    if (dtype_ == kString) {
      strings_.emplace_back(field);
      return OkStatus();
    }
    int64_t integer = 0;
    double number_value = 0;
    const bool good =
        IsInteger(dtype_) ? ParseInt64(field, &integer) : ParseDouble(field, &number_value);
    if (!good || (dtype_ == kInt32 && integer != static_cast<int32_t>(integer))) {
      return errors::InvalidArgument("Field ", field, " in line ", number, " is not a valid ",
                                     DataTypeName(dtype_), ".");
    }
    return AddNumber(integer, number_value);
  }

  Status AddNumber(int64_t integer, double number) {
    const auto append = [this](auto value) {
      bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    if (dtype_ == kInt64) append(integer);
    if (dtype_ == kInt32) append(static_cast<int32_t>(integer));
    if (dtype_ == kFloat) append(static_cast<float>(number));
    if (dtype_ == kDouble) append(number);
    return OkStatus();
  }

  const DataType dtype_;
  const int64_t index_;
  std::vector<std::string> strings_;
  std::string bytes_;
};

class TableFromTextFileKernel : public Kernel {
 public:
  explicit TableFromTextFileKernel(KernelConstruction& c)
      : Kernel(c),
        key_index_(c.attr<int64_t>("key_index")),
        value_index_(c.attr<int64_t>("value_index")),
        vocab_size_(c.attr<int64_t>("vocab_size")),
        offset_(c.attrs().GetOr<int64_t>("offset", 0)),
        delimiter_(c.attr<std::string>("delimiter")) {
    if (delimiter_.size() != 1)
      c.SetError(errors::InvalidArgument("delimiter should be only 1 char"));
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, LookupHandle<LookupTable>(ctx, 0));
    const Tensor filename = ctx.locked_input(1);
    if (filename.num_elements() != 1) {
      return errors::InvalidArgument("filename should be a single string, but got ",
                                     filename.shape().DebugString());
    }
    const LookupTable::Options& o = table->options();
    TextColumn keys(o.key_dtype, key_index_), values(o.value_dtype, value_index_);
    MR_RETURN_IF_ERROR(keys.Check("key"));
    MR_RETURN_IF_ERROR(values.Check("value"));
    MR_RETURN_IF_ERROR(Read(filename.scalar<std::string>(), &keys, &values));
    MR_ASSIGN_OR_RETURN(const Tensor key_tensor, keys.Take());
    MR_ASSIGN_OR_RETURN(const Tensor value_tensor, values.Take());
    return table->Initialize(key_tensor, value_tensor);
  }

 private:
  Status Read(const std::string& path, TextColumn* keys, TextColumn* values) const {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<InputStream> stream,
                        OpenInputStream(PosixFileSystem(), path, ""));
    BufferedInput input(std::move(stream));
    std::string line;
    for (int64_t i = 0; i < offset_; ++i) MR_RETURN_IF_ERROR(input.ReadLine(&line));
    int64_t number = 0;
    for (; vocab_size_ < 0 || number < vocab_size_; ++number) {
      const Status status = input.ReadLine(&line);
      if (errors::IsOutOfRange(status)) break;
      MR_RETURN_IF_ERROR(status);
      std::vector<std::string_view> fields;
      if (key_index_ >= 0 || value_index_ >= 0) fields = StrSplit(line, delimiter_[0]);
      MR_RETURN_IF_ERROR(keys->Add(line, fields, number));
      MR_RETURN_IF_ERROR(values->Add(line, fields, number));
    }
    if (vocab_size_ >= 0 && number < vocab_size_) {
      return errors::InvalidArgument("Invalid vocab_size in ", path, ": expected ", vocab_size_,
                                     " but got ", number);
    }
    return OkStatus();
  }

  const int64_t key_index_, value_index_, vocab_size_, offset_;
  const std::string delimiter_;
};

// Fixed tables have certain pairs of types only, as TensorFlow's: its clients count on the refusal.
template <typename K>
void RegisterFixed(KernelRegistry& registry, const std::string& op) {
  const auto add = [&](std::vector<DataType> keys, std::vector<DataType> values) {
    registry.Register(
        KernelDef(op).Types("key_dtype", std::move(keys)).Types("value_dtype", std::move(values)),
        MakeKernel<K>);
  };
  add({kString}, {kString, kInt32, kInt64, kFloat, kDouble, kBool});
  add({kInt32}, {kString, kInt32, kFloat, kDouble});
  add({kInt64}, {kString, kInt32, kInt64, kFloat, kDouble});
}

}  // namespace

void RegisterLookupKernels(KernelRegistry& registry) {
  for (const char* version : {"", "V2"}) {
    const auto add = [&](const char* op, KernelFactory factory) {
      registry.Register(KernelDef(StrCat(op, version)), factory);
    };
    RegisterFixed<TableKernel>(registry, StrCat("HashTable", version));
    add("MutableHashTable", MakeKernel<TableKernel>);
    add("MutableHashTableOfTensors", MakeKernel<TableKernel>);
    add("MutableDenseHashTable", MakeKernel<DenseTableKernel>);
    add("InitializeTable", MakeKernel<TableInitializeKernel>);
    add("InitializeTableFromTextFile", MakeKernel<TableFromTextFileKernel>);
    add("LookupTableFind", MakeKernel<TableFindKernel>);
    add("LookupTableInsert", MakeKernel<TableChangeKernel<&LookupTable::Insert>>);
    add("LookupTableImport", MakeKernel<TableChangeKernel<&LookupTable::Import>>);
    add("LookupTableSize", MakeKernel<TableSizeKernel>);
    add("LookupTableExport", MakeKernel<TableExportKernel>);
  }
  RegisterFixed<AnonymousTableKernel<TableKernel>>(registry, "AnonymousHashTable");
  RegisterCpu<AnonymousTableKernel<TableKernel>>(registry, "AnonymousMutableHashTable");
  RegisterCpu<AnonymousTableKernel<TableKernel>>(registry, "AnonymousMutableHashTableOfTensors");
  RegisterCpu<AnonymousTableKernel<DenseTableKernel>>(registry, "AnonymousMutableDenseHashTable");
  RegisterCpu<TableRemoveKernel>(registry, "LookupTableRemoveV2");
}

}  // namespace millrace
