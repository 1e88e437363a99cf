// SPDX-License-Identifier: Apache-2.0
// What the documentation's examples see: the public headers, and stand-ins for their surroundings.
#ifndef TESTS_SNIPPETS_PRELUDE_H_
#define TESTS_SNIPPETS_PRELUDE_H_

#include <cstdlib>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/millrace.h"

// A thing that the page speaks of and the example does not make. Never called: examples are
// compiled, not run.
template <typename T>
T& Any() {
  std::abort();
}

#endif  // TESTS_SNIPPETS_PRELUDE_H_
