// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/machine/lost_machine.h"

#include <cstddef>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

constexpr std::size_t kNamedSuspects = 8;

}  // namespace

Status LostMachine(const Status& cause, std::string_view device, std::string_view gpu,
                   std::span<const std::string> suspects, bool blocking) {
  if (errors::IsCancelled(cause)) return cause;
  std::string text = StrCat(Message(cause), ". ", device, " (", gpu,
                            ") is lost until the process is started again");
  if (suspects.size() == 1) {
    StrAppend(&text, "; the operation was {{node ", suspects[0], "}}");
  } else if (!suspects.empty()) {
    StrAppend(&text, "; it was one of ", suspects.size(), " operations: ");
    for (std::size_t i = 0; i < suspects.size() && i < kNamedSuspects; ++i) {
      StrAppend(&text, i == 0 ? "" : ", ", "{{node ", suspects[i], "}}");
    }
    if (suspects.size() > kNamedSuspects) StrAppend(&text, ", ...");
    if (!blocking) StrAppend(&text, "; MILLRACE_CUDA_BLOCKING=1 tells which");
  }
  return errors::Internal(text);
}

}  // namespace millrace
