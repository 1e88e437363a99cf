// SPDX-License-Identifier: Apache-2.0
// What lives on a device between steps: variables, queues, accumulators, iterators.
#ifndef DEVICE_RESOURCE_MANAGER_H_
#define DEVICE_RESOURCE_MANAGER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <typeindex>
#include <typeinfo>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"

namespace millrace {

class Resource : public RefCounted {
 public:
  // One line for people: "FIFOQueue capacity 32, 3 elements".
  virtual std::string DebugString() const = 0;
  // Called when the resource is taken out of its manager while others may still hold it.
  virtual void OnRemoved() {}
};

inline constexpr std::string_view kDefaultContainer = "localhost";

// Keys: (container, C++ type, name); the empty container is the default one. Thread-safe.
class ResourceManager {
 public:
  ResourceManager() = default;
  ~ResourceManager() { Clear(); }
  ResourceManager(const ResourceManager&) = delete;
  ResourceManager& operator=(const ResourceManager&) = delete;

  // NotFound "Resource <container>/<name>/<type> does not exist." if there is none.
  template <typename T>
  StatusOr<RefPtr<T>> Lookup(std::string_view container, std::string_view name) const {
    RefPtr<Resource> found = Find(container, typeid(T), name);
    if (!found) return NoSuchResource(container, name, typeid(T).name());
    return RefPtr<T>(static_cast<T*>(found.release()));
  }
  // The creator runs under the manager's lock and must not use the manager.
  template <typename T>
  StatusOr<RefPtr<T>> LookupOrCreate(std::string_view container, std::string_view name,
                                     const std::function<StatusOr<RefPtr<T>>()>& create) {
    StatusOr<RefPtr<Resource>> found =
        FindOrCreate(container, typeid(T), name, [&]() -> StatusOr<RefPtr<Resource>> {
          StatusOr<RefPtr<T>> made = create();
          if (!made.ok()) return made.status();
          return RefPtr<Resource>(*std::move(made));
        });
    if (!found.ok()) return found.status();
    return RefPtr<T>(static_cast<T*>(found->release()));
  }
  // AlreadyExists if the key is taken.
  template <typename T>
  Status Create(std::string_view container, std::string_view name, RefPtr<T> resource) {
    return Insert(container, typeid(T), name, RefPtr<Resource>(std::move(resource)));
  }
  template <typename T>
  Status Delete(std::string_view container, std::string_view name) {
    return Remove(container, typeid(T), name);
  }
  // The same, with the C++ type given by its hash code, as handles carry it.
  Status DeleteByTypeHash(std::string_view container, uint64_t type_hash, std::string_view name);
  // Forgets everything in a container; it need not exist.
  void Cleanup(std::string_view container);
  void Clear();
  // "container/name: DebugString" lines, sorted.
  std::string DebugString() const;

 private:
  struct Key {
    std::type_index type;
    std::string name;
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.type.hash_code(), key.name);
    }
  };
  using Container = absl::flat_hash_map<Key, RefPtr<Resource>>;

  RefPtr<Resource> Find(std::string_view container, std::type_index type,
                        std::string_view name) const;
  StatusOr<RefPtr<Resource>> FindOrCreate(
      std::string_view container, std::type_index type, std::string_view name,
      const std::function<StatusOr<RefPtr<Resource>>()>& create);
  Status Insert(std::string_view container, std::type_index type, std::string_view name,
                RefPtr<Resource> resource);
  Status Remove(std::string_view container, std::type_index type, std::string_view name);
  static Status NoSuchResource(std::string_view container, std::string_view name,
                               const char* type_name);

  mutable Mutex mu_;
  absl::flat_hash_map<std::string, Container> containers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // DEVICE_RESOURCE_MANAGER_H_
