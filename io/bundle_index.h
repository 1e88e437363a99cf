// SPDX-License-Identifier: Apache-2.0
// The index of a bundle as a table in LevelDB's format.
#ifndef IO_BUNDLE_INDEX_H_
#define IO_BUNDLE_INDEX_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/filesystem.h"
#include "millrace/status.h"

namespace millrace {

// Writes keys and values, in the order of the map, as a table file at `path`, durably.
Status WriteTable(FileSystem* fs, const std::string& path,
                  const std::map<std::string, std::string>& values);

// All keys and values of a table file, in key order. DataLoss if it is damaged.
StatusOr<std::vector<std::pair<std::string, std::string>>> ReadTable(FileSystem* fs,
                                                                     const std::string& path);

}  // namespace millrace

#endif  // IO_BUNDLE_INDEX_H_
