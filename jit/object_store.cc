// SPDX-License-Identifier: Apache-2.0
#include "jit/object_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "base/hash.h"
#include "base/strings.h"

namespace millrace::jit {
namespace {

constexpr std::string_view kMagic = "millrace object 1\n";
constexpr std::size_t kMostBytes = std::size_t{16} << 20;

void AppendNumber(uint64_t n, std::string* text) {
  text->append(reinterpret_cast<const char*>(&n), sizeof(n));
}

bool TakeText(std::string_view wanted, std::string_view* text) {
  if (text->substr(0, wanted.size()) != wanted) return false;
  text->remove_prefix(wanted.size());
  return true;
}

bool TakeNumber(std::string_view* text, uint64_t* n) {
  if (text->size() < sizeof(*n)) return false;
  std::memcpy(n, text->data(), sizeof(*n));
  text->remove_prefix(sizeof(*n));
  return true;
}

// Nobody else can have put something there that would be run.
bool IsOurs(const struct stat& info) {
  return info.st_uid == geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::optional<std::string> ReadWhole(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return std::nullopt;
  struct stat info;
  std::optional<std::string> text;
  if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && IsOurs(info) &&
      static_cast<uint64_t>(info.st_size) <= kMostBytes) {
    text.emplace(static_cast<std::size_t>(info.st_size), '\0');
    std::size_t done = 0;
    while (done < text->size()) {
      const ssize_t n = read(file, text->data() + done, text->size() - done);
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    if (done != text->size()) text.reset();
  }
  close(file);
  return text;
}

std::string Head(std::string_view key, std::string_view object) {
  std::string text(kMagic);
  AppendNumber(key.size(), &text);
  text += key;
  AppendNumber(object.size(), &text);
  AppendNumber(Hash64(object), &text);
  return text;
}

bool WriteWhole(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(file, text.data(), text.size());
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

std::string ObjectFileName(std::string_view key) {
  char name[48];
  std::snprintf(name, sizeof(name), "%016llx%016llx.o",
                static_cast<unsigned long long>(Hash64(key)),
                static_cast<unsigned long long>(Hash64(key, 1)));
  return name;
}

std::optional<std::string> ReadObject(const std::string& folder, std::string_view key) {
  struct stat info;
  if (stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || !IsOurs(info)) return {};
  const std::optional<std::string> text = ReadWhole(StrCat(folder, "/", ObjectFileName(key)));
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  uint64_t size = 0, hash = 0;
  if (!TakeText(kMagic, &rest) || !TakeNumber(&rest, &size) || size != key.size() ||
      !TakeText(key, &rest) || !TakeNumber(&rest, &size) || !TakeNumber(&rest, &hash) ||
      rest.size() != size || Hash64(rest) != hash) {
    return std::nullopt;
  }
  return std::string(rest);
}

void WriteObject(const std::string& folder, std::string_view key, std::string_view object) {
  static std::atomic<int> next{0};
  mkdir(folder.c_str(), 0700);  // or it is there
  const std::string path = StrCat(folder, "/", ObjectFileName(key));
  const std::string draft = StrCat(path, ".", getpid(), ".", next.fetch_add(1));
  const int file = open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return;
  const bool written = WriteWhole(file, Head(key, object)) && WriteWhole(file, object);
  if (close(file) != 0 || !written || rename(draft.c_str(), path.c_str()) != 0) {
    unlink(draft.c_str());
  }
}

}  // namespace millrace::jit
