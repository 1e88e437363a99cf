// SPDX-License-Identifier: Apache-2.0
// All that programs train with.
#ifndef MILLRACE_TRAINING_H_
#define MILLRACE_TRAINING_H_

#include "millrace/keras_optimizers.h"
#include "millrace/optimizers.h"
#include "millrace/schedules.h"
#include "millrace/sparse_gradients.h"
#include "millrace/sync_replicas.h"

#endif  // MILLRACE_TRAINING_H_
