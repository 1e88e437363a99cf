// SPDX-License-Identifier: Apache-2.0
// From which machine a call comes.
#ifndef BASE_CALLS_CALLER_HOST_H_
#define BASE_CALLS_CALLER_HOST_H_

#include <string>

namespace millrace {

struct CallerHost {
  std::string address;   // numeric, of the caller's end of the connection; "": not known
  bool is_here = false;  // it is the machine of the callee
};

}  // namespace millrace

#endif  // BASE_CALLS_CALLER_HOST_H_
