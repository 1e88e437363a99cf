// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/runner.h"

#include <ctime>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "frontend/graph_builder.h"
#include "graph/graph_def_io.h"
#include "jit/code_cache.h"
#include "runtime/fake_accelerator.h"
#include "runtime/local_cluster.h"

namespace millrace::bench {
namespace {

double ProcessorSeconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<std::string> NamesOf(const std::vector<Operation>& ops) {
  std::vector<std::string> names;
  for (const Operation& op : ops) names.push_back(op.name());
  return names;
}

}  // namespace

StatusOr<std::unique_ptr<Runner>> Runner::Start(std::unique_ptr<Workload> workload,
                                                const std::string& device_type) {
  auto runner = std::unique_ptr<Runner>(new Runner);
  runner->workload_ = std::move(workload);
  const Workload& w = *runner->workload_;
  MR_RETURN_IF_ERROR(w.graph.status());
  setenv("MILLRACE_CUDA_TF32", w.tf32 ? "1" : "0", 1);  // read when a machine is opened
  pb::ConfigProto config;
  // A node that has no kernel on the device would be a figure about something else.
  config.set_allow_soft_placement(false);
  if (device_type == "FAKE") UseFakeAccelerator();
  if (device_type != "CPU") (*config.mutable_device_count())[device_type] = 1;
  // The caller issues the step itself, as torch's does: what it costs the host is that thread's.
  config.set_inter_op_parallelism_threads(-1);
  config.mutable_gpu_options()->set_allow_growth(true);
  config.mutable_graph_options()->mutable_rewrite_options()->set_remapping(
      w.fuses ? pb::RewriterConfig::ON : pb::RewriterConfig::OFF);
  MR_ASSIGN_OR_RETURN(runner->master_, NewLocalCluster(config));
  pb::GraphDef def;
  MR_RETURN_IF_ERROR(ExportGraphDef(*w.graph.state()->graph, {}, &def));
  ClientSession::Options options;
  options.config = config;
  MR_ASSIGN_OR_RETURN(runner->session_,
                      ClientSession::Create(runner->master_, std::move(def), std::move(options)));
  ClientSession::RunRequest init;
  init.targets = NamesOf(w.init);
  MR_RETURN_IF_ERROR(runner->session_->Run(std::move(init)).status());
  pb::CallableOptions step;
  for (const std::string& name : NamesOf(w.step)) step.add_target(name);
  MR_ASSIGN_OR_RETURN(runner->callable_, runner->session_->MakeCallable(step));
  for (int i = 0; i < 3; ++i) {
    MR_RETURN_IF_ERROR(runner->Step());
    if (w.fuses && !jit::CodeCache::Global()->WaitUntilIdle()) {
      return errors::DeadlineExceeded("loops are still being compiled after a minute");
    }
  }
  MR_RETURN_IF_ERROR(runner->Results().status());
  return runner;
}

Status Runner::Step() { return session_->RunCallable(callable_, {}).status(); }

StatusOr<std::vector<Tensor>> Runner::Results() {
  ClientSession::RunRequest request;
  for (const Output& result : workload_->results) request.fetches.push_back(result.name());
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> values, session_->Run(std::move(request)));
  for (const Tensor& value : values) {
    for (int64_t i = 0; i < value.num_elements(); ++i) {
      if (std::isfinite(value.data<float>()[i])) continue;
      return errors::FailedPrecondition(workload_->name, " computes ", value.data<float>()[i]);
    }
  }
  return values;
}

StatusOr<Runner::Cost> Runner::Measure(double seconds) {
  const int64_t first = SteadyNanos();
  MR_RETURN_IF_ERROR(Step());
  const double one = 1e-9 * static_cast<double>(SteadyNanos() - first);
  const int steps = std::clamp(static_cast<int>(seconds / one), 5, 10000);
  const double caller = ProcessorSeconds(CLOCK_THREAD_CPUTIME_ID);
  const double process = ProcessorSeconds(CLOCK_PROCESS_CPUTIME_ID);
  const int64_t begin = SteadyNanos();
  for (int i = 0; i < steps; ++i) MR_RETURN_IF_ERROR(Step());
  const int64_t nanos = SteadyNanos() - begin;
  const double per_step = 1e6 / steps;
  return Cost{
      .milliseconds = 1e-6 * static_cast<double>(nanos) / steps,
      .host_microseconds = per_step * (ProcessorSeconds(CLOCK_THREAD_CPUTIME_ID) - caller),
      .process_microseconds = per_step * (ProcessorSeconds(CLOCK_PROCESS_CPUTIME_ID) - process)};
}

}  // namespace millrace::bench
