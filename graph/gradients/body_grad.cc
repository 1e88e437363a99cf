// SPDX-License-Identifier: Apache-2.0
#include "graph/gradients/body_grad.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "frontend/graph_builder.h"
#include "graph/gradients/gradient_registry.h"
#include "millrace/ops.h"

namespace millrace {
namespace {

class BodyDifferentiator {
 public:
  BodyDifferentiator(const std::string& source, std::unique_ptr<FunctionBody> body)
      : source_(source), body_(std::move(body)) {}

  StatusOr<BodyGradient> Run(const std::vector<int>& results, const std::vector<int>& args) {
    MR_RETURN_IF_ERROR(Adopt());
    std::vector<Output> xs, ys, dys;
    for (const int arg : args) xs.push_back(Output(state(), body_->args[arg], 0));
    for (const int result : results) {
      const Edge* const edge = body_->results[result]->input_edge(0);
      ys.push_back(Output(state(), edge->src, edge->src_output));
    }
    const std::vector<DataType> types = body_->result_types();
    for (const int result : results) {
      MR_ASSIGN_OR_RETURN(Node* const arg,
                          AddBoundary("dy", "_Arg", types[result], body_->args.size()));
      body_->args.push_back(arg);
      dys.push_back(Output(state(), arg, 0));
    }
    const Scope scope = graph_.root();
    std::vector<Output> dxs;
    if (!xs.empty()) {
      MR_ASSIGN_OR_RETURN(dxs, GradientsWithin(source_, scope, ys, xs, dys));
    }
    BodyGradient gradient;
    for (std::size_t i = 0; i < dxs.size(); ++i) {
      gradient.depends.push_back(dxs[i].valid());
      if (!dxs[i].valid()) dxs[i] = Zeros(scope, xs[i]);
    }
    MR_RETURN_IF_ERROR(scope.status());
    MR_RETURN_IF_ERROR(ReplaceResults(dxs));
    body_->effects.clear();
    body_->graph = std::move(state()->graph);
    body_->graph->FixSourceAndSink();
    gradient.body = std::move(body_);
    return gradient;
  }

 private:
  GraphState* state() { return graph_.state(); }

  // The graph builder goes on where the body ended.
  Status Adopt() {
    state()->graph = std::move(body_->graph);
    for (const Node* node : state()->graph->OpNodes()) {
      state()->names_in_use.try_emplace(node->name(), 1);
    }
    return state()->shapes.AddGraph(*state()->graph);
  }

  Output Zeros(const Scope& scope, const Output& x) {
    if (BaseType(x.dtype()) == kString) return ops::Const(scope, Tensor::String(""), kString);
    if (BaseType(x.dtype()) != kResource) return ops::ZerosLike(scope, x);
    for (const Edge* edge : x.op().node()->out_edges()) {
      if (edge->dst->type() != "ReadVariableOp") continue;
      return ops::ZerosLike(scope, Output(state(), edge->dst, 0));
    }
    return ops::Const(scope, Tensor::Scalar<float>(0), kFloat);
  }

  StatusOr<Node*> AddBoundary(std::string_view name, std::string_view op, DataType type,
                              std::size_t index) {
    AttrMap attrs;
    attrs.Set("T", type);
    attrs.Set("index", static_cast<int64_t>(index));
    return state()->graph->AddNode(state()->UniqueName(name), op, std::move(attrs));
  }

  Status ReplaceResults(const std::vector<Output>& dxs) {
    for (Node* result : body_->results) state()->graph->RemoveNode(result);
    body_->results.clear();
    for (const Output& dx : dxs) {
      MR_ASSIGN_OR_RETURN(Node* const result, AddBoundary("dx", "_Retval", BaseType(dx.dtype()),
                                                          body_->results.size()));
      MR_RETURN_IF_ERROR(state()->graph->AddEdge(dx.op().node(), dx.index(), result, 0).status());
      body_->results.push_back(result);
    }
    return OkStatus();
  }

  const std::string& source_;
  std::unique_ptr<FunctionBody> body_;
  Graph graph_;
};

}  // namespace

StatusOr<BodyGradient> DifferentiateBody(const std::string& source,
                                         std::unique_ptr<FunctionBody> body,
                                         const std::vector<int>& results,
                                         const std::vector<int>& args) {
  return BodyDifferentiator(source, std::move(body)).Run(results, args);
}

}  // namespace millrace
