// SPDX-License-Identifier: Apache-2.0
// Data sets that begin a pipeline: tensors, ranges, files of records, lines and blocks.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/input_stream.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"
#include "kernels/data/pipeline.h"
#include "kernels/data/walk_seeds.h"

namespace millrace {
namespace {

std::vector<DataType> TypesOf(const std::vector<Tensor>& tensors) {
  std::vector<DataType> types;
  for (const Tensor& t : tensors) types.push_back(t.dtype());
  return types;
}

// TensorDataset: its components are the only element. TensorSliceDataset: their rows.
class TensorsDataset : public DatasetValue {
 public:
  TensorsDataset(std::vector<Tensor> components, bool slices)
      : DatasetValue(TypesOf(components)), components_(std::move(components)), slices_(slices) {}
  int64_t cardinality() const override { return slices_ ? components_[0].dim(0) : 1; }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    return DatasetWalkPtr(new Iterator(RefPtr<const TensorsDataset>::Share(this)));
  }

 private:
  class Iterator : public DatasetWalk, public SkipsElements {
   public:
    explicit Iterator(RefPtr<const TensorsDataset> dataset) : dataset_(std::move(dataset)) {}
    Status Skip(const DatasetCall&, int64_t count, int64_t* skipped) override {
      *skipped = std::min(count, dataset_->cardinality() - at_);
      at_ += *skipped;
      return OkStatus();
    }
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      if (at_ >= dataset_->cardinality()) {
        *end = true;
        return OkStatus();
      }
      for (const Tensor& t : dataset_->components_) {
        if (!dataset_->slices_) {
          element->push_back(t);
          continue;
        }
        MR_ASSIGN_OR_RETURN(Tensor row, CopyOfRow(call.allocator, t, at_));
        element->push_back(std::move(row));
      }
      ++at_;
      return OkStatus();
    }

   private:
    const RefPtr<const TensorsDataset> dataset_;
    int64_t at_ = 0;
  };

  const std::vector<Tensor> components_;
  const bool slices_;
};

class TensorsDatasetKernel : public DatasetKernel {
 public:
  explicit TensorsDatasetKernel(KernelConstruction& c)
      : DatasetKernel(c), slices_(c.def().name() == "TensorSliceDataset") {}

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    std::vector<Tensor> components;
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      components.push_back(ctx.locked_input(i));
      const Tensor& t = components.back();
      if (slices_ && (t.rank() < 1 || t.dim(0) != components[0].dim(0))) {
        return errors::InvalidArgument("All components must have at least one dimension, of the ",
                                       "same size; component ", i, " has shape ",
                                       t.shape().DebugString());
      }
    }
    return RefPtr<DatasetValue>(MakeRef<TensorsDataset>(std::move(components), slices_));
  }

 private:
  const bool slices_;
};

class RangeDataset : public DatasetValue {
 public:
  RangeDataset(DataType dtype, int64_t start, int64_t stop, int64_t step)
      : DatasetValue({dtype}), start_(start), step_(step) {
    const auto span = static_cast<__int128>(stop) - start;
    if ((span > 0) == (step > 0) && span != 0) {
      const __int128 count = (span + step + (step > 0 ? -1 : 1)) / step;
      count_ = static_cast<int64_t>(std::min<__int128>(count, INT64_MAX));
    }
  }
  int64_t cardinality() const override { return count_; }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    return DatasetWalkPtr(new Iterator(types()[0], start_, step_, count_));
  }

 private:
  class Iterator : public DatasetWalk, public SkipsElements {
   public:
    Iterator(DataType dtype, int64_t start, int64_t step, int64_t count)
        : dtype_(dtype), value_(start), step_(step), left_(count) {}
    Status Skip(const DatasetCall&, int64_t count, int64_t* skipped) override {
      *skipped = std::min(count, left_);
      left_ -= *skipped;
      // Of the one behind the last there is no need to know the value, and it may be none.
      if (left_ > 0) value_ += *skipped * step_;
      return OkStatus();
    }
    Status Next(const DatasetCall&, DatasetElement* element, bool* end) override {
      if (left_ == 0) {
        *end = true;
        return OkStatus();
      }
      element->push_back(dtype_ == kInt32 ? Tensor::Scalar(static_cast<int32_t>(value_))
                                          : Tensor::Scalar<int64_t>(value_));
      if (--left_ > 0) value_ += step_;
      return OkStatus();
    }

   private:
    const DataType dtype_;
    int64_t value_;
    const int64_t step_;
    int64_t left_;
  };

  const int64_t start_, step_;
  int64_t count_ = 0;
};

