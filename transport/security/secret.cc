// SPDX-License-Identifier: Apache-2.0
#include "transport/security/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/errors.h"

namespace millrace {
namespace {

constexpr std::size_t kLeastSize = 16, kMostSize = 1024;

// The file's content, as far as it could be a token's, after a look at whose it is.
StatusOr<std::string> ReadOwn(int fd, const std::string& path) {
  struct stat file{};
  if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) {
    return errors::InvalidArgument("the token file ", path, " is not a regular file");
  }
  if (file.st_uid != geteuid() && file.st_uid != 0) {
    return errors::InvalidArgument("the token file ", path, " belongs to another user");
  }
  if ((file.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return errors::InvalidArgument("others may use the token file ", path, ": chmod 600 ", path);
  }
  std::string text(kMostSize + 2, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = read(fd, text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return errors::InvalidArgument("cannot read the token file ", path, ": ",
                                     std::strerror(errno));
    }
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  text.resize(size);
  return text;
}

}  // namespace

bool SameSecret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

Status CheckOwnFile(std::string_view what, const std::string& path) {
  struct stat file{};
  if (stat(path.c_str(), &file) != 0) return OkStatus();
  if (file.st_uid != geteuid() && file.st_uid != 0) {
    return errors::InvalidArgument(what, path, " belongs to another user");
  }
  const mode_t group = file.st_uid == 0 && geteuid() != 0 ? S_IRGRP : 0;
  if ((file.st_mode & (S_IRWXG | S_IRWXO) & ~group) == 0) return OkStatus();
  return errors::InvalidArgument("others may use ", what, path, ": chmod 600 ", path);
}

StatusOr<std::string> ReadTokenFile(const std::string& path) {
  // A FIFO must not keep the program waiting.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return errors::InvalidArgument("cannot open the token file ", path, ": ", std::strerror(errno));
  }
  StatusOr<std::string> token = ReadOwn(fd, path);
  close(fd);
  if (!token.ok()) return token;
  if (token->ends_with('\n')) token->pop_back();
  const bool printable =
      std::all_of(token->begin(), token->end(), [](char c) { return c > ' ' && c <= '~'; });
  if (printable && token->size() >= kLeastSize && token->size() <= kMostSize) return token;
  return errors::InvalidArgument(
      "the token file ", path, " must hold one line of ", kLeastSize, " to ", kMostSize,
      " printable characters without spaces: openssl rand -hex 32 > ", path);
}

}  // namespace millrace
