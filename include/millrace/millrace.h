// Everything a program needs to build, train and run graphs.
#ifndef MILLRACE_MILLRACE_H_
#define MILLRACE_MILLRACE_H_

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
#include "millrace/step_trace.h"
#include "millrace/supervised_session.h"
#include "millrace/training.h"
#include "millrace/variables.h"

#endif  // MILLRACE_MILLRACE_H_
