// SPDX-License-Identifier: Apache-2.0
// What the stock hooks have in common.
#ifndef TRAINING_HOOKS_HOOK_SUPPORT_H_
#define TRAINING_HOOKS_HOOK_SUPPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "millrace/hooks.h"
#include "millrace/summary.h"

namespace millrace {
class Saver;
}

namespace millrace::hooks {

// The value of the graph's global step. FailedPrecondition, naming the hook, if there is none.
StatusOr<Output> GlobalStepOf(const Graph& graph, std::string_view hook);
StatusOr<int64_t> ReadStep(Session& session, const Output& global_step);
// Of what a step has fetched.
StatusOr<int64_t> StepIn(const Tensor& value);

// InvalidArgument, naming the hook, unless it is positive and no more than an int32.
Status CheckStepsPerRun(std::string_view hook, int64_t steps_per_run);

void Log(const HookIo& io, const std::string& line);
int64_t Now(const HookIo& io);

// "3.0", "[1.0 2.0]": the elements, of many only the first.
std::string FormatValue(const Tensor& value);

// The event writer of a directory: one for all hooks of the process, made when it is first asked
// for, with the graph as its first events, and closed when the last of them is gone.
StatusOr<std::shared_ptr<EventWriter>> EventWriterFor(const std::string& directory,
                                                      const Graph& graph);

// The graph, then the meta graph with what is saved of it; without a saver, with nothing but the
// graph.
Status WriteGraphEvents(EventWriter& events, const Graph& graph, const Saver* saver);
// The graph for people, "graph.pbtxt" in the directory.
Status WriteGraphText(const std::string& directory, const Graph& graph);

// As the summary ops of TensorFlow 1 write numbers.
Status WriteNumber(EventWriter& events, const std::string& tag, double value, int64_t step);

}  // namespace millrace::hooks

#endif  // TRAINING_HOOKS_HOOK_SUPPORT_H_
