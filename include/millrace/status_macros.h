// SPDX-License-Identifier: Apache-2.0
// Propagation of errors, for functions that return Status or StatusOr.
#ifndef MILLRACE_STATUS_MACROS_H_
#define MILLRACE_STATUS_MACROS_H_

#include <utility>

#include "millrace/status.h"

// MR_RETURN_IF_ERROR(Do()): the caller returns the status unless it is OK.
#define MR_RETURN_IF_ERROR(expr)            \
  do {                                      \
    ::millrace::Status mr_status_ = (expr); \
    if (!mr_status_.ok()) [[unlikely]]      \
      return mr_status_;                    \
  } while (0)

#define MR_CONCAT_IMPL_(a, b) a##b
#define MR_CONCAT_(a, b) MR_CONCAT_IMPL_(a, b)

// MR_ASSIGN_OR_RETURN(auto x, MakeX()): x is the value, or the caller returns the error.
#define MR_ASSIGN_OR_RETURN(lhs, expr) \
  MR_ASSIGN_OR_RETURN_IMPL_(MR_CONCAT_(mr_or_, __LINE__), lhs, expr)
#define MR_ASSIGN_OR_RETURN_IMPL_(var, lhs, expr) \
  auto var = (expr);                              \
  if (!var.ok()) [[unlikely]]                     \
    return std::move(var).status();               \
  lhs = std::move(var).value()

#endif  // MILLRACE_STATUS_MACROS_H_
