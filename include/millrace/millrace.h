// Everything a program needs to build, train and run graphs and models.
#ifndef MILLRACE_MILLRACE_H_
#define MILLRACE_MILLRACE_H_

#include "millrace/callbacks.h"
#include "millrace/checkpoint.h"
#include "millrace/cluster_coordinator.h"
#include "millrace/cluster_resolver.h"
#include "millrace/coordinator.h"
#include "millrace/core.h"
#include "millrace/data.h"
#include "millrace/distributed_values.h"
#include "millrace/functions.h"
#include "millrace/history.h"
#include "millrace/hooks.h"
#include "millrace/layer.h"
#include "millrace/layers.h"
#include "millrace/local_cluster.h"
#include "millrace/model.h"
#include "millrace/monitored_session.h"
#include "millrace/partitioners.h"
#include "millrace/plot.h"
#include "millrace/saver.h"
#include "millrace/security.h"
#include "millrace/session_manager.h"
#include "millrace/strategy.h"
#include "millrace/summary.h"
#include "millrace/supervisor.h"
#include "millrace/tensorboard.h"
#include "millrace/version.h"

#endif  // MILLRACE_MILLRACE_H_
