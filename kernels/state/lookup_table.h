// SPDX-License-Identifier: Apache-2.0
// Tables from keys to values that live on a device between steps.
#ifndef KERNELS_STATE_LOOKUP_TABLE_H_
#define KERNELS_STATE_LOOKUP_TABLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/string_map.h"
#include "device/resource_manager.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Thread-safe. Keys and values may be of any type; floating keys are compared by their bits.
class LookupTable : public Resource {
 public:
  struct Options {
    std::string kind, name;  // for messages
    DataType key_dtype = kString, value_dtype = kInt64;
    Shape key_shape, value_shape;  // of one key and of one value
    bool fixed = false;            // filled once, by Initialize
    // Keys that cannot be stored (those of dense tables); not initialised: none.
    Tensor empty_key, deleted_key;
    // Of dense tables: how many rows an export has, marks included, and when they double; 0: as
    // many as there are entries.
    int64_t buckets = 0;
    double max_load = 0.8;
  };
  explicit LookupTable(Options options)
      : options_(std::move(options)), buckets_(options_.buckets) {}

  const Options& options() const { return options_; }

  // One value for each key in `keys`; `missing` (one value, or as many as there are keys) where
  // there is none. FailedPrecondition if the table is a fixed one and still empty.
  StatusOr<Tensor> Find(Allocator* allocator, const Tensor& keys, const Tensor& missing) const;
  // Adds or replaces. FailedPrecondition for a fixed table.
  Status Insert(const Tensor& keys, const Tensor& values);
  Status Remove(const Tensor& keys);
  // Replaces everything; by what a dense table has exported, also its number of buckets.
  Status Import(const Tensor& keys, const Tensor& values);
  // All keys and values, in the order in which they came. Of a dense table one row for each bucket:
  // entries, then removed ones (deleted_key and the old value), then empty ones (empty_key, zeros).
  Status Export(Allocator* allocator, Tensor* keys, Tensor* values) const;
  // Fills a fixed table. FailedPrecondition if a key has two values; filling it again with as
  // many entries changes nothing.
  Status Initialize(const Tensor& keys, const Tensor& values);

  bool initialized() const;
  int64_t size() const;
  std::string DebugString() const override;

 private:
  // The elements of one type, one row after another.
  struct Column {
    std::string bytes;                 // plain types
    std::vector<std::string> strings;  // strings
  };

  Status CheckKeys(const Tensor& keys, int64_t* count) const;
  Status CheckPair(const Tensor& keys, const Tensor& values, int64_t* count) const;
  Status InsertLocked(const Tensor& keys, const Tensor& values, int64_t count, bool unique)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static std::string_view KeyAt(const Tensor& keys, int64_t row, int64_t width,
                                std::string* scratch);
  static void SetRow(const Tensor& from, int64_t at, int64_t width, int64_t row, Column* column);
  static void GetRow(const Column& column, int64_t row, int64_t width, Tensor* to, int64_t at);
  static void MoveRow(int64_t from, int64_t to, int64_t width, std::size_t size, Column* column);
  bool SameRow(const Tensor& values, int64_t at, int64_t row) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ClearLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsDense() const { return options_.buckets > 0; }
  // Which of its two reserved keys a dense table has at `key`: nullptr if it is none of them.
  const Tensor* ReservedKey(std::string_view key) const;
  Status CheckNotReserved(std::string_view key) const;
  void GrowLocked(int64_t more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status ImportBuckets(const Tensor& keys, const Tensor& values, int64_t count)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable Mutex mu_;
  bool initialized_ ABSL_GUARDED_BY(mu_) = false;
  int64_t size_ ABSL_GUARDED_BY(mu_) = 0;
  StringMap<int64_t> rows_ ABSL_GUARDED_BY(mu_);
  Column keys_ ABSL_GUARDED_BY(mu_), values_ ABSL_GUARDED_BY(mu_);
  int64_t buckets_ ABSL_GUARDED_BY(mu_) = 0;
  // The values of keys that were removed from a dense table: their buckets are not empty.
  StringMap<Tensor> removed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // KERNELS_STATE_LOOKUP_TABLE_H_
