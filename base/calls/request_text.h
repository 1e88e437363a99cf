// SPDX-License-Identifier: Apache-2.0
// The names of requests: what an error says at the client, and the log of every task that had a
// part in it.
#ifndef BASE_CALLS_REQUEST_TEXT_H_
#define BASE_CALLS_REQUEST_TEXT_H_

#include <cstdint>
#include <string>

#include "millrace/status.h"

namespace millrace {

// An id that no other request has, of this process or another, but by chance; never 0. Costs
// neither memory nor a system call, but the first time: it is drawn for each step.
int64_t NewRequestId();

// " [request 00000000075bcd15]", as errors, log lines and pages name a client's request in every
// task that works for it; "" for 0.
std::string RequestText(int64_t request_id);

// An error with that at its end, if it has it nowhere yet. OK and the end of data, which is nothing
// to look for, stay as they are.
Status OfRequest(Status status, int64_t request_id);

}  // namespace millrace

#endif  // BASE_CALLS_REQUEST_TEXT_H_
