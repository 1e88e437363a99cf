// SPDX-License-Identifier: Apache-2.0
// Reading bundles; writing is in bundle_writer.cc.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/bundle_index.h"
#include "io/crc32c.h"
#include "io/file_root.h"
#include "io/tensor_bundle.h"
#include "tensor/allocator.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

constexpr std::size_t kPiece = std::size_t{512} << 10;

void SwapElements(char* data, std::size_t bytes, std::size_t element) {
  for (std::size_t i = 0; i + element <= bytes; i += element) {
    std::reverse(data + i, data + i + element);
  }
}

uint32_t SwapIf(bool swap, uint32_t value) { return swap ? __builtin_bswap32(value) : value; }

bool ConsumeVarint(std::string_view* bytes, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes->front());
    bytes->remove_prefix(1);
    *value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// For each element the length of its message, the message, and a checksum of all up to there. What
// is damaged, or nothing.
std::string DecodeObjects(std::string_view bytes, bool swap_bytes, uint32_t* crc, Tensor* tensor) {
  pb::TensorProto objects;
  TensorToProto(*tensor, &objects);  // its type and shape, with no objects
  for (int64_t i = 0; i < tensor->num_elements(); ++i) {
    uint64_t length = 0;
    if (!ConsumeVarint(&bytes, &length) || length > bytes.size()) {
      return StrCat("the length of element ", i);
    }
    const uint64_t hashed = swap_bytes ? __builtin_bswap64(length) : length;
    *crc = ExtendCrc32c(*crc, {reinterpret_cast<const char*>(&hashed), sizeof(hashed)});
    const std::string_view message = bytes.substr(0, length);
    bytes.remove_prefix(length);
    *crc = ExtendCrc32c(*crc, message);
    uint32_t stored = 0;
    if (bytes.size() < sizeof(stored)) return StrCat("element ", i, " has no checksum");
    std::memcpy(&stored, bytes.data(), sizeof(stored));
    if (SwapIf(swap_bytes, stored) != MaskCrc(*crc)) return StrCat("the checksum of element ", i);
    *crc = ExtendCrc32c(*crc, bytes.substr(0, sizeof(stored)));
    bytes.remove_prefix(sizeof(stored));
    pb::VariantTensorDataProto* const object = objects.mutable_variant_val(static_cast<int>(i));
    if (message.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
        !object->ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      return StrCat("element ", i, " is no message");
    }
  }
  if (!bytes.empty()) return "bytes are left over";
  StatusOr<Tensor> decoded = TensorFromProto(objects);
  if (!decoded.ok()) return std::string(Message(decoded.status()));
  *tensor = *std::move(decoded);
  return "";
}

// TensorFlow calls that OutOfRange, which loops over data take for their end.
Status CutOff(const std::string& path, uint64_t file_size, std::string_view place) {
  return errors::DataLoss("Read less bytes than requested: ", path, " ends at byte ", file_size,
                          "; expected ", place);
}

using Part = std::pair<TensorSlice, Tensor>;

bool Overlap(const TensorSlice& a, const TensorSlice& b) {
  for (std::size_t i = 0; i < a.extents.size(); ++i) {
    const auto &x = a.extents[i], &y = b.extents[i];
    if (x.start + x.length <= y.start || y.start + y.length <= x.start) return false;
  }
  return true;
}

// The axis along which most parts begin at places of their own.
std::size_t BusiestAxis(const std::vector<Part>& parts) {
  std::size_t busiest = 0, most = 0;
  for (std::size_t axis = 0; axis < parts[0].first.extents.size(); ++axis) {
    std::set<int64_t> starts;
    for (const Part& part : parts) starts.insert(part.first.extents[axis].start);
    if (starts.size() > most) {
      most = starts.size();
      busiest = axis;
    }
  }
  return busiest;
}

// Two parts, which are resolved and not empty, that have an element in common.
std::optional<std::pair<TensorSlice, TensorSlice>> FindOverlap(const std::vector<Part>& parts) {
  if (parts.size() < 2) return std::nullopt;
  if (parts[0].first.extents.empty()) return std::pair(parts[0].first, parts[1].first);  // scalars
  const std::size_t axis = BusiestAxis(parts);
  const auto start = [axis](const TensorSlice* s) { return s->extents[axis].start; };
  std::vector<const TensorSlice*> sorted;
  for (const Part& part : parts) sorted.push_back(&part.first);
  std::sort(sorted.begin(), sorted.end(),
            [&](const auto* a, const auto* b) { return start(a) < start(b); });
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const int64_t end = start(sorted[i]) + sorted[i]->extents[axis].length;
    for (std::size_t j = i + 1; j < sorted.size() && start(sorted[j]) < end; ++j) {
      if (Overlap(*sorted[i], *sorted[j])) return std::pair(*sorted[i], *sorted[j]);
    }
  }
  return std::nullopt;
}

}  // namespace

