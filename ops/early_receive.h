// SPDX-License-Identifier: Apache-2.0
// A mark on receives from other tasks.
#ifndef OPS_EARLY_RECEIVE_H_
#define OPS_EARLY_RECEIVE_H_

#include <string_view>

namespace millrace {

// A bool on _Recv: true if nothing that its task sends to others in the step has to arrive before
// the value comes. Workers that cannot see the other parts of a graph believe it; without it they
// take it that the value may depend on all that they send.
inline constexpr std::string_view kEarlyReceive = "_millrace_early";

}  // namespace millrace

#endif  // OPS_EARLY_RECEIVE_H_
