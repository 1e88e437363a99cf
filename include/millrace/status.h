// SPDX-License-Identifier: Apache-2.0
// Errors are values: every function that can fail returns a Status or a StatusOr.
#ifndef MILLRACE_STATUS_H_
#define MILLRACE_STATUS_H_

#include <atomic>
#include <concepts>
#include <exception>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace millrace {

// The numbers of gRPC and TensorFlow.
enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};
// "INVALID_ARGUMENT" and so on.
std::string_view StatusCodeName(StatusCode code);
std::ostream& operator<<(std::ostream& out, StatusCode code);

// A code, a message that names node, device and task where one is involved, and payloads: what the
// wire carries beside the message (docs/wire.md). A pointer in size, null for OK; copies share what
// they say until one of them is changed. A status may be read by several threads at once.
class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  // The message of kOk is dropped.
  Status(StatusCode code, std::string_view message);
  // Shares what `other` says.
  Status(const Status& other) : rep_(other.rep_) { Ref(); }
  // Takes what `other` says, which is OK then.
  Status(Status&& other) noexcept : rep_(std::exchange(other.rep_, nullptr)) {}
  Status& operator=(const Status& other);
  Status& operator=(Status&& other) noexcept;
  ~Status() { Unref(); }

  // Whether there was no error.
  bool ok() const { return rep_ == nullptr; }
  // The class of the error; kOk if there is none.
  StatusCode code() const { return ok() ? StatusCode::kOk : rep_->code; }
  // Valid until this status is changed or gone.
  std::string_view message() const { return ok() ? std::string_view() : rep_->message; }
  // "INVALID_ARGUMENT: message", with the payloads behind it; "OK".
  std::string ToString() const;

  // Payloads by the URL of their type. An OK status has none, and takes none.
  std::optional<std::string> GetPayload(std::string_view type_url) const;
  // Adds a payload, or replaces the one of the same type.
  void SetPayload(std::string_view type_url, std::string_view payload);
  bool ErasePayload(std::string_view type_url);  // whether there was one
  // Calls `visit` with each payload, in no order that can be relied on.
  void ForEachPayload(
      const std::function<void(std::string_view type_url, std::string_view payload)>& visit) const;

  // Keeps the first error.
  void Update(const Status& other) {
    if (ok()) *this = other;
  }
  // Says that an error is of no interest here.
  void IgnoreError() const {}

  friend bool operator==(const Status& a, const Status& b) {
    return a.rep_ == b.rep_ || Equal(a, b);
  }

 private:
  struct Payload {
    std::string type_url, value;
    friend bool operator==(const Payload&, const Payload&) = default;
  };
  struct Payloads;
  struct Rep {
    Rep(StatusCode c, std::string_view m);
    Rep(const Rep& other);
    ~Rep();
    std::atomic<int> refs{1};
    const StatusCode code;
    const std::string message;
    std::unique_ptr<Payloads> payloads;  // null: none
  };

  void Ref() const {
    if (rep_ != nullptr) rep_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  void Unref() {
    if (rep_ != nullptr) Drop();
  }
  void Drop();
  Payloads& OwnPayloads();
  static bool Equal(const Status& a, const Status& b);

  Rep* rep_ = nullptr;
};
std::ostream& operator<<(std::ostream& out, const Status& status);

// The status of what succeeded.
inline Status OkStatus() { return Status(); }

// What StatusOr throws where a value is asked for and there is none.
class BadStatusOrAccess : public std::exception {
 public:
  // Of a StatusOr with this status.
  explicit BadStatusOrAccess(const Status& status)
      : status_(status), what_("no value but " + status.ToString()) {}
  // "no value but", and the status as text.
  const char* what() const noexcept override { return what_.c_str(); }
  // Why there is no value.
  const Status& status() const { return status_; }

 private:
  Status status_;
  std::string what_;
};

// A value, or why there is none. Asking an error for its value throws BadStatusOrAccess: test ok()
// before.
template <typename T>
class [[nodiscard]] StatusOr {
  template <typename U>
  static constexpr bool kIsOwn = std::is_same_v<std::remove_cvref_t<U>, StatusOr> ||
                                 std::is_same_v<std::remove_cvref_t<U>, Status> ||
                                 std::is_same_v<std::remove_cvref_t<U>, std::in_place_t>;

 public:
  // The type of the value.
  using value_type = T;

