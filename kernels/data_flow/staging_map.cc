// SPDX-License-Identifier: Apache-2.0
// Staging maps: tuples that one step leaves for another under a key, in one piece or in several,
// and that are taken in one piece or in several.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data_flow/staging.h"
#include "kernels/host_kernels.h"

namespace millrace {
namespace {

using Components = std::vector<std::optional<Tensor>>;

struct StagedByKey {
  std::string Contents() const {
    return StrCat(complete.size(), " tuples and ", incomplete.size(), " incomplete");
  }

  // In the order of the keys, which an unordered map may have as well as any other.
  std::map<int64_t, Components> complete, incomplete;
  int64_t bytes = 0;
};

class StagingMap final : public Staging<StagedByKey> {
 public:
  explicit StagingMap(std::string name) : Staging("StagingMap", std::move(name)) {}
};
class OrderedStagingMap final : public Staging<StagedByKey> {
 public:
  explicit OrderedStagingMap(std::string name) : Staging("OrderedStagingMap", std::move(name)) {}
};

// What one op MapStage puts.
struct Piece {
  int64_t key = 0;
  std::vector<int32_t> indices;  // of its values in the tuple
  StagedTuple values;
  int64_t bytes = 0, capacity = 0, memory_limit = 0;
  std::vector<DataType> types;  // of the whole tuple
};

// The numbers of components that a node puts or takes.
StatusOr<std::vector<int32_t>> Indices(const Tensor& given) {
  const std::span<const int32_t> all(given.data<int32_t>(),
                                     static_cast<std::size_t>(given.num_elements()));
  if (all.empty()) return errors::InvalidArgument("Indices are empty");
  if (std::adjacent_find(all.begin(), all.end(), std::greater_equal<>()) != all.end()) {
    return errors::InvalidArgument("Indices are not strictly ordered");
  }
  return std::vector<int32_t>(all.begin(), all.end());
}

Status CheckIndex(int64_t key, int64_t index, std::size_t size) {
  if (index >= 0 && index < static_cast<int64_t>(size)) return OkStatus();
  return errors::InvalidArgument("Index '", index, "' for key '", key, "' was out of bounds '",
                                 size, "'.");
}

// False: there is no room yet. A value that is there already, and a key that has all its values,
// stay as they are: the first is an error, the second is TensorFlow's way.
StatusOr<bool> Put(Piece* piece, StagedByKey* held) {
  if (piece->memory_limit > 0 && held->bytes + piece->bytes > piece->memory_limit) return false;
  const std::size_t size = piece->types.size();
  if (piece->values.size() == size) {
    if (piece->capacity > 0 && static_cast<int64_t>(held->complete.size()) >= piece->capacity) {
      return false;
    }
    const auto [place, is_new] = held->complete.try_emplace(piece->key);
    if (!is_new) return true;
    for (Tensor& value : piece->values) place->second.emplace_back(std::move(value));
    held->bytes += piece->bytes;
    return true;
  }
  Components& present = held->incomplete.try_emplace(piece->key, size).first->second;
  for (const int32_t index : piece->indices) {
    MR_RETURN_IF_ERROR(CheckIndex(piece->key, index, present.size()));
    if (present[static_cast<std::size_t>(index)].has_value()) {
      return errors::InvalidArgument("The tensor for index '", index, "' for key '", piece->key,
                                     "' was already initialized '", present.size(), "'.");
    }
  }
  for (std::size_t i = 0; i < piece->indices.size(); ++i) {
    present[static_cast<std::size_t>(piece->indices[i])] = std::move(piece->values[i]);
  }
  held->bytes += piece->bytes;
  if (std::ranges::all_of(present, [](const auto& value) { return value.has_value(); })) {
    held->complete.try_emplace(piece->key, std::move(present));
    held->incomplete.erase(piece->key);
  }
  return true;
}

// What a node gets: of the key, or of any if there is none.
struct Wanted {
  std::optional<int64_t> key;
  std::vector<int32_t> indices;
  bool takes = true;
  StagedTuple values{};
};

// False: it is not there yet.
StatusOr<bool> Get(Wanted* wanted, StagedByKey* held) {
  const auto found =
      wanted->key.has_value() ? held->complete.find(*wanted->key) : held->complete.begin();
  if (found == held->complete.end()) return false;
  Components& present = found->second;
  wanted->key = found->first;
  for (const int32_t index : wanted->indices) {
    MR_RETURN_IF_ERROR(CheckIndex(found->first, index, present.size()));
    if (!present[static_cast<std::size_t>(index)].has_value()) {
      return errors::InvalidArgument("Tensor at index '", index, "' for key '", found->first,
                                     "' has already been removed.");
    }
  }
  for (const int32_t index : wanted->indices) {
    std::optional<Tensor>& value = present[static_cast<std::size_t>(index)];
    wanted->values.push_back(*value);
    if (wanted->takes) value.reset();
  }
  if (!wanted->takes) return true;
  held->bytes -= BytesOf(wanted->values);
  if (std::ranges::none_of(present, [](const auto& value) { return value.has_value(); })) {
    held->complete.erase(found);
  }
  return true;
}

// Of both kinds of maps, which are different resources even under one name.
class StagingMapKernel : public StagingKernel {
 public:
  explicit StagingMapKernel(KernelConstruction& c)
      : StagingKernel(c), ordered_(c.def().name().starts_with("Ordered")) {}

