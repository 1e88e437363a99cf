// SPDX-License-Identifier: Apache-2.0
// SaveV2, RestoreV2 and what belongs to them: the ops a Saver is made of.
#include <cstdio>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/filesystem.h"
#include "io/tensor_bundle.h"
#include "kernels/background.h"
#include "kernels/common/variant_codec.h"
#include "kernels/io/slice_table.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"

namespace millrace {
namespace {

Status CheckScalar(const Tensor& tensor, std::string_view what) {
  if (tensor.num_elements() == 1) return OkStatus();
  return errors::InvalidArgument(what, " should be a scalar, got shape ",
                                 tensor.shape().DebugString());
}

// Inputs 1 and 2 of SaveV2 and RestoreV2: one name and one slice per tensor.
Status CheckNames(const Tensor& names, const Tensor& slices, int count) {
  if (names.rank() != 1 || slices.rank() != 1 || names.dim(0) != count || slices.dim(0) != count) {
    return errors::InvalidArgument("tensor_names and shape_and_slices must have ", count,
                                   " elements, got shapes ", names.shape().DebugString(), " and ",
                                   slices.shape().DebugString());
  }
  return OkStatus();
}

// Has a thread of its own, so that the steps of training have theirs while a disk takes its time.
class WritingKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsAsync() const override { return true; }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    ComputeInBackground(ctx.device(), done, [this, &ctx] { return Compute(ctx); });
  }
};

class SaveKernel : public WritingKernel {
 public:
  explicit SaveKernel(KernelConstruction& c) : WritingKernel(c) {}

  Status Compute(KernelContext& ctx) override {
    constexpr int kFirst = 3;
    const Tensor& prefix = ctx.input(0);
    const Tensor& names = ctx.input(1);
    const Tensor& slices = ctx.input(2);
    MR_RETURN_IF_ERROR(CheckScalar(prefix, "prefix"));
    const int count = ctx.num_inputs() - kFirst;
    MR_RETURN_IF_ERROR(CheckNames(names, slices, count));
    // The folder of a step that has failed is deleted, and would be made anew.
    if (ctx.cancellation() != nullptr && ctx.cancellation()->IsCancelled()) {
      return errors::Cancelled("the step ended before anything was written");
    }
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleWriter> writer,
                        BundleWriter::Create(PosixFileSystem(), prefix.scalar<std::string>()));
    for (int i = 0; i < count; ++i) {
      MR_ASSIGN_OR_RETURN(const Tensor value, EncodedObjects(ctx.locked_input(kFirst + i)));
      MR_RETURN_IF_ERROR(
          writer->Save(names.data<std::string>()[i], slices.data<std::string>()[i], value));
    }
    return writer->Finish();
  }
};

class RestoreKernel : public Kernel {
 public:
  explicit RestoreKernel(KernelConstruction& c)
      : Kernel(c), dtypes_(c.attr<std::vector<DataType>>("dtypes")) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& prefix = ctx.input(0);
    const Tensor& names = ctx.input(1);
    const Tensor& slices = ctx.input(2);
    MR_RETURN_IF_ERROR(CheckScalar(prefix, "prefix"));
    const int count = ctx.num_outputs();
    MR_RETURN_IF_ERROR(CheckNames(names, slices, count));
    const std::string& path = prefix.scalar<std::string>();
    if (!PosixFileSystem()->FileExists(BundleIndexName(path))) {
      MR_ASSIGN_OR_RETURN(const bool restored, RestoreFirstFormat(ctx, path));
      if (restored) return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> reader,
                        BundleReader::Open(PosixFileSystem(), path));
    // Reading and checking of one tensor is independent of the others.
    std::vector<Status> statuses(count);
    constexpr double kNanosPerTensor = 50'000;
    ctx.ParallelFor(count, kNanosPerTensor, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        StatusOr<Tensor> tensor = reader->Restore(names.data<std::string>()[i],
                                                  slices.data<std::string>()[i], dtypes_[i]);
        if (tensor.ok()) tensor = DecodedObjects(*tensor);
        statuses[i] = tensor.status();
        if (tensor.ok()) ctx.SetOutput(static_cast<int>(i), *std::move(tensor));
      }
    });
    for (const Status& status : statuses) MR_RETURN_IF_ERROR(status);
    return OkStatus();
  }

 private:
  // A checkpoint of the first format may be given too, by name or as a pattern of names. False if
  // there is no such file either.
  StatusOr<bool> RestoreFirstFormat(KernelContext& ctx, const std::string& path) const {
    const auto reader = SliceTableReader::Open(PosixFileSystem(), path);
    if (errors::IsNotFound(reader.status())) return false;
    MR_RETURN_IF_ERROR(reader.status());
    for (int i = 0; i < ctx.num_outputs(); ++i) {
      MR_ASSIGN_OR_RETURN(Tensor tensor,
                          (*reader)->Restore(ctx.input(1).data<std::string>()[i],
                                             ctx.input(2).data<std::string>()[i], dtypes_[i]));
      ctx.SetOutput(i, std::move(tensor));
    }
    return true;
  }

  const std::vector<DataType> dtypes_;
};

// Save and SaveSlices: one file of the first format. Inputs: its name, the tensors' names, their
// slices (SaveSlices only), the tensors.
class SaveFirstFormatKernel : public WritingKernel {
 public:
  explicit SaveFirstFormatKernel(KernelConstruction& c)
      : WritingKernel(c), has_slices_(c.def().name() == "SaveSlices") {}

