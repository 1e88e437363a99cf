// SPDX-License-Identifier: Apache-2.0
// Layers made of layers.
#include <set>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/core_layers.h"
#include "model/layers/layer_util.h"

namespace millrace::layers {
namespace {

class Container : public Layer {
 public:
  Container(LayerList layers, std::string name, Where where)
      : Layer(std::move(name), where), owned_(std::move(layers)) {
    std::erase(owned_, nullptr);
    NameLayers(this->layers());
    set_autocast(false);
  }

  std::vector<Layer*> layers() const override {
    std::vector<Layer*> all;
    for (const auto& layer : owned_) all.push_back(layer.get());
    return all;
  }

 protected:
  // Two layers of one name would be told apart by nobody.
  bool NamesDiffer(Pass& pass, Where where) const {
    for (std::size_t i = 0; i < owned_.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (owned_[i] == owned_[j] || owned_[i]->name() != owned_[j]->name()) continue;
        pass.scope().RecordError(
            errors::InvalidArgument("layer ", Description(), " has two layers of one name, ",
                                    owned_[j]->Description(), " and ", owned_[i]->Description(),
                                    ": give one of them another name"),
            where);
        return false;
      }
    }
    return true;
  }

  bool HasFunction(Pass& pass, bool has, Where where) const {
    if (has) return true;
    pass.scope().RecordError(
        errors::InvalidArgument("layer ", Description(), ": its function is null"), where);
    return false;
  }

  LayerList owned_;
};

class SequentialLayer : public Container {
 public:
  using Container::Container;
  std::string kind() const override { return "Sequential"; }

 protected:
  Output Call(Pass& pass, std::span<const Output> inputs, Where where) override {
    if (inputs.size() != 1 || owned_.empty()) {
      pass.scope().RecordError(
          owned_.empty() ? errors::InvalidArgument("layer ", Description(), " has no layers")
                         : errors::InvalidArgument("layer ", Description(),
                                                   " takes one input, not ", inputs.size()),
          where);
      return Output();
    }
    if (!NamesDiffer(pass, where)) return Output();
    Output x = inputs[0];
    for (const auto& layer : owned_) {
      x = (*layer)(pass, x, where);
      if (!x.valid()) break;
    }
    return x;
  }
};

class FunctionalLayer : public Container {
 public:
  FunctionalLayer(const char* kind, LayerList layers, PassFunction function, std::string name,
                  Where where)
      : Container(std::move(layers), std::move(name), where),
        kind_(kind),
        function_(std::move(function)) {
    // Of a Lambda the function computes itself.
    set_autocast(owned_.empty());
  }
  std::string kind() const override { return kind_; }

 protected:
  Output Call(Pass& pass, std::span<const Output> inputs, Where where) override {
    if (!NamesDiffer(pass, where) || !HasFunction(pass, function_ != nullptr, where)) {
      return Output();
    }
    return function_(pass, inputs);
  }

 private:
  const char* const kind_;
  const PassFunction function_;
};

class SeveralOutputsLayer : public Container {
 public:
  SeveralOutputsLayer(LayerList layers, std::vector<std::string> outputs, OutputsFunction function,
                      std::string name, Where where)
      : Container(std::move(layers), std::move(name), where),
        outputs_(std::move(outputs)),
        function_(std::move(function)) {}
  std::string kind() const override { return "Functional"; }
  std::vector<std::string> output_names() const override { return outputs_; }

 protected:
  Output Call(Pass& pass, std::span<const Output> inputs, Where where) override {
    if (!NamesDiffer(pass, where) || !CheckNames(pass, where) ||
        !HasFunction(pass, function_ != nullptr, where)) {
      return Output();
    }
    std::vector<Output> made = function_(pass, inputs);
    if (!pass.scope().status().ok()) return Output();
    if (made.size() != outputs_.size()) {
      pass.scope().RecordError(
          errors::InvalidArgument("layer ", Description(), " has ", outputs_.size(), " outputs, ",
                                  StrJoin(outputs_, ", "), ", and its function returned ",
                                  made.size(), ": return one for each name, in their order"),
          where);
      return Output();
    }
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (made[i].valid()) continue;
      pass.scope().RecordError(errors::InvalidArgument("output '", outputs_[i], "' of layer ",
                                                       Description(), " is not a valid output"),
                               where);
      return Output();
    }
    const Output first = made[0];
    pass.SetOutputs(std::move(made));
    return first;
  }

 private:
  bool CheckNames(Pass& pass, Where where) const {
    std::set<std::string> names(outputs_.begin(), outputs_.end());
    if (!outputs_.empty() && names.size() == outputs_.size() && !names.contains("")) return true;
    pass.scope().RecordError(
        errors::InvalidArgument("layer ", Description(),
                                " needs a name for each of its outputs, each another one; it has '",
                                StrJoin(outputs_, "', '"), "'"),
        where);
    return false;
  }

  const std::vector<std::string> outputs_;
  const OutputsFunction function_;
};

}  // namespace

LayerPtr Sequential(LayerList layers, std::string name, Where where) {
  return std::make_unique<SequentialLayer>(std::move(layers), std::move(name), where);
}

LayerPtr Functional(LayerList layers, PassFunction function, std::string name, Where where) {
  return std::make_unique<FunctionalLayer>("Functional", std::move(layers), std::move(function),
                                           std::move(name), where);
}

LayerPtr Functional(LayerList layers, std::vector<std::string> outputs, OutputsFunction function,
                    std::string name, Where where) {
  return std::make_unique<SeveralOutputsLayer>(std::move(layers), std::move(outputs),
                                               std::move(function), std::move(name), where);
}

LayerPtr Lambda(PassFunction function, std::string name, Where where) {
  return std::make_unique<FunctionalLayer>("Lambda", LayerList{}, std::move(function),
                                           std::move(name), where);
}

}  // namespace millrace::layers
