// SPDX-License-Identifier: Apache-2.0
// Values and what belongs to them, one of which may lack a last axis of size one.
#ifndef FRONTEND_SAME_RANK_H_
#define FRONTEND_SAME_RANK_H_

#include <utility>

#include "millrace/math.h"

namespace millrace {

// Adds a last axis of size one to the one that lacks it, if that is a vector, or takes it away from
// the other. Left as they are if ranks are unknown or that is not what is between them.
std::pair<Expr, Expr> ToSameRank(const Expr& a, const Expr& b);

}  // namespace millrace

#endif  // FRONTEND_SAME_RANK_H_
