#include "kernels/data/pipeline.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

class StageDataset : public DatasetValue {
 public:
  StageDataset(RefPtr<DatasetValue> dataset, std::vector<DatasetPtr> inputs)
      : DatasetValue(dataset->types(), dataset->blocks()),
        dataset_(std::move(dataset)),
        inputs_(std::move(inputs)) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override { return dataset_->NewIterator(); }
  int64_t cardinality() const override { return dataset_->cardinality(); }

  const DatasetValue& itself() const { return *dataset_; }
  const std::vector<DatasetPtr>& inputs() const { return inputs_; }

 private:
  const RefPtr<DatasetValue> dataset_;
  const std::vector<DatasetPtr> inputs_;
};

void CollectKeepers(const DatasetValue& dataset, std::vector<const KeepsState*>* keepers) {
  const DatasetValue& itself = StageItself(dataset);
  if (const auto* keeper = dynamic_cast<const KeepsState*>(&itself)) keepers->push_back(keeper);
  const auto* stage = dynamic_cast<const StageDataset*>(&dataset);
  if (stage == nullptr) return;
  for (const DatasetPtr& input : stage->inputs()) CollectKeepers(*input, keepers);
}

}  // namespace

RefPtr<DatasetValue> MakeStage(RefPtr<DatasetValue> dataset, std::vector<DatasetPtr> inputs) {
  for (const DatasetPtr& input : inputs) {
    if (input.get() == dataset.get()) return dataset;  // an op that changes nothing
  }
  return RefPtr<DatasetValue>(MakeRef<StageDataset>(std::move(dataset), std::move(inputs)));
}

const DatasetValue& StageItself(const DatasetValue& dataset) {
  const auto* stage = dynamic_cast<const StageDataset*>(&dataset);
  return stage != nullptr ? stage->itself() : dataset;
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
