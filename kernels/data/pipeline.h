// SPDX-License-Identifier: Apache-2.0
// Data sets as pipelines: how each stage was made, what all stages of one keep from walk to walk,
// and walks that leave out elements. Of this folder alone.
#ifndef KERNELS_DATA_PIPELINE_H_
#define KERNELS_DATA_PIPELINE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/data/dataset.h"
#include "kernels/data/stage_times.h"
#include "kernels/function_runner.h"
#include "kernels/kernel_registry.h"

namespace millrace {

// A data set whose later walks depend on earlier ones: seeds that are drawn from, elements that are
// kept. Thread-safe.
class KeepsState {
 public:
  virtual ~KeepsState() = default;
  virtual std::string SaveState() const = 0;
  // What another one of the same pipeline has saved, in this process or before. InvalidArgument if
  // it is not of such a stage.
  virtual Status RestoreState(std::string_view state) const = 0;
};

// A walk that can leave elements out for less than it takes to make them.
class SkipsElements {
 public:
  virtual ~SkipsElements() = default;
  // Leaves out `count` elements, or as many as there are: *skipped.
  virtual Status Skip(const DatasetCall& call, int64_t count, int64_t* skipped) = 0;
};
// OK as long as the step that asks goes on, then Cancelled: for loops that may take elements
// without end. Walks of stages begin every call with it.
Status CheckAsked(const DatasetCall& call);
// Skips elements of any walk.
Status SkipElements(DatasetWalk& walk, const DatasetCall& call, int64_t count, int64_t* skipped);

// How an op has made a data set: what a graph says that makes it again.
struct StageOrigin {
  std::shared_ptr<const DatasetOp> op;
  std::vector<Tensor> args;          // the op's inputs, data sets among them
  RefPtr<FunctionRunner> functions;  // of the op's functions; null if it has none
};

// More stages, one upon the other, would use up the stacks of threads that walk through them.
inline constexpr int kMostStages = 1000;

// `dataset`, whose walks are those of the result, with what it was made from. ResourceExhausted if
// there are more stages than kMostStages upon each other.
StatusOr<RefPtr<DatasetValue>> MakeStage(RefPtr<DatasetValue> dataset, StageOrigin origin);
// Without that: what an op has made.
const DatasetValue& StageItself(const DatasetValue& dataset);
// Null for a data set that is the element of another one, which no op has made.
const StageOrigin* OriginOf(const DatasetValue& dataset);
// The same; and the stages below, of which there are none then.
const StageTimes* TimesOf(const DatasetValue& dataset);
std::span<const DatasetPtr> InputsOf(const DatasetValue& dataset);

// A data set that gives what its input does, with options.
class HasOptions {
 public:
  virtual ~HasOptions() = default;
  virtual const std::string& options() const = 0;  // a serialized pb::data::Options
};
// A serialized pb::data::Options: what the stages say, the later ones above the earlier.
const std::string& OptionsOf(const DatasetValue& dataset);

// Of all stages that keep something, the last one first. Functions' data sets are not among them.
std::vector<std::string> SaveStates(const DatasetValue& dataset);
// InvalidArgument if these are not of such a pipeline.
Status RestoreStates(const DatasetValue& dataset, const std::vector<std::string>& states);

// Of cache.cc; a part of RegisterTransformDatasets.
void RegisterCacheDatasets(KernelRegistry& registry);

// Texts of any bytes as one, and back; InvalidArgument if it is none of those.
std::string JoinStates(const std::vector<std::string>& states);
StatusOr<std::vector<std::string>> SplitStates(std::string_view text);

}  // namespace millrace

#endif  // KERNELS_DATA_PIPELINE_H_
