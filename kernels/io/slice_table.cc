// SPDX-License-Identifier: Apache-2.0
#include "kernels/io/slice_table.h"

#include <algorithm>
#include <climits>
#include <functional>
#include <optional>
#include <set>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/bundle_index.h"
#include "kernels/io/match_files.h"
#include "tensor/allocator.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

// Those that TensorFlow's readers of this format know.
bool HasForm(DataType dtype) {
  switch (dtype) {
    case kFloat:
    case kDouble:
    case kHalf:
    case kInt8:
    case kInt16:
    case kInt32:
    case kInt64:
    case kUint8:
    case kUint16:
    case kBool:
    case kString:
    case kComplex64:
    case kComplex128:
    case DataType::kQint8:
    case DataType::kQuint8:
    case DataType::kQint32:
      return true;
    default:
      return false;
  }
}

// How many elements the lists of a message hold.
int64_t CountValues(const pb::TensorProto& data) {
  return int64_t{data.float_val_size()} + data.double_val_size() + data.half_val_size() +
         data.int_val_size() + data.int64_val_size() + data.bool_val_size() +
         data.string_val_size() + data.scomplex_val_size() / 2 + data.dcomplex_val_size() / 2;
}

Status Damaged(const std::string& path, std::string_view what) {
  return errors::DataLoss("the checkpoint file ", path, " is damaged: ", what);
}

}  // namespace

Status SliceTableWriter::Add(const std::string& name, std::string_view shape_and_slice,
                             const Tensor& tensor) {
  if (!HasForm(tensor.dtype())) {
    return errors::Unimplemented("Saving data type ", DataTypeName(tensor.dtype()),
                                 " not yet supported in a checkpoint of the first format");
  }
  Shape whole = tensor.shape();
  TensorSlice slice = TensorSlice::Whole(tensor.rank());
  if (!shape_and_slice.empty()) {
    MR_RETURN_IF_ERROR(ParseShapeAndSlice(shape_and_slice, &whole, &slice));
    MR_ASSIGN_OR_RETURN(const Shape part, slice.ShapeIn(whole));
    if (!(part == tensor.shape())) {
      return errors::InvalidArgument(
          "Slice in shape_and_slice specification does not match the shape of the tensor to  "
          "save: ",
          shape_and_slice, ", tensor: ", tensor.shape().DebugString());
    }
  }
  pb::SavedTensorSliceMeta* const all = meta_.mutable_meta();
  const auto [at, is_new] = place_.emplace(name, all->tensor_size());
  pb::SavedSliceMeta* const meta = is_new ? all->add_tensor() : all->mutable_tensor(at->second);
  if (is_new) {
    meta->set_name(name);
    ShapeToProto(whole, meta->mutable_shape());
    meta->set_type(static_cast<pb::DataType>(tensor.dtype()));
  }
  const auto dtype = static_cast<DataType>(meta->type());
  if (dtype != tensor.dtype()) {
    return errors::Internal("Mismatching types: existing type = ", DataTypeName(dtype),
                            ", trying to add name ", name,
                            ", type = ", DataTypeName(tensor.dtype()));
  }
  if (!(ShapeFromProto(meta->shape()).AsShape() == std::optional<Shape>(whole))) {
    return errors::Internal(
        "Mismatching shapes: existing tensor = ", ShapeFromProto(meta->shape()).DebugString(),
        ", trying to add name ", name, ", shape ", whole.DebugString());
  }
  slice.ToProto(meta->add_slice());
  pb::SavedTensorSlices entry;
  pb::SavedSlice* const data = entry.mutable_data();
  data->set_name(name);
  slice.ToProto(data->mutable_slice());
  TensorToReadableProto(tensor, data->mutable_data());
  data->mutable_data()->clear_dtype();  // both are in the meta entry
  data->mutable_data()->clear_tensor_shape();
  if (entry.ByteSizeLong() > INT_MAX) {
    return errors::InvalidArgument("the tensor ", name, " of ", entry.ByteSizeLong(),
                                   " bytes is too large for a checkpoint of the first format; save "
                                   "it in parts, or in the second one");
  }
  if (!values_.emplace(EncodeSliceKey(name, slice), entry.SerializeAsString()).second) {
    return errors::Internal("Overlapping slices: existing slice = ", slice.DebugString(),
                            ", new slice = ", slice.DebugString(), ", of ", name);
  }
  return OkStatus();
}

