// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shared_inbox.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

constexpr int kNeededSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int64_t kBytesPerStatBlock = 512;

Status CheckFile(int fd, uint64_t size) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kNeededSeals) != kNeededSeals) {
    return errors::InvalidArgument("a link's peer shares a file whose size is not sealed");
  }
  struct stat file{};
  if (fstat(fd, &file) != 0 || static_cast<uint64_t>(file.st_size) != size ||
      static_cast<uint64_t>(file.st_blocks * kBytesPerStatBlock) < size) {
    return errors::InvalidArgument("a link's peer shares ", size,
                                   " bytes of memory that it has not allocated");
  }
  return OkStatus();
}

}  // namespace

void SharedReturns::Add(const SharedPlace& place) {
  MutexLock lock(&mu_);
  if (wake_ == nullptr) return;
  places_.push_back(place);
  if (places_.size() == 1) wake_();
}

std::vector<SharedPlace> SharedReturns::Take() {
  MutexLock lock(&mu_);
  return std::exchange(places_, {});
}

void SharedReturns::Close() {
  MutexLock lock(&mu_);
  wake_ = nullptr;
  places_.clear();
}

class SharedInbox::Mapping final : public RefCounted {
 public:
  Mapping(uint8_t* data, std::size_t size, std::size_t block_size)
      : data_(data), size_(size), block_size_(block_size) {}

  uint8_t* data() const { return data_; }
  std::size_t block_size() const { return block_size_; }
  std::size_t num_blocks() const { return size_ / block_size_; }

 private:
  ~Mapping() override { munmap(data_, size_); }

  uint8_t* const data_;
  const std::size_t size_, block_size_;
};

class SharedInbox::MappedBuffer final : public Buffer {
 public:
  MappedBuffer(RefPtr<Mapping> mapping, const SharedPlace& place, std::size_t size,
               RefPtr<SharedReturns> returns)
      : Buffer(mapping->data() + place.block * mapping->block_size(), size, MemorySpace::kHost),
        mapping_(std::move(mapping)),
        place_(place),
        returns_(std::move(returns)) {}

 private:
  ~MappedBuffer() override { returns_->Add(place_); }

  const RefPtr<Mapping> mapping_;
  const SharedPlace place_;
  const RefPtr<SharedReturns> returns_;
};

SharedInbox::SharedInbox(bool copies, RefPtr<SharedReturns> returns)
    : copies_(copies), returns_(std::move(returns)) {}

SharedInbox::~SharedInbox() = default;

Status SharedInbox::Add(uint32_t id, int fd, uint64_t size, uint64_t block_size) {
  Status status = CheckFile(fd, size);
  if (status.ok() && (block_size == 0 || size == 0 || size > kMostBytes || size % block_size != 0 ||
                      slabs_.contains(id) || slabs_.size() >= kMostSlabs)) {
    status = errors::InvalidArgument("a link's peer shares memory in a way that makes no sense");
  }
  if (status.ok()) {
    // For writing as well: a kernel may work in the only buffer of a tensor.
    void* const data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data != MAP_FAILED) {
      slabs_[id] = MakeRef<Mapping>(static_cast<uint8_t*>(data), size, block_size);
    } else {
      status = errors::ResourceExhausted("cannot map ", size,
                                         " bytes of another task: ", std::strerror(errno));
    }
  }
  close(fd);
  return status;
}

Status SharedInbox::Remove(uint32_t id) {
  if (slabs_.erase(id) == 0) {
    return errors::InvalidArgument("a link's peer ends the use of memory that it does not share");
  }
  return OkStatus();
}

StatusOr<RefPtr<Buffer>> SharedInbox::Open(const SharedPlace& place, uint64_t size) {
  const auto it = slabs_.find(place.slab);
  if (it == slabs_.end() || place.block >= it->second->num_blocks() ||
      size > it->second->block_size()) {
    return errors::InvalidArgument("a link's frame names bytes that its peer does not share");
  }
  RefPtr<Buffer> mapped(new MappedBuffer(it->second, place, size, returns_));
  if (!copies_) return mapped;
  RefPtr<Buffer> copy = HostAllocator()->Allocate(size);
  if (!copy) {
    return errors::ResourceExhausted("no memory for the ", size,
                                     " bytes of a tensor from another task");
  }
  std::memcpy(copy->data(), mapped->data(), size);
  return copy;
}

}  // namespace millrace