StatusOr<std::unique_ptr<BundleReader>> BundleReader::Open(FileSystem* fs, std::string prefix) {
  std::unique_ptr<BundleReader> reader(new BundleReader(fs, std::move(prefix)));
  MR_RETURN_IF_ERROR(reader->LoadIndex());
  return reader;
}

Status BundleReader::LoadIndex() {
  const std::string path = BundleIndexName(prefix_);
  if (!fs_->FileExists(path)) {
    MR_RETURN_IF_ERROR(CheckNameable(fs_, path));
    return errors::NotFound(
        "Unsuccessful TensorSliceReader constructor: Failed to find any "
        "matching files for ",
        prefix_);
  }
  MR_ASSIGN_OR_RETURN(auto values, ReadTable(fs_, path));
  if (values.empty() || !values[0].first.empty() || !header_.ParseFromString(values[0].second)) {
    return errors::DataLoss("the checkpoint index ", path,
                            " has no header: expected it as the value of the first key, \"\"");
  }
  if (header_.version().min_consumer() > 1) {
    return errors::InvalidArgument("the checkpoint ", prefix_, " needs a reader of version ",
                                   header_.version().min_consumer());
  }
  swap_bytes_ = (header_.endianness() == pb::BundleHeaderProto::BIG) !=
                (std::endian::native == std::endian::big);
  entries_.reserve(values.size() - 1);
  for (std::size_t i = 1; i < values.size(); ++i) {
    Entry& entry = entries_.emplace_back();
    entry.key = std::move(values[i].first);
    if (!entry.proto.ParseFromString(values[i].second)) {
      return errors::DataLoss("cannot parse the entry of ", entry.key, " in ", path,
                              ": expected a BundleEntryProto");
    }
  }
  return OkStatus();
}

StatusOr<Shape> BundleReader::EntryShape(const pb::BundleEntryProto& entry) const {
  const PartialShape shape = ShapeFromProto(entry.shape());
  if (!shape.has_rank()) {
    return errors::DataLoss("an entry of the checkpoint index ", BundleIndexName(prefix_),
                            " has no shape");
  }
  StatusOr<Shape> known = MakeShape(shape.dims());
  if (!known.ok()) {
    return errors::DataLoss("bad shape in the checkpoint index ", BundleIndexName(prefix_), ": ",
                            Message(known.status()));
  }
  return known;
}

// A slice that the index names.
StatusOr<TensorSlice> BundleReader::StoredSlice(const pb::TensorSliceProto& proto,
                                                const Shape& whole, std::string_view key) const {
  StatusOr<TensorSlice> slice = TensorSlice::FromProto(proto).ResolvedIn(whole);
  if (slice.ok()) return slice;
  return errors::DataLoss("the index ", BundleIndexName(prefix_), " has a part of ", key,
                          " that is none: ", Message(slice.status()));
}

const pb::BundleEntryProto* BundleReader::Find(std::string_view key) const {
  const auto it = std::lower_bound(entries_.begin(), entries_.end(), key,
                                   [](const Entry& e, std::string_view k) { return e.key < k; });
  return it == entries_.end() || it->key != key ? nullptr : &it->proto;
}

Status BundleReader::Lookup(std::string_view key, DataType* dtype, Shape* shape) const {
  const pb::BundleEntryProto* entry = Find(key);
  if (entry == nullptr) return errors::NotFound("Key ", key, " not found in checkpoint");
  *dtype = static_cast<DataType>(entry->dtype());
  MR_ASSIGN_OR_RETURN(*shape, EntryShape(*entry));
  return OkStatus();
}

StatusOr<const RandomAccessFile*> BundleReader::DataFile(int shard) const {
  MutexLock lock(&mu_);
  std::unique_ptr<RandomAccessFile>& file = files_[shard];
  if (file == nullptr) {
    MR_ASSIGN_OR_RETURN(
        file, fs_->NewRandomAccessFile(BundleDataName(prefix_, shard, header_.num_shards())));
  }
  return file.get();
}

