// SPDX-License-Identifier: Apache-2.0
// Intrusive reference counts. Used where an object is shared between steps, devices
// and threads and a control block of its own would be an extra allocation.
#ifndef MILLRACE_REF_PTR_H_
#define MILLRACE_REF_PTR_H_

#include <atomic>
#include <cstdint>
#include <utility>

namespace millrace {

// Base of shared objects. A new object has one reference, owned by its creator.
// Thread-safe: Ref and Unref may be called from any thread.
class RefCounted {
 public:
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  // Adds a reference.
  void Ref() const { count_.fetch_add(1, std::memory_order_relaxed); }

  // Drops one reference; the last one destroys the object (through Destroy).
  void Unref() const {
    if (count_.load(std::memory_order_acquire) == 1 ||
        count_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      const_cast<RefCounted*>(this)->Destroy();
    }
  }

  // True if the caller's reference is the only one: nobody else can then gain one
  // except through the caller.
  bool RefCountIsOne() const { return count_.load(std::memory_order_acquire) == 1; }

 protected:
  RefCounted() = default;
  virtual ~RefCounted() = default;

  // Called once, when the last reference is gone. A pooled object overrides this to go
  // back to its pool; it must call ResetRefCount before it is handed out again.
  virtual void Destroy() { delete this; }
  // One reference again.
  void ResetRefCount() { count_.store(1, std::memory_order_relaxed); }

 private:
  mutable std::atomic<int32_t> count_{1};
};

// Owns one reference.
template <typename T>
class RefPtr {
 public:
  RefPtr() = default;
  RefPtr(std::nullptr_t) {}  // NOLINT: implicit on purpose
  // Takes over the caller's reference.
  explicit RefPtr(T* adopted) : ptr_(adopted) {}
  // Another reference to the same object.
  RefPtr(const RefPtr& other) : ptr_(other.ptr_) {
    if (ptr_ != nullptr) ptr_->Ref();
  }
  // Takes the reference of `other`, which is null then.
  RefPtr(RefPtr&& other) noexcept : ptr_(std::exchange(other.ptr_, nullptr)) {}
  template <typename U>
  RefPtr(RefPtr<U> other) : ptr_(other.release()) {}  // NOLINT: implicit upcast
  ~RefPtr() {
    if (ptr_ != nullptr) ptr_->Unref();
  }
  RefPtr& operator=(const RefPtr& other) {
    RefPtr copy(other);
    std::swap(ptr_, copy.ptr_);
    return *this;
  }
  RefPtr& operator=(RefPtr&& other) noexcept {
    RefPtr moved(std::move(other));
    std::swap(ptr_, moved.ptr_);
    return *this;
  }

  // A new reference to an object that somebody else owns.
  static RefPtr Share(T* ptr) {
    if (ptr != nullptr) ptr->Ref();
    return RefPtr(ptr);
  }

  // The object; null if there is none.
  T* get() const { return ptr_; }
  T& operator*() const { return *ptr_; }
  T* operator->() const { return ptr_; }
  explicit operator bool() const { return ptr_ != nullptr; }
  // Gives the reference up.
  void reset() { *this = RefPtr(); }
  // Gives the reference to the caller.
  [[nodiscard]] T* release() { return std::exchange(ptr_, nullptr); }

  friend bool operator==(const RefPtr& a, const RefPtr& b) { return a.ptr_ == b.ptr_; }

 private:
  T* ptr_ = nullptr;
};

// A new object, made of `args`, and its first reference.
template <typename T, typename... Args>
RefPtr<T> MakeRef(Args&&... args) {
  return RefPtr<T>(new T(std::forward<Args>(args)...));
}

}  // namespace millrace

#endif  // MILLRACE_REF_PTR_H_
