// SPDX-License-Identifier: Apache-2.0
// How a step's error is told on pages.
#ifndef DISTRIBUTED_RUNTIME_PAGES_ERROR_TEXT_H_
#define DISTRIBUTED_RUNTIME_PAGES_ERROR_TEXT_H_

#include <cstddef>
#include <string>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {

// The code and the beginning of the message; "" if there is no error.
inline std::string StepErrorText(const Status& status) {
  constexpr std::size_t kMostErrorText = 300;
  if (status.ok()) return "";
  const std::string text(status.message());
  return StrCat(StatusCodeName(status.code()), ": ", text.substr(0, kMostErrorText));
}

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_PAGES_ERROR_TEXT_H_