Status BundleReader::ReadBytes(const pb::BundleEntryProto& entry, int64_t skip, std::size_t n,
                               char* out) const {
  if (n == 0) return OkStatus();
  MR_ASSIGN_OR_RETURN(const RandomAccessFile* file, DataFile(entry.shard_id()));
  MR_ASSIGN_OR_RETURN(const std::size_t read,
                      file->Read(static_cast<uint64_t>(entry.offset() + skip), n, out));
  if (read == n) return OkStatus();
  return CutOff(BundleDataName(prefix_, entry.shard_id(), header_.num_shards()),
                static_cast<uint64_t>(entry.offset() + skip) + read, PlaceOf(entry));
}

// "bytes 24 to 36 of /a/model.data-00000-of-00001"
std::string BundleReader::PlaceOf(const pb::BundleEntryProto& entry) const {
  return StrCat("bytes ", entry.offset(), " to ", entry.offset() + entry.size(), " of ",
                BundleDataName(prefix_, entry.shard_id(), header_.num_shards()));
}

StatusOr<Tensor> BundleReader::ReadEntry(const pb::BundleEntryProto& entry) const {
  const auto dtype = static_cast<DataType>(entry.dtype());
  MR_ASSIGN_OR_RETURN(const Shape shape, EntryShape(entry));
  if (entry.offset() < 0 || entry.size() < 0 || entry.offset() > INT64_MAX - entry.size()) {
    return errors::DataLoss("the index ", BundleIndexName(prefix_), " has an entry of ",
                            entry.size(), " bytes at ", entry.offset(),
                            ": neither may be negative");
  }
  if (dtype == kString || dtype == kVariant) {
    // A length takes a byte at least, so the file, which is read first, bounds what is allocated.
    if (shape.num_elements() > entry.size()) {
      return errors::DataLoss("the entry at ", PlaceOf(entry), " is too short for ",
                              DataTypeName(dtype), shape.DebugString(),
                              ": expected a byte at least for each element");
    }
    Tensor tensor(dtype, Shape({0}));
    MR_RETURN_IF_ERROR(ReadStrings(entry, &tensor));
    return tensor;
  }
  if (!IsMemcpyable(dtype)) {
    return errors::Unimplemented("tensors of type ", DataTypeName(dtype),
                                 " cannot be read from a checkpoint");
  }
  if (shape.num_elements() > entry.size() ||
      shape.num_elements() * static_cast<int64_t>(DataTypeSize(dtype)) != entry.size()) {
    return errors::DataLoss("the entry at ", PlaceOf(entry), " has ", entry.size(),
                            " bytes; expected those of ", DataTypeName(dtype), shape.DebugString());
  }
  const std::string path = BundleDataName(prefix_, entry.shard_id(), header_.num_shards());
  MR_ASSIGN_OR_RETURN(const uint64_t file_size, fs_->FileSize(path));
  if (static_cast<uint64_t>(entry.offset() + entry.size()) > file_size) {
    return CutOff(path, file_size, PlaceOf(entry));
  }
  MR_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(HostAllocator(), dtype, shape));
  const auto bytes = static_cast<std::size_t>(entry.size());
  char* data = static_cast<char*>(tensor.raw_data());
  // Piece by piece: what was read is still in the cache when its checksum is computed.
  uint32_t crc = 0;
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t n = std::min(kPiece, bytes - at);
    MR_RETURN_IF_ERROR(ReadBytes(entry, static_cast<int64_t>(at), n, data + at));
    crc = ExtendCrc32c(crc, {data + at, n});
  }
  if (MaskCrc(crc) != entry.crc32c()) {
    return errors::DataLoss("Checksum does not match: stored ", UnmaskCrc(entry.crc32c()),
                            " vs. calculated on the restored bytes ", crc, ", ", PlaceOf(entry));
  }
  if (swap_bytes_) {
    const bool complex = IsComplex(dtype);
    SwapElements(data, bytes, complex ? DataTypeSize(dtype) / 2 : DataTypeSize(dtype));
  }
  return tensor;
}