class RangeDatasetKernel : public DatasetKernel {
 public:
  explicit RangeDatasetKernel(KernelConstruction& c) : DatasetKernel(c) {
    const auto types = c.attr<std::vector<DataType>>("output_types");
    if (types.size() != 1 || (types[0] != kInt64 && types[0] != kInt32)) {
      c.SetError(errors::InvalidArgument("a range has one component, of type int64 or int32"));
    } else {
      dtype_ = types[0];
    }
  }

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int64_t start, IntScalar(ctx.input(0), "start"));
    MR_ASSIGN_OR_RETURN(const int64_t stop, IntScalar(ctx.input(1), "stop"));
    MR_ASSIGN_OR_RETURN(const int64_t step, IntScalar(ctx.input(2), "step"));
    if (step == 0) return errors::InvalidArgument("step must be a non-zero integer.");
    return RefPtr<DatasetValue>(MakeRef<RangeDataset>(dtype_, start, stop, step));
  }

 private:
  DataType dtype_ = kInt64;
};

// Numbers below 2^32 without end; every iterator begins anew, or with seeds of its own.
class RandomDataset : public DatasetValue, public KeepsState {
 public:
  RandomDataset(uint64_t seed, uint64_t seed2)
      : DatasetValue({kInt64}), seeds_{static_cast<int64_t>(seed), static_cast<int64_t>(seed2)} {}
  int64_t cardinality() const override { return kInfinite; }
  explicit RandomDataset(RefPtr<WalkSeeds> each) : DatasetValue({kInt64}), each_(std::move(each)) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    if (each_) {
      const auto [seed, seed2] = each_->NewSeeds();
      return DatasetWalkPtr(new Iterator(Philox(seed, seed2)));
    }
    MutexLock lock(&mu_);
    return DatasetWalkPtr(
        new Iterator(Philox(static_cast<uint64_t>(seeds_[0]), static_cast<uint64_t>(seeds_[1]))));
  }
  std::string SaveState() const override {
    if (each_) return each_->Save();
    MutexLock lock(&mu_);
    return JoinStates({StrCat(seeds_[0]), StrCat(seeds_[1])});
  }
  Status RestoreState(std::string_view state) const override {
    if (each_) return each_->Restore(state);
    MR_ASSIGN_OR_RETURN(const std::vector<std::string> numbers, SplitStates(state));
    int64_t seed = 0, seed2 = 0;
    if (numbers.size() != 2 || !ParseInt64(numbers[0], &seed) || !ParseInt64(numbers[1], &seed2)) {
      return errors::InvalidArgument("this is not what a data set of random numbers keeps");
    }
    MutexLock lock(&mu_);
    seeds_ = {seed, seed2};
    return OkStatus();
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    explicit Iterator(const Philox& generator) : generator_(generator) {}
    Status Next(const DatasetCall&, DatasetElement* element, bool*) override {
      if (used_ == words_.size()) {
        words_ = generator_();
        used_ = 0;
      }
      element->push_back(Tensor::Scalar<int64_t>(words_[used_++]));
      return OkStatus();
    }

   private:
    Philox generator_;
    Philox::Result words_{};
    std::size_t used_ = std::tuple_size_v<Philox::Result>;
  };

  const RefPtr<WalkSeeds> each_;  // null: always the same
  mutable Mutex mu_;
  mutable std::array<int64_t, 2> seeds_ ABSL_GUARDED_BY(mu_){};
};

class RandomDatasetKernel : public DatasetKernel {
 public:
  explicit RandomDatasetKernel(KernelConstruction& c)
      : DatasetKernel(c), anew_(c.attrs().GetOr<bool>("rerandomize_each_iteration", false)) {}

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int64_t seed, IntScalar(ctx.input(0), "seed"));
    MR_ASSIGN_OR_RETURN(const int64_t seed2, IntScalar(ctx.input(1), "seed2"));
    if (ctx.num_inputs() == 3) {
      RefPtr<WalkSeeds> given = SeedsOfInput(ctx, 2);
      if (!given && anew_) given = MakeWalkSeeds(seed, seed2, /*reshuffle=*/true);
      if (given) return RefPtr<DatasetValue>(MakeRef<RandomDataset>(std::move(given)));
    }
    if (seed == 0 && seed2 == 0) {
      return RefPtr<DatasetValue>(MakeRef<RandomDataset>(RandomId(), RandomId()));
    }
    return RefPtr<DatasetValue>(
        MakeRef<RandomDataset>(static_cast<uint64_t>(seed), static_cast<uint64_t>(seed2)));
  }

 private:
  const bool anew_;
};

// --- Files ------------------------------------------------------------------------------------

// How files are taken apart: called with the next one, gives its records one by one.
class FileFormat : public RefCounted {
 public:
  class Open {
   public:
    virtual ~Open() = default;
    virtual Status Read(std::string* record) = 0;  // OutOfRange at the end
  };
  virtual StatusOr<std::unique_ptr<Open>> OpenFile(const std::string& path,
                                                   std::size_t index) const = 0;
};