 protected:
  using Use = Staging<StagedByKey>::Use;
  StatusOr<RefPtr<Staging<StagedByKey>>> FindMap(const KernelContext& ctx) const {
    if (ordered_) {
      MR_ASSIGN_OR_RETURN(RefPtr<OrderedStagingMap> map, Find<OrderedStagingMap>(ctx));
      return RefPtr<Staging<StagedByKey>>(std::move(map));
    }
    MR_ASSIGN_OR_RETURN(RefPtr<StagingMap> map, Find<StagingMap>(ctx));
    return RefPtr<Staging<StagedByKey>>(std::move(map));
  }

 private:
  const bool ordered_;
};

class MapStageKernel final : public StagingMapKernel {
 public:
  explicit MapStageKernel(KernelConstruction& c)
      : StagingMapKernel(c), types_(c.attr<std::vector<DataType>>("dtypes")) {}

  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    StatusOr<Piece> made = MakePiece(ctx);
    if (!made.ok()) return done(made.status());
    const auto map = FindMap(ctx);
    if (!map.ok()) return done(map.status());
    auto piece = std::make_shared<Piece>(*std::move(made));
    const int64_t key = piece->key;
    (*map)->Do(
        Use::kPut, StrCat("a stage of key ", key),
        [piece = std::move(piece)](StagedByKey& held) { return Put(piece.get(), &held); },
        Waiter(ctx), done);
  }

 private:
  StatusOr<Piece> MakePiece(KernelContext& ctx) const {
    const Tensor& key = ctx.input(0);
    if (key.num_elements() == 0) return errors::InvalidArgument("key must not be empty");
    if (key.num_elements() != 1) {
      return errors::InvalidArgument("key must be an int64 scalar, got tensor with shape: ",
                                     key.shape().DebugString());
    }
    Piece piece;
    piece.key = key.data<int64_t>()[0];
    MR_ASSIGN_OR_RETURN(piece.indices, Indices(ctx.input(1)));
    for (int i = 2; i < ctx.num_inputs(); ++i) piece.values.push_back(ctx.locked_input(i));
    if (piece.indices.size() != piece.values.size()) {
      return errors::InvalidArgument(name(), " has ", piece.values.size(), " values, but ",
                                     piece.indices.size(), " indices: each value needs one");
    }
    for (std::size_t i = 0; i < piece.indices.size(); ++i) {
      MR_RETURN_IF_ERROR(CheckIndex(piece.key, piece.indices[i], types_.size()));
      const DataType declared = types_[static_cast<std::size_t>(piece.indices[i])];
      if (piece.values[i].dtype() == declared) continue;
      return errors::InvalidArgument("value ", i, " of ", name(), " is ",
                                     DataTypeName(piece.values[i].dtype()), ", but component ",
                                     piece.indices[i], " is declared ", DataTypeName(declared));
    }
    piece.bytes = BytesOf(piece.values);
    piece.capacity = capacity();
    piece.memory_limit = memory_limit();
    piece.types = types_;
    MR_RETURN_IF_ERROR(CheckFitsStaging(piece.bytes, memory_limit()));
    return piece;
  }