// Strings: lengths as varints, a checksum over them, then the text of all strings. Or variants, if
// `tensor` has that type.
Status BundleReader::ReadStrings(const pb::BundleEntryProto& entry, Tensor* tensor) const {
  MR_ASSIGN_OR_RETURN(const Shape shape, EntryShape(entry));
  const std::string path = BundleDataName(prefix_, entry.shard_id(), header_.num_shards());
  MR_ASSIGN_OR_RETURN(const uint64_t file_size, fs_->FileSize(path));
  if (static_cast<uint64_t>(entry.offset() + entry.size()) > file_size) {
    return CutOff(path, file_size, PlaceOf(entry));
  }
  std::string bytes(static_cast<std::size_t>(entry.size()), '\0');
  MR_RETURN_IF_ERROR(ReadBytes(entry, 0, bytes.size(), bytes.data()));
  if (tensor->dtype() == kVariant) {
    MR_ASSIGN_OR_RETURN(*tensor, Tensor::Allocate(HostAllocator(), kVariant, shape));
    uint32_t crc = 0;
    std::string what = DecodeObjects(bytes, swap_bytes_, &crc, tensor);
    if (what.empty() && MaskCrc(crc) != entry.crc32c()) what = "the checksum of the whole";
    if (what.empty()) return OkStatus();
    return errors::DataLoss("the variants at ", PlaceOf(entry), " are damaged: ", what);
  }
  std::size_t at = 0;
  const auto damaged = [&](std::string_view expected) {
    return errors::DataLoss("the strings at ", PlaceOf(entry), " are damaged: at ",
                            entry.offset() + static_cast<int64_t>(at), " there should be ",
                            expected);
  };
  uint32_t crc = 0;
  std::vector<uint64_t> lengths;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    uint64_t length = 0;
    for (int shift = 0;; shift += 7) {
      if (at == bytes.size() || shift > 63) return damaged("the length of a string");
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      length |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) break;
    }
    lengths.push_back(length);
    if (length <= UINT32_MAX) {
      const uint32_t hashed = SwapIf(swap_bytes_, static_cast<uint32_t>(length));
      crc = ExtendCrc32c(crc, {reinterpret_cast<const char*>(&hashed), sizeof(hashed)});
    } else {
      const uint64_t hashed = swap_bytes_ ? __builtin_bswap64(length) : length;
      crc = ExtendCrc32c(crc, {reinterpret_cast<const char*>(&hashed), sizeof(hashed)});
    }
  }
  uint32_t stored;
  if (bytes.size() - at < sizeof(stored)) return damaged("a checksum of the lengths");
  std::memcpy(&stored, bytes.data() + at, sizeof(stored));
  if (SwapIf(swap_bytes_, stored) != MaskCrc(crc)) {
    return damaged(StrCat("the checksum of the lengths, ", MaskCrc(crc)));
  }
  crc = ExtendCrc32c(crc, std::string_view(bytes).substr(at, sizeof(stored)));
  at += sizeof(stored);
  MR_ASSIGN_OR_RETURN(*tensor, Tensor::Allocate(HostAllocator(), kString, shape));
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    if (bytes.size() - at < lengths[i]) {
      return damaged(StrCat("a string of ", lengths[i], " bytes"));
    }
    const std::string_view text = std::string_view(bytes).substr(at, lengths[i]);
    crc = ExtendCrc32c(crc, text);
    tensor->data<std::string>()[i] = text;
    at += lengths[i];
  }
  if (at != bytes.size()) return damaged("nothing more");
  if (MaskCrc(crc) != entry.crc32c()) {
    return damaged(
        StrCat("the end of bytes with the checksum ", entry.crc32c(), ", not ", MaskCrc(crc)));
  }
  return OkStatus();
}

StatusOr<Tensor> BundleReader::Read(std::string_view key) const {
  const pb::BundleEntryProto* entry = Find(key);
  if (entry == nullptr) return errors::NotFound("Key ", key, " not found in checkpoint");
  if (entry->slices().empty()) return ReadEntry(*entry);
  MR_ASSIGN_OR_RETURN(const Shape shape, EntryShape(*entry));
  return ReadSlice(key, TensorSlice::Whole(shape.rank()));
}

StatusOr<Tensor> BundleReader::Restore(std::string_view key, std::string_view shape_and_slice,
                                       DataType dtype) const {
  DataType stored_dtype;
  Shape stored_shape;
  MR_RETURN_IF_ERROR(Lookup(key, &stored_dtype, &stored_shape));
  if (stored_dtype != dtype) {
    return errors::InvalidArgument("tensor_name = ", key, "; expected dtype ", DataTypeName(dtype),
                                   " does not equal original dtype ", DataTypeName(stored_dtype));
  }
  if (shape_and_slice.empty()) return Read(key);
  Shape shape;
  TensorSlice slice;
  MR_RETURN_IF_ERROR(ParseShapeAndSlice(shape_and_slice, &shape, &slice));
  if (!(shape == stored_shape)) {
    return errors::InvalidArgument(
        "tensor_name = ", key, "; shape in shape_and_slice spec ", shape.DebugString(),
        " does not match the shape stored in checkpoint: ", stored_shape.DebugString());
  }
  return ReadSlice(key, slice);
}

