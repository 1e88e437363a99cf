// SPDX-License-Identifier: Apache-2.0
// Compiled objects on disk, one file each.
#ifndef JIT_OBJECT_STORE_H_
#define JIT_OBJECT_STORE_H_

#include <optional>
#include <string>
#include <string_view>

namespace millrace::jit {

// `key` says everything that the object depends on. None if there is no file for it, if the file
// is not whole or not of this key, or if somebody else could have written it: it must belong to
// this process's user and be writable by nobody else, and so must the folder.
std::optional<std::string> ReadObject(const std::string& folder, std::string_view key);

// Makes the folder if need be; what was there before is replaced in one step. Failures are
// silent: the object is made again next time.
void WriteObject(const std::string& folder, std::string_view key, std::string_view object);

// The name of the file within the folder.
std::string ObjectFileName(std::string_view key);

}  // namespace millrace::jit

#endif  // JIT_OBJECT_STORE_H_
