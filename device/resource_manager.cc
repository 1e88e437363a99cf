// SPDX-License-Identifier: Apache-2.0
#include "device/resource_manager.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/strings.h"

namespace millrace {
namespace {

// To look for a container without a copy of its name.
absl::string_view ContainerKey(std::string_view container) {
  if (container.empty()) container = kDefaultContainer;
  return {container.data(), container.size()};
}
std::string_view NameOf(std::string_view container) {
  return container.empty() ? kDefaultContainer : container;
}

std::string Demangle(const char* name) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                              std::free);
  return status == 0 ? text.get() : name;
}

// The thread's own key with this type and name, which takes no memory once its text has room: ops
// ask for variables in every step. `own` instead where the thread's is gone, at the end of the
// process.
template <typename Key>
const Key& KeyToLookWith(std::type_index type, std::string_view name, Key* own) {
  thread_local bool gone = false;
  struct Kept {
    ~Kept() { gone = true; }
    Key key{typeid(void), ""};
  };
  thread_local Kept kept;
  Key& key = gone ? *own : kept.key;
  key.type = type;
  key.name = name;
  return key;
}

// Clients choose names, and whoever reads the lines takes each for a resource.
std::string OneLine(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, '?');
  return text;
}

}  // namespace

RefPtr<Resource> ResourceManager::Find(std::string_view container, std::type_index type,
                                       std::string_view name) const {
  MutexLock lock(&mu_);
  const auto c = containers_.find(ContainerKey(container));
  if (c == containers_.end()) return nullptr;
  Key own{type, ""};
  const auto r = c->second.find(KeyToLookWith(type, name, &own));
  return r == c->second.end() ? nullptr : r->second;
}

StatusOr<RefPtr<Resource>> ResourceManager::FindOrCreate(
    std::string_view container, std::type_index type, std::string_view name,
    const std::function<StatusOr<RefPtr<Resource>>()>& create) {
  MutexLock lock(&mu_);
  Container& c = containers_[ContainerKey(container)];
  Key own{type, ""};
  if (const auto r = c.find(KeyToLookWith(type, name, &own)); r != c.end()) return r->second;
  StatusOr<RefPtr<Resource>> made = create();
  if (made.ok()) c.emplace(Key{type, std::string(name)}, *made);
  return made;
}

Status ResourceManager::Insert(std::string_view container, std::type_index type,
                               std::string_view name, RefPtr<Resource> resource) {
  MutexLock lock(&mu_);
  Container& c = containers_[ContainerKey(container)];
  if (!c.try_emplace(Key{type, std::string(name)}, std::move(resource)).second) {
    return errors::AlreadyExists("Resource ", container.empty() ? kDefaultContainer : container,
                                 "/", name, "/", Demangle(type.name()), " already exists.");
  }
  return OkStatus();
}

Status ResourceManager::Remove(std::string_view container, std::type_index type,
                               std::string_view name) {
  RefPtr<Resource> removed;  // dies after the lock
  {
    MutexLock lock(&mu_);
    const auto c = containers_.find(ContainerKey(container));
    if (c != containers_.end()) {
      const auto r = c->second.find(Key{type, std::string(name)});
      if (r != c->second.end()) {
        removed = std::move(r->second);
        c->second.erase(r);
      }
    }
  }
  if (!removed) return NoSuchResource(container, name, type.name());
  removed->OnRemoved();
  return OkStatus();
}

Status ResourceManager::DeleteByTypeHash(std::string_view container, uint64_t type_hash,
                                         std::string_view name) {
  RefPtr<Resource> removed;  // dies after the lock
  {
    MutexLock lock(&mu_);
    const auto c = containers_.find(ContainerKey(container));
    if (c != containers_.end()) {
      for (auto r = c->second.begin(); r != c->second.end(); ++r) {
        if (r->first.type.hash_code() != type_hash || r->first.name != name) continue;
        removed = std::move(r->second);
        c->second.erase(r);
        break;
      }
    }
  }
  if (!removed) return NoSuchResource(container, name, "resource");
  removed->OnRemoved();
  return OkStatus();
}

void ResourceManager::Cleanup(std::string_view container) {
  Container removed;
  {
    MutexLock lock(&mu_);
    const auto c = containers_.find(ContainerKey(container));
    if (c == containers_.end()) return;
    removed = std::move(c->second);
    containers_.erase(c);
  }
  for (auto& [key, resource] : removed) resource->OnRemoved();
}

void ResourceManager::Clear() {
  absl::flat_hash_map<std::string, Container> removed;
  {
    MutexLock lock(&mu_);
    removed.swap(containers_);
  }
  for (auto& [name, container] : removed) {
    for (auto& [key, resource] : container) resource->OnRemoved();
  }
}

std::string ResourceManager::DebugString() const {
  std::vector<std::string> lines;
  {
    MutexLock lock(&mu_);
    for (const auto& [name, container] : containers_) {
      for (const auto& [key, resource] : container) {
        lines.push_back(OneLine(StrCat(name, "/", key.name, ": ", resource->DebugString())));
      }
    }
  }
  std::sort(lines.begin(), lines.end());
  return StrJoin(lines, "\n");
}

Status ResourceManager::NoSuchResource(std::string_view container, std::string_view name,
                                       const char* type_name) {
  return errors::NotFound("Resource ", NameOf(container), "/", name, "/", Demangle(type_name),
                          " does not exist.");
}

}  // namespace millrace
