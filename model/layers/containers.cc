// Layers made of layers.
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
        function_(std::move(function)) {}
  std::string kind() const override { return kind_; }

 protected:
  Output Call(Pass& pass, std::span<const Output> inputs, Where where) override {
    return NamesDiffer(pass, where) ? function_(pass, inputs) : Output();
  }

 private:
  const char* const kind_;
  const PassFunction function_;
};

}  // namespace

LayerPtr Sequential(LayerList layers, std::string name, Where where) {
  return std::make_unique<SequentialLayer>(std::move(layers), std::move(name), where);
}

LayerPtr Functional(LayerList layers, PassFunction function, std::string name, Where where) {
  return std::make_unique<FunctionalLayer>("Functional", std::move(layers), std::move(function),
                                           std::move(name), where);
}

LayerPtr Lambda(PassFunction function, std::string name, Where where) {
  return std::make_unique<FunctionalLayer>("Lambda", LayerList{}, std::move(function),
                                           std::move(name), where);
}

}  // namespace millrace::layers
