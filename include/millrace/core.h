// SPDX-License-Identifier: Apache-2.0
// Graphs, sessions, servers, and the ops that train: what millrace/millrace.h has, but for models
// and what feeds, keeps and watches them.
#ifndef MILLRACE_CORE_H_
#define MILLRACE_CORE_H_

#include "millrace/cluster.h"
#include "millrace/control_flow.h"
#include "millrace/digits.h"
#include "millrace/gpu.h"
#include "millrace/graph.h"
#include "millrace/initializers.h"
#include "millrace/losses.h"
#include "millrace/math.h"
#include "millrace/metrics.h"
#include "millrace/ops.h"
#include "millrace/server.h"
#include "millrace/session.h"
#include "millrace/staleness_bound.h"
#include "millrace/status_macros.h"
#include "millrace/step_trace.h"
#include "millrace/supervised_session.h"
#include "millrace/training.h"
#include "millrace/variables.h"

#endif  // MILLRACE_CORE_H_