Status SliceTableWriter::Write(FileSystem* fs, const std::string& path) {
  pb::SavedTensorSliceMeta all;  // in the order of names, as TensorFlow's
  for (const auto& [name, at] : place_) *all.add_tensor() = meta_.meta().tensor(at);
  all.mutable_versions()->set_producer(1);
  pb::SavedTensorSlices meta;
  *meta.mutable_meta() = std::move(all);
  values_[""] = meta.SerializeAsString();
  return WriteTable(fs, path, values_);
}

StatusOr<std::unique_ptr<SliceTableReader>> SliceTableReader::Open(FileSystem* fs,
                                                                   const std::string& pattern) {
  std::unique_ptr<SliceTableReader> reader(new SliceTableReader(pattern));
  MR_RETURN_IF_ERROR(MatchFiles(pattern, &reader->paths_));
  std::sort(reader->paths_.begin(), reader->paths_.end());
  if (reader->paths_.empty()) {
    return errors::NotFound(
        "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for ",
        pattern);
  }
  for (const std::string& path : reader->paths_) MR_RETURN_IF_ERROR(reader->AddFile(fs, path));
  return reader;
}

Status SliceTableReader::AddFile(FileSystem* fs, const std::string& path) {
  MR_ASSIGN_OR_RETURN(auto entries, ReadTable(fs, path));
  auto& file = files_.emplace_back();
  for (auto& [key, value] : entries) file.emplace(std::move(key), std::move(value));
  pb::SavedTensorSlices slices;
  const auto meta = file.find("");
  if (meta == file.end() || !slices.ParseFromString(meta->second)) {
    return Damaged(path,
                   "it does not say what it holds; expected that as the value of its first key");
  }
  // A slice that is named again and again would be read as often, however small the file is.
  std::set<std::string> named;
  for (const pb::SavedSliceMeta& tensor : slices.meta().tensor()) {
    const PartialShape stated = ShapeFromProto(tensor.shape());
    if (!stated.has_rank()) return Damaged(path, StrCat(tensor.name(), " has no shape"));
    StatusOr<Shape> shape = MakeShape(stated.dims());
    if (!shape.ok()) {
      return Damaged(path, StrCat("the shape of ", tensor.name(), ": ", Message(shape.status())));
    }
    const auto dtype = static_cast<DataType>(tensor.type());
    const auto [at, is_new] = tensors_.try_emplace(tensor.name());
    Stored& stored = at->second;
    if (is_new) {
      stored.dtype = dtype;
      stored.shape = *std::move(shape);
    } else if (stored.dtype != dtype || !(stored.shape == *shape)) {
      return errors::Internal("Mismatching types or shapes: ", tensor.name(), " is ",
                              DataTypeName(stored.dtype), stored.shape.DebugString(), " in ",
                              paths_[stored.parts.empty() ? 0 : stored.parts[0].second], " and ",
                              DataTypeName(dtype), shape->DebugString(), " in ", path);
    }
    for (const pb::TensorSliceProto& proto : tensor.slice()) {
      TensorSlice slice = TensorSlice::FromProto(proto);
      if (const Status fits = slice.ResolvedIn(stored.shape).status(); !fits.ok()) {
        return Damaged(path, StrCat("a part of ", tensor.name(), ": ", Message(fits)));
      }
      if (!named.insert(EncodeSliceKey(tensor.name(), slice)).second) {
        return Damaged(
            path, StrCat("slice ", slice.DebugString(), " of ", tensor.name(), " is named twice"));
      }
      stored.parts.emplace_back(std::move(slice), files_.size() - 1);
    }
  }
  return OkStatus();
}

