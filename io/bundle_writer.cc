// SPDX-License-Identifier: Apache-2.0
// Writing and merging bundles; reading is in bundle_reader.cc.
#include <cstdio>
#include <set>
#include <system_error>
#include <thread>

#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "io/bundle_files.h"
#include "io/bundle_index.h"
#include "io/crc32c.h"
#include "io/tensor_bundle.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

constexpr std::size_t kPiece = std::size_t{512} << 10;
// From here on a thread of its own computes the checksum while the bytes are written: it starts in
// some hundredths of the time that they take.
constexpr std::size_t kBeside = std::size_t{4} << 20;

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

template <typename T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// For each element the length of its message, the message, and a checksum of all up to here.
StatusOr<std::string> BytesOfObjects(const Tensor& tensor, uint32_t* crc) {
  pb::TensorProto proto;
  TensorToProto(tensor, &proto);
  // Some kinds of objects are not made again of what stands for them.
  const bool has_form = TensorFromProto(proto).ok();
  std::string bytes;
  for (const pb::VariantTensorDataProto& object : proto.variant_val()) {
    std::string message;
    if (!has_form || !object.SerializeToString(&message)) {
      return errors::Unimplemented("a value of type variant of this kind cannot be written to a ",
                                   "checkpoint");
    }
    AppendVarint(message.size(), &bytes);
    bytes.append(message);
    *crc = ExtendCrc32c(*crc, BytesOf(static_cast<uint64_t>(message.size())));
    *crc = ExtendCrc32c(*crc, message);
    const uint32_t stored = MaskCrc(*crc);
    bytes.append(BytesOf(stored));
    *crc = ExtendCrc32c(*crc, BytesOf(stored));
  }
  return bytes;
}

Status WriteIndex(FileSystem* fs, const std::string& prefix, const pb::BundleHeaderProto& header,
                  const std::map<std::string, pb::BundleEntryProto>& entries) {
  std::map<std::string, std::string> values;
  values[""] = header.SerializeAsString();
  for (const auto& [key, entry] : entries) values[key] = entry.SerializeAsString();
  return WriteTable(fs, BundleIndexName(prefix), values);
}

}  // namespace

std::string BundleIndexName(std::string_view prefix) { return StrCat(prefix, ".index"); }

std::string BundleDataName(std::string_view prefix, int shard, int num_shards) {
  char tail[64];
  std::snprintf(tail, sizeof(tail), ".data-%05d-of-%05d", shard, num_shards);
  return StrCat(prefix, tail);
}

BundleWriter::BundleWriter(FileSystem* fs, std::string prefix)
    : fs_(fs),
      prefix_(std::move(prefix)),
      temporary_(StrCat(BundleDataName(prefix_, 0, 1), kTemporarySuffix, RandomId())) {}

BundleWriter::~BundleWriter() {
  if (data_ == nullptr) return;
  data_.reset();
  if (fs_->FileExists(temporary_)) fs_->DeleteFile(temporary_).IgnoreError();
}

StatusOr<std::unique_ptr<BundleWriter>> BundleWriter::Create(FileSystem* fs, std::string prefix) {
  const std::string directory(DirectoryName(prefix));
  if (!directory.empty()) MR_RETURN_IF_ERROR(fs->CreateDirectories(directory));
  std::unique_ptr<BundleWriter> writer(new BundleWriter(fs, std::move(prefix)));
  MR_ASSIGN_OR_RETURN(writer->data_, fs->NewWritableFile(writer->temporary_));
  return writer;
}

Status BundleWriter::Append(std::string_view bytes) {
  MR_RETURN_IF_ERROR(data_->Append(bytes));
  offset_ += static_cast<int64_t>(bytes.size());
  return OkStatus();
}

Status BundleWriter::AppendWithChecksum(std::string_view bytes, uint32_t* crc) {
  if (bytes.size() >= kBeside) {
    std::jthread checksum;  // which ends before this call, whatever ends it
    try {
      checksum = std::jthread([&] { *crc = ExtendCrc32c(*crc, bytes); });
    } catch (const std::system_error&) {  // no thread is to be had: one after the other
    }
    if (checksum.joinable()) {
      const Status written = Append(bytes);
      checksum.join();
      return written;
    }
  }
  // Piece by piece: what the checksum has read is still in the cache when it is written.
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    const std::string_view piece = bytes.substr(at, kPiece);
    *crc = ExtendCrc32c(*crc, piece);
    MR_RETURN_IF_ERROR(Append(piece));
  }
  return OkStatus();
}