class FilesDataset : public DatasetValue {
 public:
  FilesDataset(std::vector<std::string> paths, RefPtr<const FileFormat> format)
      : DatasetValue({kString}), paths_(std::move(paths)), format_(std::move(format)) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    return DatasetWalkPtr(new Iterator(RefPtr<const FilesDataset>::Share(this)));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    explicit Iterator(RefPtr<const FilesDataset> dataset) : dataset_(std::move(dataset)) {}
    Status Next(const DatasetCall&, DatasetElement* element, bool* end) override {
      for (;;) {
        if (!open_) {
          if (next_ == dataset_->paths_.size()) {
            *end = true;
            return OkStatus();
          }
          const std::size_t index = next_++;
          MR_ASSIGN_OR_RETURN(open_, dataset_->format_->OpenFile(dataset_->paths_[index], index));
        }
        Tensor record(kString, Shape());
        const Status status = open_->Read(record.data<std::string>());
        if (status.ok()) {
          element->push_back(std::move(record));
          return OkStatus();
        }
        open_.reset();
        if (!errors::IsOutOfRange(status)) return status;
      }
    }

   private:
    const RefPtr<const FilesDataset> dataset_;
    std::size_t next_ = 0;
    std::unique_ptr<FileFormat::Open> open_;
  };

  const std::vector<std::string> paths_;
  const RefPtr<const FileFormat> format_;
};

struct StreamOptions {
  std::string compression;
  std::size_t buffer_bytes = 256 << 10;

  StatusOr<std::unique_ptr<InputStream>> Open(const std::string& path) const {
    return OpenInputStream(PosixFileSystem(), path, compression, buffer_bytes);
  }
};

class RecordFormat : public FileFormat {
 public:
  RecordFormat(StreamOptions options, std::vector<int64_t> offsets)
      : options_(std::move(options)), offsets_(std::move(offsets)) {}
  StatusOr<std::unique_ptr<Open>> OpenFile(const std::string& path,
                                           std::size_t index) const override {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<InputStream> stream, options_.Open(path));
    std::string skipped;
    int64_t left = index < offsets_.size() ? offsets_[index] : 0;
    while (left > 0) {
      skipped.resize(std::min<int64_t>(left, 1 << 20));
      MR_ASSIGN_OR_RETURN(const std::size_t got, stream->Read(skipped.size(), skipped.data()));
      if (got == 0) break;
      left -= static_cast<int64_t>(got);
    }
    return std::unique_ptr<Open>(new OpenRecords(path, std::move(stream)));
  }

 private:
  class OpenRecords : public Open {
   public:
    OpenRecords(const std::string& path, std::unique_ptr<InputStream> stream)
        : reader_(std::move(stream), path) {}
    Status Read(std::string* record) override { return reader_.ReadRecord(record); }

   private:
    RecordReader reader_;
  };

  const StreamOptions options_;
  const std::vector<int64_t> offsets_;
};

class LineFormat : public FileFormat {
 public:
  explicit LineFormat(StreamOptions options) : options_(std::move(options)) {}
  StatusOr<std::unique_ptr<Open>> OpenFile(const std::string& path, std::size_t) const override {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<InputStream> stream, options_.Open(path));
    return std::unique_ptr<Open>(new OpenLines(std::move(stream)));
  }

 private:
  class OpenLines : public Open {
   public:
    explicit OpenLines(std::unique_ptr<InputStream> stream) : input_(std::move(stream)) {}
    Status Read(std::string* record) override { return input_.ReadLine(record); }

   private:
    BufferedInput input_;
  };

  const StreamOptions options_;
};