  const std::vector<DataType> types_;
};

// MapUnstage, MapPeek, and MapUnstageNoKey, which takes any key and tells which.
class MapGetKernel final : public StagingMapKernel {
 public:
  explicit MapGetKernel(KernelConstruction& c)
      : StagingMapKernel(c),
        takes_(!c.def().name().ends_with("MapPeek")),
        any_key_(c.def().name().ends_with("NoKey")) {}

  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    StatusOr<Wanted> made = Want(ctx);
    if (!made.ok()) return done(made.status());
    const auto map = FindMap(ctx);
    if (!map.ok()) return done(map.status());
    std::string what = takes_ ? "an unstage" : "a peek";
    if (made->key.has_value()) what = StrCat(what, " of key ", *made->key);
    auto wanted = std::make_shared<Wanted>(*std::move(made));
    (*map)->Do(
        takes_ ? Use::kTake : Use::kLook, std::move(what),
        [wanted](StagedByKey& held) { return Get(wanted.get(), &held); }, Waiter(ctx),
        [this, &ctx, wanted, done](Status status) {
          if (status.ok() && any_key_) ctx.SetOutput(0, Tensor::Scalar(*wanted->key));
          done(status.ok() ? SetOutputs(ctx, any_key_ ? 1 : 0, std::move(wanted->values))
                           : std::move(status));
        });
  }

 private:
  StatusOr<Wanted> Want(const KernelContext& ctx) const {
    Wanted wanted;
    wanted.takes = takes_;
    if (!any_key_) {
      const Tensor& key = ctx.input(0);
      if (key.rank() != 0) {
        return errors::InvalidArgument("key must be an int64 scalar: ", key.shape().DebugString());
      }
      wanted.key = key.scalar<int64_t>();
    }
    MR_ASSIGN_OR_RETURN(wanted.indices, Indices(ctx.input(any_key_ ? 0 : 1)));
    const int outputs = ctx.num_outputs() - (any_key_ ? 1 : 0);
    if (static_cast<int>(wanted.indices.size()) == outputs) return wanted;
    return errors::InvalidArgument("output/indices size mismatch: ", outputs, " vs. ",
                                   wanted.indices.size());
  }

  const bool takes_, any_key_;
};

// MapSize and MapIncompleteSize.
class MapSizeKernel final : public StagingMapKernel {
 public:
  explicit MapSizeKernel(KernelConstruction& c)
      : StagingMapKernel(c), incomplete_(c.def().name().ends_with("IncompleteSize")) {}

  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    const auto map = FindMap(ctx);
    if (!map.ok()) return done(map.status());
    const std::size_t size = (*map)->Look([this](const StagedByKey& held) {
      return incomplete_ ? held.incomplete.size() : held.complete.size();
    });
    ctx.SetOutput(0, Tensor::Scalar(static_cast<int32_t>(size)));
    done(OkStatus());
  }

 private:
  const bool incomplete_;
};

class MapClearKernel final : public StagingMapKernel {
 public:
  using StagingMapKernel::StagingMapKernel;
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    const auto map = FindMap(ctx);
    if (!map.ok()) return done(map.status());
    (*map)->Do(
        Use::kTake, "a clear",
        [](StagedByKey& held) {
          held = StagedByKey();
          return true;
        },
        Waiter(ctx), done);
  }
};

}  // namespace

void RegisterStagingMapKernels(KernelRegistry& r) {
  for (const std::string_view kind : {"", "Ordered"}) {
    RegisterCpu<MapStageKernel>(r, StrCat(kind, "MapStage"));
    RegisterCpu<MapGetKernel>(r, StrCat(kind, "MapUnstage"));
    RegisterCpu<MapGetKernel>(r, StrCat(kind, "MapUnstageNoKey"));
    RegisterCpu<MapGetKernel>(r, StrCat(kind, "MapPeek"));
    RegisterCpu<MapSizeKernel>(r, StrCat(kind, "MapSize"));
    RegisterCpu<MapSizeKernel>(r, StrCat(kind, "MapIncompleteSize"));
    RegisterCpu<MapClearKernel>(r, StrCat(kind, "MapClear"));
  }
}

}  // namespace millrace
