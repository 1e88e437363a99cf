// SPDX-License-Identifier: Apache-2.0
// Files that hold a message, binary or as text.
#ifndef PLANNER_TEXT_INPUT_H_
#define PLANNER_TEXT_INPUT_H_

#include <google/protobuf/message.h>

#include <string>

#include "millrace/status.h"

namespace millrace {

// The whole file; "-" is standard input. NotFound "cannot read PATH".
StatusOr<std::string> ReadInput(const std::string& path);
// Creates or replaces the file. InvalidArgument "cannot write PATH".
Status WriteOutput(const std::string& path, const std::string& bytes);

// If the bytes may be meant as text: no control characters at the beginning.
bool LooksLikeText(const std::string& bytes);
// False if it is no such text; then `error` has "line N: ..." unless it said something before.
bool ParseTextMessage(const std::string& text, google::protobuf::Message* message,
                      std::string* error);

}  // namespace millrace

#endif  // PLANNER_TEXT_INPUT_H_