// Blocks of one size between a header and a footer.
class BlockFormat : public FileFormat {
 public:
  BlockFormat(StreamOptions options, int64_t header, int64_t record, int64_t footer)
      : options_(std::move(options)), header_(header), record_(record), footer_(footer) {}
  StatusOr<std::unique_ptr<Open>> OpenFile(const std::string& path, std::size_t) const override {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<InputStream> stream, options_.Open(path));
    auto open = std::make_unique<OpenBlocks>(path, std::move(stream), record_, footer_);
    MR_RETURN_IF_ERROR(open->SkipHeader(header_));
    return std::unique_ptr<Open>(std::move(open));
  }

 private:
  // Keeps the footer's number of bytes back: they may be the last ones.
  class OpenBlocks : public Open {
   public:
    OpenBlocks(const std::string& path, std::unique_ptr<InputStream> stream, int64_t record,
               int64_t footer)
        : path_(path), input_(std::move(stream)), record_(record), footer_(footer) {}
    Status SkipHeader(int64_t bytes) {
      MR_ASSIGN_OR_RETURN(const bool there, input_.Skip(bytes));
      if (there) return OkStatus();
      return errors::InvalidArgument("The header of ", path_, " has fewer than ", bytes, " bytes");
    }
    Status Read(std::string* record) override {
      std::string more;
      MR_RETURN_IF_ERROR(input_.ReadUpTo(record_ + footer_ - held_.size(), &more));
      held_ += more;
      if (static_cast<int64_t>(held_.size()) < record_ + footer_) {
        if (static_cast<int64_t>(held_.size()) <= footer_) return errors::OutOfRange("end of file");
        return errors::InvalidArgument("Excluding the header and the footer, ", path_,
                                       " does not have a multiple of ", record_, " bytes");
      }
      record->assign(held_, 0, record_);
      held_.erase(0, record_);
      return OkStatus();
    }

   private:
    const std::string path_;
    BufferedInput input_;
    const int64_t record_, footer_;
    std::string held_;
  };

  const StreamOptions options_;
  const int64_t header_, record_, footer_;
};

class FilesDatasetKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    const Tensor& names = ctx.input(0);
    if (names.rank() > 1) {
      return errors::InvalidArgument("`filenames` must be a scalar or a vector, got shape ",
                                     names.shape().DebugString());
    }
    const auto flat = names.flat<std::string>();
    std::vector<std::string> paths(flat.begin(), flat.end());
    const bool blocks = def().name() == "FixedLengthRecordDatasetV2";
    StreamOptions options;
    const Tensor& compression = ctx.input(blocks ? 5 : 1);
    if (compression.num_elements() != 1) {
      return errors::InvalidArgument("compression_type must be a scalar");
    }
    options.compression = compression.scalar<std::string>();
    MR_RETURN_IF_ERROR(CheckCompression(options.compression));
    MR_ASSIGN_OR_RETURN(const int64_t buffer, IntScalar(ctx.input(blocks ? 4 : 2), "buffer_size"));
    if (buffer < -1) {  // -1: as we like
      return errors::InvalidArgument("`buffer_size` must be >= 0 (0 == no buffering)");
    }
    if (buffer > 0) options.buffer_bytes = std::clamp<int64_t>(buffer, 4096, 64 << 20);
    MR_ASSIGN_OR_RETURN(RefPtr<const FileFormat> format, Format(ctx, std::move(options)));
    return RefPtr<DatasetValue>(MakeRef<FilesDataset>(std::move(paths), std::move(format)));
  }

 private:
  StatusOr<RefPtr<const FileFormat>> Format(const KernelContext& ctx, StreamOptions options) const {
    const std::string& op = def().name();
    if (op == "TextLineDataset") {
      return RefPtr<const FileFormat>(MakeRef<LineFormat>(std::move(options)));
    }
    if (op == "FixedLengthRecordDatasetV2") {
      MR_ASSIGN_OR_RETURN(const int64_t header, IntScalar(ctx.input(1), "header_bytes"));
      MR_ASSIGN_OR_RETURN(const int64_t record, IntScalar(ctx.input(2), "record_bytes"));
      MR_ASSIGN_OR_RETURN(const int64_t footer, IntScalar(ctx.input(3), "footer_bytes"));
      if (header < 0 || record <= 0 || footer < 0) {
        return errors::InvalidArgument("`record_bytes` must be > 0, the other sizes >= 0");
      }
      return RefPtr<const FileFormat>(
          MakeRef<BlockFormat>(std::move(options), header, record, footer));
    }
    std::vector<int64_t> offsets;
    if (op == "TFRecordDatasetV2") {
      MR_ASSIGN_OR_RETURN(const Dims given, IntVector(ctx.input(3), "byte_offsets"));
      offsets.assign(given.begin(), given.end());
    }
    return RefPtr<const FileFormat>(MakeRef<RecordFormat>(std::move(options), std::move(offsets)));
  }
};

}  // namespace

void RegisterSourceDatasets(KernelRegistry& r) {
  RegisterCpu<TensorsDatasetKernel>(r, "TensorDataset");
  RegisterCpu<TensorsDatasetKernel>(r, "TensorSliceDataset");
  RegisterCpu<RangeDatasetKernel>(r, "RangeDataset");
  RegisterCpu<RandomDatasetKernel>(r, "RandomDataset");
  RegisterCpu<RandomDatasetKernel>(r, "RandomDatasetV2");
  for (const char* op :
       {"TFRecordDataset", "TFRecordDatasetV2", "TextLineDataset", "FixedLengthRecordDatasetV2"}) {
    RegisterCpu<FilesDatasetKernel>(r, op);
  }
}

}  // namespace millrace
