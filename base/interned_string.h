// SPDX-License-Identifier: Apache-2.0
// Texts that very many objects share: a pointer each, and one copy of the text.
#ifndef BASE_INTERNED_STRING_H_
#define BASE_INTERNED_STRING_H_

#include <string>
#include <string_view>
#include <utility>

namespace millrace {

// A value; equal texts are one object. The text is freed with its last owner. Different
// objects may be used in different threads; making one, and giving up the last, takes a lock
// of the whole process.
class InternedString {
 public:
  InternedString() = default;             // ""
  InternedString(std::string_view text);  // NOLINT: a text is one
  InternedString(const std::string& text) : InternedString(std::string_view(text)) {}  // NOLINT
  InternedString(const char* text) : InternedString(std::string_view(text)) {}         // NOLINT
  InternedString(const InternedString& other) : rep_(other.rep_) { Ref(); }
  InternedString(InternedString&& other) noexcept : rep_(std::exchange(other.rep_, nullptr)) {}
  InternedString& operator=(InternedString other) noexcept {
    std::swap(rep_, other.rep_);
    return *this;
  }
  ~InternedString() {
    if (rep_ != nullptr) Unref();
  }

  // Valid as long as any object has this text.
  const std::string& str() const;
  bool empty() const { return rep_ == nullptr; }
  friend bool operator==(const InternedString& a, const InternedString& b) {
    return a.rep_ == b.rep_;
  }

 private:
  struct Rep;
  struct Table;
  static Table& TheTable();
  void Ref();
  void Unref();

  Rep* rep_ = nullptr;  // null for ""
};

}  // namespace millrace

#endif  // BASE_INTERNED_STRING_H_
