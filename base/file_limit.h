// SPDX-License-Identifier: Apache-2.0
// How many files and sockets this process may have open.
#ifndef BASE_FILE_LIMIT_H_
#define BASE_FILE_LIMIT_H_

#include <cstdint>

namespace millrace {

// Raises the limit as far as the process may without asking anybody, and returns what it is then.
// A server needs a descriptor for every client and peer; what it is given by default, 1024, is for
// programs that wait with select().
int64_t RaiseFileLimit();

}  // namespace millrace

#endif  // BASE_FILE_LIMIT_H_
