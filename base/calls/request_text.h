// SPDX-License-Identifier: Apache-2.0
#ifndef BASE_CALLS_REQUEST_TEXT_H_
#define BASE_CALLS_REQUEST_TEXT_H_

#include <cstdint>
#include <string>

namespace millrace {

// " [request 00000000075bcd15]", as errors, log lines and pages name a client's request in every
// task that works for it; "" for 0.
std::string RequestText(int64_t request_id);

}  // namespace millrace

#endif  // BASE_CALLS_REQUEST_TEXT_H_