Status BundleWriter::WriteTensor(const Tensor& tensor, pb::BundleEntryProto* entry) {
  entry->set_dtype(static_cast<pb::DataType>(tensor.dtype()));
  ShapeToProto(tensor.shape(), entry->mutable_shape());
  entry->set_shard_id(0);
  entry->set_offset(offset_);
  uint32_t crc = 0;
  if (tensor.dtype() == kString) {
    std::string lengths;
    for (const std::string& text : tensor.flat<std::string>()) {
      AppendVarint(text.size(), &lengths);
      const uint64_t size = text.size();
      crc = size <= UINT32_MAX ? ExtendCrc32c(crc, BytesOf(static_cast<uint32_t>(size)))
                               : ExtendCrc32c(crc, BytesOf(size));
    }
    const uint32_t stored = MaskCrc(crc);
    lengths.append(BytesOf(stored));
    crc = ExtendCrc32c(crc, BytesOf(stored));
    MR_RETURN_IF_ERROR(Append(lengths));
    for (const std::string& text : tensor.flat<std::string>()) {
      crc = ExtendCrc32c(crc, text);
      MR_RETURN_IF_ERROR(Append(text));
    }
  } else if (tensor.dtype() == kVariant) {
    MR_ASSIGN_OR_RETURN(const std::string bytes, BytesOfObjects(tensor, &crc));
    MR_RETURN_IF_ERROR(Append(bytes));
  } else if (IsMemcpyable(tensor.dtype())) {
    const std::string_view bytes(static_cast<const char*>(tensor.raw_data()),
                                 tensor.num_elements() == 0 ? 0 : tensor.num_bytes());
    MR_RETURN_IF_ERROR(AppendWithChecksum(bytes, &crc));
  } else {
    return errors::Unimplemented("tensors of type ", DataTypeName(tensor.dtype()),
                                 " cannot be written to a checkpoint");
  }
  entry->set_size(offset_ - entry->offset());
  entry->set_crc32c(MaskCrc(crc));
  return OkStatus();
}

Status BundleWriter::Add(std::string_view key, const Tensor& tensor) {
  if (key.empty()) return errors::InvalidArgument("a tensor in a checkpoint needs a name");
  const auto [it, added] = entries_.try_emplace(std::string(key));
  if (!added) return errors::InvalidArgument("Adding duplicate key: ", key);
  return WriteTensor(tensor, &it->second);
}

Status BundleWriter::AddSlice(std::string_view key, const Shape& whole, const TensorSlice& slice,
                              const Tensor& tensor) {
  MR_ASSIGN_OR_RETURN(const Shape part, slice.ShapeIn(whole));
  if (!(part == tensor.shape())) {
    return errors::InvalidArgument(
        "Slice in shape_and_slice specification does not match the "
        "shape of the tensor to save: ",
        part.DebugString(), ", tensor: ", tensor.shape().DebugString());
  }
  if (part == whole) return Add(key, tensor);
  const auto [it, added] = entries_.try_emplace(std::string(key));
  pb::BundleEntryProto& entry = it->second;
  if (added) {
    entry.set_dtype(static_cast<pb::DataType>(tensor.dtype()));
    ShapeToProto(whole, entry.mutable_shape());
  } else if (entry.slices().empty()) {
    return errors::InvalidArgument("Adding duplicate key: ", key);
  } else if (entry.dtype() != static_cast<pb::DataType>(tensor.dtype()) ||
             !(ShapeFromProto(entry.shape()) == PartialShape(whole))) {
    return errors::InvalidArgument("the slices of ", key, " differ in type or full shape");
  }
  slice.ToProto(entry.add_slices());
  return Add(EncodeSliceKey(key, slice), tensor);
}

