// SPDX-License-Identifier: Apache-2.0
// Names of files by pattern.
#ifndef KERNELS_IO_MATCH_FILES_H_
#define KERNELS_IO_MATCH_FILES_H_

#include <string>
#include <vector>

#include "millrace/status.h"

namespace millrace {

// Appends the paths of the machine that `pattern` matches, in no order: '*', '?' and '[...]' stand
// for characters of one component of the path. Nothing found is no error, nor is a folder that
// cannot be listed. Unimplemented for schemes other than "file://".
Status MatchFiles(const std::string& pattern, std::vector<std::string>* found);

}  // namespace millrace

#endif  // KERNELS_IO_MATCH_FILES_H_
