// SPDX-License-Identifier: Apache-2.0
// What a program says on standard error beside its log, in the form that the log has.
#ifndef BASE_TEXT_LOG_FORMAT_H_
#define BASE_TEXT_LOG_FORMAT_H_

#include <source_location>
#include <string_view>

#include "base/log.h"

namespace millrace {

// Whether lines of the log are JSON objects: MILLRACE_LOG_FORMAT, or --log_format before the first.
bool LogIsJson();

// Writes `text`, which ends its lines itself, to standard error as it is; where the log is JSON, as
// one line of it with that level, so that whoever reads it meets nothing else, and nobody whose
// text is printed can make up a line. Thread-safe.
void WriteBesideLog(LogLevel level, std::string_view text,
                    std::source_location where = std::source_location::current());

}  // namespace millrace

#endif  // BASE_TEXT_LOG_FORMAT_H_