StatusOr<Tensor> SliceTableReader::ReadPart(const std::string& name, const Stored& stored,
                                            const TensorSlice& slice, std::size_t file) const {
  const std::string what = StrCat("slice ", slice.DebugString(), " of ", name);
  const auto found = files_[file].find(EncodeSliceKey(name, slice));
  if (found == files_[file].end()) return Damaged(paths_[file], StrCat(what, " is missing"));
  pb::SavedTensorSlices entry;
  if (!entry.ParseFromString(found->second)) {
    return Damaged(paths_[file], StrCat(what, " is no message of a slice"));
  }
  MR_ASSIGN_OR_RETURN(const Shape shape, slice.ShapeIn(stored.shape));
  pb::TensorProto* const data = entry.mutable_data()->mutable_data();
  // Elsewhere short lists stand for repeated values; here they are an error.
  if (CountValues(*data) != shape.num_elements()) {
    return Damaged(paths_[file], StrCat(what, " has ", CountValues(*data), " elements; expected ",
                                        shape.num_elements()));
  }
  data->set_dtype(static_cast<pb::DataType>(stored.dtype));
  ShapeToProto(shape, data->mutable_tensor_shape());
  data->clear_tensor_content();
  StatusOr<Tensor> tensor = TensorFromProto(*data);
  if (tensor.ok()) return tensor;
  return Damaged(paths_[file], StrCat(what, ": ", Message(tensor.status())));
}

StatusOr<Tensor> SliceTableReader::Restore(const std::string& name,
                                           std::string_view shape_and_slice, DataType dtype) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return errors::NotFound("Tensor name \"", name, "\" not found in checkpoint files ", pattern_);
  }
  const Stored& stored = found->second;
  if (stored.dtype != dtype) {
    return errors::InvalidArgument("Expected to restore a tensor of type ", DataTypeName(dtype),
                                   ", got a tensor of type ", DataTypeName(stored.dtype),
                                   " instead: tensor_name = ", name);
  }
  TensorSlice slice = TensorSlice::Whole(stored.shape.rank());
  if (!shape_and_slice.empty()) {
    Shape whole;
    MR_RETURN_IF_ERROR(ParseShapeAndSlice(shape_and_slice, &whole, &slice));
    if (!(whole == stored.shape)) {
      return errors::InvalidArgument(
          "Shape in shape_and_slice spec does not match the shape in the save file: ",
          whole.DebugString(), ", save file shape: ", stored.shape.DebugString(),
          "; tensor_name = ", name);
    }
  }
  MR_ASSIGN_OR_RETURN(const TensorSlice wanted, slice.ResolvedIn(stored.shape));
  MR_ASSIGN_OR_RETURN(const Shape part, slice.ShapeIn(stored.shape));
  // Parts first: what they hold bounds what a damaged file makes us allocate.
  std::vector<std::pair<TensorSlice, Tensor>> parts;
  int64_t held = 0;
  for (const auto& [named, file] : stored.parts) {
    MR_ASSIGN_OR_RETURN(TensorSlice from, named.ResolvedIn(stored.shape));
    const bool apart =
        !std::equal(from.extents.begin(), from.extents.end(), wanted.extents.begin(),
                    [](const auto& a, const auto& b) {
                      return a.start < b.start + b.length && b.start < a.start + a.length;
                    });
    if (apart) continue;
    MR_ASSIGN_OR_RETURN(Tensor tensor, ReadPart(name, stored, named, file));
    held += tensor.num_elements();
    parts.emplace_back(std::move(from), std::move(tensor));
  }
  const auto missing = [&] {
    return errors::InvalidArgument("Error copying slice data: the files ", pattern_,
                                   " do not have all of ", slice.DebugString(), " of ", name);
  };
  if (held < part.num_elements()) return missing();
  MR_ASSIGN_OR_RETURN(Tensor out, Tensor::Allocate(HostAllocator(), dtype, part));
  MR_ASSIGN_OR_RETURN(Tensor filled, Tensor::Allocate(HostAllocator(), kBool, part));
  std::fill_n(filled.data<bool>(), part.num_elements(), false);
  int64_t copied = 0;
  for (const auto& [from, tensor] : parts) {
    copied += CopyIntersection(from, tensor, wanted, &out);
    MR_ASSIGN_OR_RETURN(Tensor ones, Tensor::Allocate(HostAllocator(), kBool, tensor.shape()));
    std::fill_n(ones.data<bool>(), ones.num_elements(), true);
    CopyIntersection(from, ones, wanted, &filled);
  }
  if (std::count(filled.data<bool>(), filled.data<bool>() + part.num_elements(), false) > 0) {
    return missing();
  }
  if (copied != part.num_elements()) {
    return errors::Internal("Overlapping slices of ", name, " in the files ", pattern_,
                            ": each element is stored once");
  }
  return out;
}

}  // namespace millrace
