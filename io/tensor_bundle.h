// SPDX-License-Identifier: Apache-2.0
// Checkpoints in TensorFlow's format V2 ("tensor bundle"): PREFIX.index, a table in LevelDB's
// format from keys to entries, and PREFIX.data-SSSSS-of-NNNNN with the bytes of the tensors.
#ifndef IO_TENSOR_BUNDLE_H_
#define IO_TENSOR_BUNDLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "io/filesystem.h"
#include "io/tensor_slice.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "proto/tensor_bundle.pb.h"

namespace millrace {

// Writes one bundle of one data file. One thread at a time. Files appear under their names in
// Finish; without it nothing is left behind. A bundle of the same prefix that there was is whole
// until the new one is on the disk, whatever ends the process or the machine (io/bundle_files.h).
// Readers that are open then fail with NotFound, if they have more to read.
class BundleWriter {
 public:
  // Makes the directory of `prefix` if need be.
  static StatusOr<std::unique_ptr<BundleWriter>> Create(FileSystem* fs, std::string prefix);
  ~BundleWriter();

  // Data lie in the order of the calls. InvalidArgument "Adding duplicate key" if the key was
  // added before; Unimplemented for types that have no form in files.
  Status Add(std::string_view key, const Tensor& tensor);
  // A part of a tensor of shape `whole`. InvalidArgument if the shapes do not fit.
  Status AddSlice(std::string_view key, const Shape& whole, const TensorSlice& slice,
                  const Tensor& tensor);
  // With the slice as the op SaveV2 gives it: "" or "6 4 0,2:-".
  Status Save(std::string_view key, std::string_view shape_and_slice, const Tensor& tensor);
  Status Finish();

 private:
  BundleWriter(FileSystem* fs, std::string prefix);
  Status WriteTensor(const Tensor& tensor, pb::BundleEntryProto* entry);
  Status Append(std::string_view bytes);
  // And the checksum of all before it.
  Status AppendWithChecksum(std::string_view bytes, uint32_t* crc);

  FileSystem* const fs_;
  const std::string prefix_, temporary_;
  std::unique_ptr<WritableFile> data_;
  int64_t offset_ = 0;
  std::map<std::string, pb::BundleEntryProto> entries_;
};

// Reads a bundle. Thread-safe.
class BundleReader {
 public:
  struct Entry {
    std::string key;
    pb::BundleEntryProto proto;
  };

  // NotFound if there is no index file, DataLoss if it is damaged.
  static StatusOr<std::unique_ptr<BundleReader>> Open(FileSystem* fs, std::string prefix);

  const pb::BundleHeaderProto& header() const { return header_; }
  // Every entry, those of slices included, in key order.
  const std::vector<Entry>& entries() const { return entries_; }
  // Null if there is none.
  const pb::BundleEntryProto* Find(std::string_view key) const;

  // NotFound "Key k not found in checkpoint".
  Status Lookup(std::string_view key, DataType* dtype, Shape* shape) const;
  // The whole tensor, put together from its parts if it was stored in parts. NotFound (key or
  // data file); DataLoss with file, place and what was expected there (a wrong checksum, or a file
  // that is cut off: "Read less bytes than requested").
  StatusOr<Tensor> Read(std::string_view key) const;
  // A part of it, from whatever parts are stored. InvalidArgument "Does not have sufficient
  // slices" if they do not cover it, DataLoss if they overlap.
  StatusOr<Tensor> ReadSlice(std::string_view key, const TensorSlice& slice) const;
  // With the slice as the op RestoreV2 gives it. InvalidArgument also if the tensor is stored
  // with another dtype or another full shape.
  StatusOr<Tensor> Restore(std::string_view key, std::string_view shape_and_slice,
                           DataType dtype) const;

 private:
  BundleReader(FileSystem* fs, std::string prefix) : fs_(fs), prefix_(std::move(prefix)) {}
  Status LoadIndex();
  StatusOr<Shape> EntryShape(const pb::BundleEntryProto& entry) const;
  StatusOr<TensorSlice> StoredSlice(const pb::TensorSliceProto& proto, const Shape& whole,
                                    std::string_view key) const;
  StatusOr<const RandomAccessFile*> DataFile(int shard) const;
  // The tensor of an entry that is not stored in parts.
  std::string PlaceOf(const pb::BundleEntryProto& entry) const;
  StatusOr<Tensor> ReadEntry(const pb::BundleEntryProto& entry) const;
  Status ReadBytes(const pb::BundleEntryProto& entry, int64_t skip, std::size_t n, char* out) const;
  Status ReadStrings(const pb::BundleEntryProto& entry, Tensor* tensor) const;

  FileSystem* const fs_;
  const std::string prefix_;
  pb::BundleHeaderProto header_;
  std::vector<Entry> entries_;
  bool swap_bytes_ = false;
  mutable Mutex mu_;
  mutable std::map<int, std::unique_ptr<RandomAccessFile>> files_ ABSL_GUARDED_BY(mu_);
};

// Joins bundles into one: data files get new names, entries are united, sources deleted. Until the
// new one is on the disk, the sources and a bundle `merged` that there was are whole.
// InvalidArgument "Duplicate tensor keyed by k" if two have the same tensor. Prefixes without
// an index are skipped if `allow_missing_files`.
Status MergeBundles(FileSystem* fs, const std::vector<std::string>& prefixes,
                    const std::string& merged, bool allow_missing_files);

std::string BundleIndexName(std::string_view prefix);
std::string BundleDataName(std::string_view prefix, int shard, int num_shards);

}  // namespace millrace

#endif  // IO_TENSOR_BUNDLE_H_
