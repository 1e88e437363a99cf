// SPDX-License-Identifier: Apache-2.0
// The index of a bundle as a table in LevelDB's format.
#ifndef IO_BUNDLE_INDEX_H_
#define IO_BUNDLE_INDEX_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/filesystem.h"
#include "millrace/status.h"

namespace millrace {

// Writes keys and values, in the order of the map, as a table file at `path`, durably.
Status WriteTable(FileSystem* fs, const std::string& path,
                  const std::map<std::string, std::string>& values);

// All keys and values of a table file, in key order. DataLoss with file, place and what was
// expected there if it is damaged.
StatusOr<std::vector<std::pair<std::string, std::string>>> ReadTable(FileSystem* fs,
                                                                     const std::string& path);

// What is wrong with the bytes of a table file: the end of it, or a block that is not as its
// checksum says, with the place in the file and what was expected. "" if all blocks that the file
// names are whole; what they hold may still be no table. Of a file with a compressed index only
// that is looked at.
std::string DescribeTableDamage(std::string_view file);

}  // namespace millrace

#endif  // IO_BUNDLE_INDEX_H_
