// SPDX-License-Identifier: Apache-2.0
#include "kernels/data/pipeline.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/common/nesting.h"
#include "proto/dataset_options.pb.h"

namespace millrace {
namespace {

constexpr std::size_t kMostOptionBytes = std::size_t{1} << 20;

class StageDataset : public DatasetValue, public HoldsObjects {
 public:
  StageDataset(RefPtr<DatasetValue> dataset, StageOrigin origin, std::vector<DatasetPtr> inputs,
               std::string options, int depth)
      : DatasetValue(dataset->types(), dataset->blocks()),
        dataset_(std::move(dataset)),
        origin_(std::move(origin)),
        inputs_(std::move(inputs)),
        options_(std::move(options)),
        depth_(depth) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, dataset_->NewIterator());
    return TimeWalk(std::move(walk), times_);
  }
  int64_t cardinality() const override { return dataset_->cardinality(); }

  int nesting() const override { return depth_; }
  const DatasetValue& itself() const { return *dataset_; }
  const StageOrigin& origin() const { return origin_; }
  const std::vector<DatasetPtr>& inputs() const { return inputs_; }
  const std::string& options() const { return options_; }
  const StageTimes& times() const { return *times_; }

 private:
  const RefPtr<DatasetValue> dataset_;
  const StageOrigin origin_;
  const std::vector<DatasetPtr> inputs_;
  const std::string options_;
  const int depth_;
  const std::shared_ptr<StageTimes> times_ = std::make_shared<StageTimes>();
};

const StageDataset* AsStage(const DatasetValue& dataset) {
  return dynamic_cast<const StageDataset*>(&dataset);
}

void CollectKeepers(const DatasetValue& dataset, std::vector<const KeepsState*>* keepers) {
  const DatasetValue& itself = StageItself(dataset);
  if (const auto* keeper = dynamic_cast<const KeepsState*>(&itself)) keepers->push_back(keeper);
  const StageDataset* const stage = AsStage(dataset);
  if (stage == nullptr) return;
  for (const DatasetPtr& input : stage->inputs()) CollectKeepers(*input, keepers);
}

// Above the options of the inputs, in their order, those of `own`.
StatusOr<std::string> JoinOptions(const std::vector<DatasetPtr>& inputs, const HasOptions* own) {
  std::vector<const std::string*> texts;
  for (const DatasetPtr& input : inputs) texts.push_back(&OptionsOf(*input));
  if (own != nullptr) texts.push_back(&own->options());
  std::erase_if(texts, [](const std::string* text) { return text->empty(); });
  if (texts.empty()) return std::string();
  pb::data::Options all;
  for (const std::string* text : texts) {
    if (!all.MergeFromString(*text)) {
      return errors::InvalidArgument("serialized_options are not the options of a data set");
    }
  }
  std::string joined = all.SerializeAsString();
  if (joined.size() <= kMostOptionBytes) return joined;
  return errors::ResourceExhausted("the options of a data set take ", joined.size(),
                                   " bytes, more than ", kMostOptionBytes);
}

}  // namespace

Status CheckAsked(const DatasetCall& call) {
  if (call.cancellation == nullptr || !call.cancellation->IsCancelled()) return OkStatus();
  return errors::Cancelled("the step that asked for an element is over");
}

StatusOr<RefPtr<DatasetValue>> MakeStage(RefPtr<DatasetValue> dataset, StageOrigin origin) {
  std::vector<DatasetPtr> inputs;
  int depth = 1;
  for (const Tensor& arg : origin.args) {
    depth = std::max(depth, NestingWithin(arg) + 1);
    const auto* const input = VariantCast<DatasetValue>(arg);
    if (input == nullptr) continue;
    if (input == dataset.get()) return dataset;  // an op that changes nothing
    inputs.push_back(DatasetPtr::Share(input));
  }
  if (depth > kMostStages) {
    return errors::ResourceExhausted("a data set of more than ", kMostStages,
                                     " stages, one upon the other: join the small ones first");
  }
  MR_ASSIGN_OR_RETURN(std::string options,
                      JoinOptions(inputs, dynamic_cast<const HasOptions*>(dataset.get())));
  return RefPtr<DatasetValue>(MakeRef<StageDataset>(std::move(dataset), std::move(origin),
                                                    std::move(inputs), std::move(options), depth));
}

