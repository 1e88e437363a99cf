// SPDX-License-Identifier: Apache-2.0
// Counts calls of malloc and its kin: a program that links this has its own.
#ifndef TESTS_SESSIONS_MALLOC_COUNT_H_
#define TESTS_SESSIONS_MALLOC_COUNT_H_

#include <cstdint>

namespace millrace::testing {

struct MallocCount {
  int64_t ours = 0;
  int64_t library = 0;  // of the library of dense kernels, and of its threads
};

// What all threads of the process call between the two; not to be nested. The first few calls of
// ours are printed with where they come from.
void BeginMallocCount();
MallocCount EndMallocCount();

}  // namespace millrace::testing

#endif  // TESTS_SESSIONS_MALLOC_COUNT_H_
