// SPDX-License-Identifier: Apache-2.0
// Propagation of errors.
#ifndef BASE_STATUS_MACROS_H_
#define BASE_STATUS_MACROS_H_

#include "millrace/status_macros.h"

#endif  // BASE_STATUS_MACROS_H_
