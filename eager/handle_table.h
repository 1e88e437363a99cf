// SPDX-License-Identifier: Apache-2.0
// The tensors that a client of an eager context knows by number.
#ifndef EAGER_HANDLE_TABLE_H_
#define EAGER_HANDLE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "device/device.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Tensors by (id of the op that made them, number of the output). A resource that an op made for
// its handle alone lies in a container of its own and goes with the last handle that names it.
// Thread-safe.
class HandleTable {
 public:
  // Containers of such resources begin with `prefix`. ResourceExhausted above `limit` tensors, and
  // where those that were sent would have more than `most_sent` bytes (0: no bound).
  HandleTable(std::string prefix, std::size_t limit, int64_t most_sent = 0)
      : prefix_(std::move(prefix)), limit_(limit), most_sent_(most_sent) {}
  ~HandleTable() { Clear(); }

  // InvalidArgument if the number is taken.
  Status Put(int64_t op_id, int output, Tensor value) {
    return Put(op_id, output, std::move(value), 0);
  }
  // The same for one that came as a message and that no kernel has taken memory for.
  Status PutSent(int64_t op_id, int output, Tensor value) {
    const auto bytes = static_cast<int64_t>(value.num_bytes());
    return Put(op_id, output, std::move(value), bytes);
  }
  // InvalidArgument "Unable to find the relevant tensor remote_handle" if there is none.
  StatusOr<Tensor> Get(int64_t op_id, int output) const;
  Status Drop(int64_t op_id, int output);
  // Forgets everything; resources go as well.
  void Clear();
  std::size_t size() const;

  // A name that was not given before.
  std::string NewContainer();
  // Keeps what is in the container until LetGo, and as long as a tensor here names it.
  void Hold(const std::string& container, std::span<Device* const> devices);
  void LetGo(const std::string& container);

 private:
  using Key = std::pair<int64_t, int>;
  struct Entry {
    Tensor value;
    int64_t sent_bytes = 0;
  };
  struct Held {
    std::vector<Device*> devices;  // that may have something in it
    int64_t count = 0;
  };
  Status Put(int64_t op_id, int output, Tensor value, int64_t sent_bytes);
  // By how much each resource that `value` names is held more. What is let go of altogether is
  // added to `free`.
  using Free = std::vector<std::pair<std::string, std::vector<Device*>>>;
  void Count(const Tensor& value, int change, Free* free) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountOne(const std::string& container, int change, Free* free)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void CleanUp(const Free& free);

  const std::string prefix_;
  const std::size_t limit_;
  const int64_t most_sent_;
  mutable Mutex mu_;
  absl::flat_hash_map<Key, Entry> tensors_ ABSL_GUARDED_BY(mu_);
  int64_t sent_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  StringMap<Held> held_ ABSL_GUARDED_BY(mu_);
  int64_t next_container_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace

#endif  // EAGER_HANDLE_TABLE_H_