const DatasetValue& StageItself(const DatasetValue& dataset) {
  const StageDataset* const stage = AsStage(dataset);
  return stage != nullptr ? stage->itself() : dataset;
}

const StageOrigin* OriginOf(const DatasetValue& dataset) {
  const StageDataset* const stage = AsStage(dataset);
  return stage != nullptr ? &stage->origin() : nullptr;
}

const StageTimes* TimesOf(const DatasetValue& dataset) {
  const StageDataset* const stage = AsStage(dataset);
  return stage != nullptr ? &stage->times() : nullptr;
}

std::span<const DatasetPtr> InputsOf(const DatasetValue& dataset) {
  const StageDataset* const stage = AsStage(dataset);
  return stage != nullptr ? std::span<const DatasetPtr>(stage->inputs())
                          : std::span<const DatasetPtr>();
}

const std::string& OptionsOf(const DatasetValue& dataset) {
  static const std::string* const none = new std::string;
  const StageDataset* const stage = AsStage(dataset);
  return stage != nullptr ? stage->options() : *none;
}

std::vector<std::string> SaveStates(const DatasetValue& dataset) {
  std::vector<const KeepsState*> keepers;
  CollectKeepers(dataset, &keepers);
  std::vector<std::string> states;
  for (const KeepsState* keeper : keepers) states.push_back(keeper->SaveState());
  return states;
}

Status RestoreStates(const DatasetValue& dataset, const std::vector<std::string>& states) {
  std::vector<const KeepsState*> keepers;
  CollectKeepers(dataset, &keepers);
  if (states.size() != keepers.size()) {
    return errors::InvalidArgument("the position is one in a data set with ", states.size(),
                                   " stages that shuffle, draw or keep elements; this one has ",
                                   keepers.size(), ": restore it into the pipeline that it is of");
  }
  for (std::size_t i = 0; i < keepers.size(); ++i) {
    MR_RETURN_IF_ERROR(keepers[i]->RestoreState(states[i]));
  }
  return OkStatus();
}

Status SkipElements(DatasetWalk& walk, const DatasetCall& call, int64_t count, int64_t* skipped) {
  *skipped = 0;
  if (auto* skips = dynamic_cast<SkipsElements*>(&walk)) return skips->Skip(call, count, skipped);
  for (; *skipped < count; ++*skipped) {
    MR_RETURN_IF_ERROR(CheckAsked(call));
    DatasetElement element;
    bool end = false;
    MR_RETURN_IF_ERROR(walk.Next(call, &element, &end));
    if (end) break;
  }
  return OkStatus();
}

std::string JoinStates(const std::vector<std::string>& states) {
  std::string text;
  for (const std::string& state : states) StrAppend(&text, state.size(), ":", state);
  return text;
}

StatusOr<std::vector<std::string>> SplitStates(std::string_view text) {
  std::vector<std::string> states;
  while (!text.empty()) {
    const std::size_t colon = text.find(':');
    int64_t size = 0;
    if (colon == std::string_view::npos || !ParseInt64(text.substr(0, colon), &size) || size < 0 ||
        static_cast<uint64_t>(size) > text.size() - colon - 1) {
      return errors::InvalidArgument("the state of a data set is damaged");
    }
    states.emplace_back(text.substr(colon + 1, static_cast<std::size_t>(size)));
    text.remove_prefix(colon + 1 + static_cast<std::size_t>(size));
  }
  return states;
}

}  // namespace millrace
