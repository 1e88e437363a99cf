// SPDX-License-Identifier: Apache-2.0
// Data sets of what a function of the program gives.
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "data/pipeline/stage.h"
#include "frontend/graph_builder.h"
#include "frontend/kept_with_graph.h"
#include "io/local_generators.h"

namespace millrace {
namespace {

// The public form of a generator as ops call it.
StartGenerator AsStart(Generator start) {
  return [start = std::move(start)]() -> StatusOr<NextElement> {
    MR_ASSIGN_OR_RETURN(GeneratorNext next, start());
    if (!next) return NextElement();
    return NextElement([next = std::move(next)](const std::function<bool()>& is_abandoned,
                                                std::vector<Tensor>* element) {
      return next(GeneratorCall{is_abandoned}, element);
    });
  };
}

Status Check(const Generator& generator, const std::vector<GeneratorComponent>& components) {
  if (!generator) {
    return errors::InvalidArgument("there is no generator: the std::function is empty");
  }
  if (components.empty()) {
    return errors::InvalidArgument("a data set needs at least one component");
  }
  for (std::size_t i = 0; i < components.size(); ++i) {
    if (components[i].dtype == DataType::kInvalid) {
      return errors::InvalidArgument("component ", i, " has no type");
    }
  }
  return OkStatus();
}

}  // namespace

Dataset Dataset::FromGenerator(Generator generator, std::vector<GeneratorComponent> components,
                               Here where) {
  if (const Status ok = Check(generator, components); !ok.ok()) return FailedDataset(ok, where);
  DatasetStage stage;
  stage.op = "_GeneratorDataset";
  stage.text = "Generator";
  for (const GeneratorComponent& component : components) {
    stage.dtypes.push_back(component.dtype);
    stage.shapes.push_back(component.shape);
  }
  stage.where = where;
  stage.add = [kept = NewLocalGenerator(AsStart(std::move(generator)), FormatOrigin(where))](
                  StagePlace& place) {
    KeepWithGraph(place.scope.graph(), kept);
    // The op's own begins with what no node's name begins with.
    place.scope = place.scope.WithOpName("GeneratorDataset");
    return AddTypedOp(place, "_GeneratorDataset", {}, {{"generator", kept->key}});
  };
  return NewDataset(std::move(stage));
}

}  // namespace millrace