  Status Compute(KernelContext& ctx) override {
    const int first = has_slices_ ? 3 : 2;
    const int count = ctx.num_inputs() - first;
    MR_RETURN_IF_ERROR(CheckScalar(ctx.input(0), "filename"));
    const Tensor& names = ctx.input(1);
    MR_RETURN_IF_ERROR(CheckNames(names, ctx.input(first - 1), count));
    if (ctx.cancellation() != nullptr && ctx.cancellation()->IsCancelled()) {
      return errors::Cancelled("the step ended before anything was written");
    }
    SliceTableWriter writer;
    for (int i = 0; i < count; ++i) {
      MR_RETURN_IF_ERROR(writer.Add(
          names.data<std::string>()[i],
          has_slices_ ? std::string_view(ctx.input(2).data<std::string>()[i]) : std::string_view(),
          ctx.locked_input(first + i)));
    }
    return writer.Write(PosixFileSystem(), ctx.input(0).scalar<std::string>());
  }

 private:
  const bool has_slices_;
};

// Restore and RestoreSlice: one tensor of files of the first format.
class RestoreFirstFormatKernel : public Kernel {
 public:
  explicit RestoreFirstFormatKernel(KernelConstruction& c)
      : Kernel(c), dtype_(c.attr<DataType>("dt")) {}

  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(CheckScalar(ctx.input(0), "file_pattern"));
    MR_RETURN_IF_ERROR(CheckScalar(ctx.input(1), "tensor_name"));
    std::string_view slice;
    if (ctx.num_inputs() > 2) {
      MR_RETURN_IF_ERROR(CheckScalar(ctx.input(2), "shape_and_slice"));
      slice = ctx.input(2).scalar<std::string>();
    }
    MR_ASSIGN_OR_RETURN(
        const std::unique_ptr<SliceTableReader> reader,
        SliceTableReader::Open(PosixFileSystem(), ctx.input(0).scalar<std::string>()));
    MR_ASSIGN_OR_RETURN(Tensor tensor,
                        reader->Restore(ctx.input(1).scalar<std::string>(), slice, dtype_));
    ctx.SetOutput(0, std::move(tensor));
    return OkStatus();
  }

 private:
  const DataType dtype_;
};

class MergeCheckpointsKernel : public WritingKernel {
 public:
  explicit MergeCheckpointsKernel(KernelConstruction& c)
      : WritingKernel(c),
        delete_old_dirs_(c.attr<bool>("delete_old_dirs")),
        allow_missing_files_(c.attrs().GetOr<bool>("allow_missing_files", false)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& sources = ctx.input(0);
    const Tensor& destination = ctx.input(1);
    if (sources.rank() != 1) {
      return errors::InvalidArgument("Input checkpoint_prefixes should be a vector, got shape ",
                                     sources.shape().DebugString());
    }
    MR_RETURN_IF_ERROR(CheckScalar(destination, "destination_prefix"));
    const auto flat = sources.flat<std::string>();
    const std::vector<std::string> prefixes(flat.begin(), flat.end());
    const std::string& merged = destination.scalar<std::string>();
    FileSystem* const fs = PosixFileSystem();
    MR_RETURN_IF_ERROR(MergeBundles(fs, prefixes, merged, allow_missing_files_));
    if (!delete_old_dirs_) return OkStatus();
    std::set<std::string_view> directories;
    for (const std::string& prefix : prefixes) directories.insert(DirectoryName(prefix));
    directories.erase(DirectoryName(merged));
    directories.erase("");
    // One that still holds other files stays.
    for (const std::string_view directory : directories) {
      fs->DeleteDirectory(std::string(directory)).IgnoreError();
    }
    return OkStatus();
  }

 private:
  const bool delete_old_dirs_, allow_missing_files_;
};

class ShardedFilenameKernel : public Kernel {
 public:
  explicit ShardedFilenameKernel(KernelConstruction& c) : Kernel(c) {}

  Status Compute(KernelContext& ctx) override {
    for (int i = 0; i < 3; ++i) MR_RETURN_IF_ERROR(CheckScalar(ctx.input(i), "every input"));
    char tail[64];
    std::snprintf(tail, sizeof(tail), "-%05d-of-%05d", ctx.input(1).scalar<int32_t>(),
                  ctx.input(2).scalar<int32_t>());
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    out->data<std::string>()[0] = StrCat(ctx.input(0).scalar<std::string>(), tail);
    return OkStatus();
  }
};

// A pattern that the names of all shards match.
class ShardedFilespecKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    for (int i = 0; i < 2; ++i) MR_RETURN_IF_ERROR(CheckScalar(ctx.input(i), "every input"));
    char tail[64];
    std::snprintf(tail, sizeof(tail), "-\?\?\?\?\?-of-%05d", ctx.input(1).scalar<int32_t>());
    ctx.SetOutput(0, Tensor::Scalar<std::string>(StrCat(ctx.input(0).scalar<std::string>(), tail)));
    return OkStatus();
  }
};

}  // namespace

void RegisterSaveRestoreKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("SaveV2"), MakeKernel<SaveKernel>);
  registry.Register(KernelDef("RestoreV2"), MakeKernel<RestoreKernel>);
  registry.Register(KernelDef("Save"), MakeKernel<SaveFirstFormatKernel>);
  registry.Register(KernelDef("SaveSlices"), MakeKernel<SaveFirstFormatKernel>);
  registry.Register(KernelDef("Restore"), MakeKernel<RestoreFirstFormatKernel>);
  registry.Register(KernelDef("RestoreSlice"), MakeKernel<RestoreFirstFormatKernel>);
  registry.Register(KernelDef("MergeV2Checkpoints"), MakeKernel<MergeCheckpointsKernel>);
  registry.Register(KernelDef("ShardedFilename"), MakeKernel<ShardedFilenameKernel>);
  registry.Register(KernelDef("ShardedFilespec"), MakeKernel<ShardedFilespecKernel>);
}

}  // namespace millrace