  StatusOr() : StatusOr(Status(StatusCode::kUnknown, "")) {}
  // An OK status, which promises a value that is not there, becomes Internal.
  StatusOr(Status status) : status_(std::move(status)) {  // NOLINT: to be returned
    if (status_.ok()) status_ = Status(StatusCode::kInternal, "an OK status is not a value");
  }
  template <typename U = T>
    requires(!kIsOwn<U> && std::is_constructible_v<T, U &&>)
  explicit(!std::is_convertible_v<U&&, T>) StatusOr(U&& value)  // NOLINT: to be returned
      : value_(std::forward<U>(value)) {}
  // A value made of `args` where it stands.
  template <typename... Args>
    requires std::is_constructible_v<T, Args...>
  explicit StatusOr(std::in_place_t, Args&&... args) : value_(std::forward<Args>(args)...) {}

  // A copy of the value, or of the error.
  StatusOr(const StatusOr& other)
    requires std::copy_constructible<T>
      : status_(other.status_) {
    if (other.ok()) std::construct_at(&value_, other.value_);
  }
  // What was moved from keeps a value that was moved from, or its error.
  StatusOr(StatusOr&& other) noexcept(std::is_nothrow_move_constructible_v<T>)
      : status_(other.status_) {
    if (other.ok()) std::construct_at(&value_, std::move(other.value_));
  }
  template <typename U>
    requires(!std::is_same_v<T, U> && std::is_constructible_v<T, const U&>)
  explicit(!std::is_convertible_v<const U&, T>) StatusOr(const StatusOr<U>& other)  // NOLINT
      : status_(other.status()) {
    if (other.ok()) std::construct_at(&value_, *other);
  }
  template <typename U>
    requires(!std::is_same_v<T, U> && std::is_constructible_v<T, U &&>)
  explicit(!std::is_convertible_v<U&&, T>) StatusOr(StatusOr<U>&& other)  // NOLINT
      : status_(other.status()) {
    if (other.ok()) std::construct_at(&value_, *std::move(other));
  }
  StatusOr& operator=(const StatusOr& other)
    requires std::copy_constructible<T>
  {
    if (this != &other) *this = StatusOr(other);
    return *this;
  }
  StatusOr& operator=(StatusOr&& other) noexcept(std::is_nothrow_move_constructible_v<T>) {
    if (this == &other) return *this;
    if (!other.ok()) {
      if (ok()) std::destroy_at(&value_);
      status_ = other.status_;
    } else if (!ok()) {
      std::construct_at(&value_, std::move(other.value_));
      status_ = Status();
    } else if constexpr (std::is_move_assignable_v<T>) {
      value_ = std::move(other.value_);
    } else {
      std::destroy_at(&value_);
      std::construct_at(&value_, std::move(other.value_));
    }
    return *this;
  }
  ~StatusOr() {
    if (ok()) std::destroy_at(&value_);
  }

  // Whether there is a value.
  bool ok() const { return status_.ok(); }
  // OK, or why there is no value.
  const Status& status() const& { return status_; }
  // The same of a temporary.
  Status status() && { return status_; }

  // The value; BadStatusOrAccess if there is none.
  T& value() & { return Checked().value_; }
  // The value to read.
  const T& value() const& { return Checked().value_; }
  // The value of a temporary, to move from.
  T&& value() && { return std::move(Checked().value_); }
  T& operator*() & { return Checked().value_; }
  const T& operator*() const& { return Checked().value_; }
  T&& operator*() && { return std::move(Checked().value_); }
  T* operator->() { return &Checked().value_; }
  const T* operator->() const { return &Checked().value_; }
  // The value, or `other` in its place.
  template <typename U>
  T value_or(U&& other) const& {
    return ok() ? value_ : static_cast<T>(std::forward<U>(other));
  }
  // The same of a temporary.
  template <typename U>
  T value_or(U&& other) && {
    return ok() ? std::move(value_) : static_cast<T>(std::forward<U>(other));
  }
  // Puts a value made of `args` in the place of value or error.
  template <typename... Args>
  T& emplace(Args&&... args) {
    return (*this = StatusOr(std::in_place, std::forward<Args>(args)...)).value_;
  }
  // Says that an error is of no interest here.
  void IgnoreError() const {}

 private:
  StatusOr& Checked() {
    if (!ok()) [[unlikely]]
      throw BadStatusOrAccess(status_);
    return *this;
  }
  const StatusOr& Checked() const {
    if (!ok()) [[unlikely]]
      throw BadStatusOrAccess(status_);
    return *this;
  }

  Status status_;
  union {
    T value_;  // if status_ is OK
  };
};

}  // namespace millrace

#endif  // MILLRACE_STATUS_H_