Status BundleWriter::Save(std::string_view key, std::string_view shape_and_slice,
                          const Tensor& tensor) {
  if (shape_and_slice.empty()) return Add(key, tensor);
  Shape whole;
  TensorSlice slice;
  MR_RETURN_IF_ERROR(ParseShapeAndSlice(shape_and_slice, &whole, &slice));
  return AddSlice(key, whole, slice, tensor);
}

Status BundleWriter::Finish() {
  // Open until all is done: others see that somebody is at it.
  MR_RETURN_IF_ERROR(data_->Sync());
  NewDataFiles files(fs_, prefix_);
  MR_RETURN_IF_ERROR(files.Name({temporary_}));
  pb::BundleHeaderProto header;
  header.set_num_shards(files.num_shards());
  header.mutable_version()->set_producer(1);
  MR_RETURN_IF_ERROR(WriteIndex(fs_, prefix_, header, entries_));
  const Status closed = data_->Close();
  data_.reset();
  files.Keep();
  return closed;
}

namespace {

// The entries of all sources so far, and how their data files are numbered.
struct Merged {
  bool have_header = false;
  pb::BundleHeaderProto header;
  std::map<std::string, pb::BundleEntryProto> entries;
  std::vector<std::string> data_files;  // by new shard number
};

Status AddSource(FileSystem* fs, const std::string& prefix, Merged* merged) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> source, BundleReader::Open(fs, prefix));
  const pb::BundleHeaderProto& header = source->header();
  if (!merged->have_header) {
    merged->header = header;
    merged->have_header = true;
  } else if (header.endianness() != merged->header.endianness() ||
             header.version().SerializeAsString() != merged->header.version().SerializeAsString()) {
    return errors::InvalidArgument("cannot merge ", prefix,
                                   ": byte order or version differ from the other checkpoints'");
  }
  std::map<int, int> shards;  // old number -> new number, in the order of first use
  for (const BundleReader::Entry& entry : source->entries()) {
    auto [it, added] = merged->entries.try_emplace(entry.key, entry.proto);
    pb::BundleEntryProto& out = it->second;
    if (!added) {
      if (entry.proto.slices().empty() || out.slices().empty()) {
        return errors::InvalidArgument("Duplicate tensor keyed by ", entry.key,
                                       " encountered, when merging prefix: ", prefix);
      }
      for (const auto& slice : entry.proto.slices()) *out.add_slices() = slice;
      continue;
    }
    if (!entry.proto.slices().empty()) continue;  // has no data of its own
    const auto [shard, fresh] =
        shards.try_emplace(entry.proto.shard_id(), static_cast<int>(merged->data_files.size()));
    if (fresh) {
      merged->data_files.push_back(
          BundleDataName(prefix, entry.proto.shard_id(), header.num_shards()));
    }
    out.set_shard_id(shard->second);
  }
  return OkStatus();
}

}  // namespace

Status MergeBundles(FileSystem* fs, const std::vector<std::string>& prefixes,
                    const std::string& prefix, bool allow_missing_files) {
  Merged merged;
  std::vector<std::string> sources;
  for (const std::string& source : prefixes) {
    if (allow_missing_files && !fs->FileExists(BundleIndexName(source))) continue;
    MR_RETURN_IF_ERROR(AddSource(fs, source, &merged));
    sources.push_back(source);
  }
  if (sources.empty()) return errors::InvalidArgument("there is nothing to merge into ", prefix);
  const std::string directory(DirectoryName(prefix));
  if (!directory.empty()) MR_RETURN_IF_ERROR(fs->CreateDirectories(directory));
  // Other programs than ours may have written them.
  for (const std::string& file : merged.data_files) MR_RETURN_IF_ERROR(fs->SyncPath(file));
  NewDataFiles files(fs, prefix);
  MR_RETURN_IF_ERROR(files.Name(merged.data_files));
  merged.header.set_num_shards(files.num_shards());
  MR_RETURN_IF_ERROR(WriteIndex(fs, prefix, merged.header, merged.entries));
  Status status;
  for (const std::string& source : sources) {
    if (source != prefix) status.Update(fs->DeleteFile(BundleIndexName(source)));
  }
  files.Keep();
  return status;
}

}  // namespace millrace