StatusOr<Tensor> BundleReader::ReadSlice(std::string_view key, const TensorSlice& slice) const {
  const pb::BundleEntryProto* entry = Find(key);
  if (entry == nullptr) return errors::NotFound("Key ", key, " not found in checkpoint");
  MR_ASSIGN_OR_RETURN(const Shape whole, EntryShape(*entry));
  MR_ASSIGN_OR_RETURN(const TensorSlice wanted, slice.ResolvedIn(whole));
  MR_ASSIGN_OR_RETURN(const Shape part, slice.ShapeIn(whole));
  const auto dtype = static_cast<DataType>(entry->dtype());
  if (entry->slices().empty()) {
    MR_ASSIGN_OR_RETURN(Tensor all, ReadEntry(*entry));
    if (part == whole) return all;
    if (dtype == kVariant) return errors::Unimplemented("slices of variants cannot be read");
    MR_ASSIGN_OR_RETURN(Tensor cut, Tensor::Allocate(HostAllocator(), dtype, part));
    MR_ASSIGN_OR_RETURN(const TensorSlice from, TensorSlice::Whole(whole.rank()).ResolvedIn(whole));
    CopyIntersection(from, all, wanted, &cut);
    return cut;
  }
  if (dtype != kString && !IsMemcpyable(dtype)) {
    return errors::Unimplemented("tensors of type ", DataTypeName(dtype),
                                 " cannot be read from a checkpoint");
  }
  // Read the parts first: they bound how much a damaged index can make us allocate.
  std::vector<std::pair<TensorSlice, Tensor>> parts;
  int64_t covered = 0;
  for (const pb::TensorSliceProto& proto : entry->slices()) {
    const TensorSlice stored = TensorSlice::FromProto(proto);
    MR_ASSIGN_OR_RETURN(TensorSlice from, StoredSlice(proto, whole, key));
    int64_t common = 1;
    for (int i = 0; i < whole.rank(); ++i) {
      const auto &a = from.extents[i], &b = wanted.extents[i];
      common *= std::max<int64_t>(
          0, std::min(a.start + a.length, b.start + b.length) - std::max(a.start, b.start));
    }
    if (common == 0) continue;
    const pb::BundleEntryProto* data = Find(EncodeSliceKey(key, stored));
    if (data == nullptr) {
      return errors::DataLoss("slice ", stored.DebugString(), " of ", key, " is missing in ",
                              BundleIndexName(prefix_));
    }
    MR_ASSIGN_OR_RETURN(Tensor tensor, ReadEntry(*data));
    MR_ASSIGN_OR_RETURN(const Shape expected, stored.ShapeIn(whole));
    if (tensor.dtype() != dtype || !(tensor.shape() == expected)) {
      return errors::DataLoss("slice ", stored.DebugString(), " of ", key, " in ",
                              BundleIndexName(prefix_), " is ", DataTypeName(tensor.dtype()),
                              tensor.shape().DebugString(), "; expected ", DataTypeName(dtype),
                              expected.DebugString());
    }
    covered += common;
    parts.emplace_back(std::move(from), std::move(tensor));
  }
  // Parts that do not overlap cover what they count up to.
  if (const auto pair = FindOverlap(parts)) {
    return errors::DataLoss("the slices ", pair->first.DebugString(), " and ",
                            pair->second.DebugString(), " of ", key, " in ",
                            BundleIndexName(prefix_), " overlap: each element is stored once");
  }
  if (covered != part.num_elements()) {
    return errors::InvalidArgument("Does not have sufficient slices for partitioned tensor ", key,
                                   " to restore in slice_spec: ", slice.DebugString());
  }
  MR_ASSIGN_OR_RETURN(Tensor out, Tensor::Allocate(HostAllocator(), dtype, part));
  for (const auto& [from, tensor] : parts) CopyIntersection(from, tensor, wanted, &out);
  return out;
}

}  // namespace millrace
