// SPDX-License-Identifier: Apache-2.0
// Checkpoints in TensorFlow's first format, as Saver(write_version=V1) and programs before 2017
// leave them: a file is a table in LevelDB's format from keys to messages, one for each stored part
// of a tensor and, under the empty key, one that says which there are (proto/saved_tensor_slice).
// A checkpoint may be several such files.
#ifndef KERNELS_IO_SLICE_TABLE_H_
#define KERNELS_IO_SLICE_TABLE_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/filesystem.h"
#include "io/tensor_slice.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "proto/saved_tensor_slice.pb.h"

namespace millrace {

// Collects what one file shall hold. One thread at a time.
class SliceTableWriter {
 public:
  // `shape_and_slice` as the op SaveSlices gives it: "" for a whole tensor, or "6 4 0,2:-".
  // InvalidArgument if it does not fit the tensor, Internal if it does not fit what has the same
  // name already, Unimplemented for types that have no form in such files.
  Status Add(const std::string& name, std::string_view shape_and_slice, const Tensor& tensor);
  // Durably, in one step.
  Status Write(FileSystem* fs, const std::string& path);

 private:
  std::map<std::string, int> place_;  // by name, in meta_
  pb::SavedTensorSlices meta_;
  std::map<std::string, std::string> values_;
};

// Reads files into memory. Thread-safe.
class SliceTableReader {
 public:
  // All files of the machine that `pattern` matches: NotFound if none does, DataLoss if one is
  // damaged, Internal if they do not fit each other.
  static StatusOr<std::unique_ptr<SliceTableReader>> Open(FileSystem* fs,
                                                          const std::string& pattern);

  // The tensor, or the part of it that the op RestoreV2 asks for, from whatever parts are stored.
  // NotFound if there is no such name; InvalidArgument if it has another type or shape, or if
  // parts are missing; DataLoss if one is damaged.
  StatusOr<Tensor> Restore(const std::string& name, std::string_view shape_and_slice,
                           DataType dtype) const;

 private:
  struct Stored {
    DataType dtype = DataType::kInvalid;
    Shape shape;
    // Each part as it is named, and the number of its file.
    std::vector<std::pair<TensorSlice, std::size_t>> parts;
  };

  explicit SliceTableReader(std::string pattern) : pattern_(std::move(pattern)) {}
  Status AddFile(FileSystem* fs, const std::string& path);
  StatusOr<Tensor> ReadPart(const std::string& name, const Stored& stored, const TensorSlice& slice,
                            std::size_t file) const;

  const std::string pattern_;
  std::vector<std::string> paths_;
  std::vector<std::map<std::string, std::string, std::less<>>> files_;
  std::map<std::string, Stored> tensors_;
};

}  // namespace millrace

#endif  // KERNELS_IO_SLICE_TABLE_H_
