#include "graph/function_gradient.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "graph/graph_builder.h"
#include "graph/lower_functions.h"
#include "millrace/ops.h"

namespace millrace {
namespace {

class GradientBody {
 public:
  explicit GradientBody(std::unique_ptr<FunctionBody> body) : body_(std::move(body)) {}

  StatusOr<std::unique_ptr<FunctionBody>> Run() {
    MR_RETURN_IF_ERROR(Adopt());
    const std::vector<Output> xs = OutputsOf(body_->args);
    std::vector<Output> ys;
    for (const Node* result : body_->results) {
      const Edge* const edge = result->input_edge(0);
      ys.push_back(Output(state(), edge->src, edge->src_output));
    }
    MR_RETURN_IF_ERROR(AddGradientArgs());
    const std::vector<Output> all_args = OutputsOf(body_->args);
    const std::span<const Output> dys = std::span(all_args).subspan(xs.size());
    const Scope scope = graph_.root();
    std::vector<Output> dxs;
    if (!xs.empty()) {
      MR_ASSIGN_OR_RETURN(dxs, Gradients(scope, ys, xs, dys));
    }
    for (std::size_t i = 0; i < dxs.size(); ++i) {
      if (!dxs[i].valid()) dxs[i] = ops::ZerosLike(scope, xs[i]);
    }
    MR_RETURN_IF_ERROR(scope.status());
    MR_RETURN_IF_ERROR(ReplaceResults(dxs));
    body_->effects.clear();
    body_->graph = std::move(state()->graph);
    body_->graph->FixSourceAndSink();
    return std::move(body_);
  }

 private:
  GraphState* state() { return graph_.state(); }

  // The graph builder goes on where the function ended.
  Status Adopt() {
    state()->graph = std::move(body_->graph);
    for (const Node* node : state()->graph->OpNodes()) {
      state()->names_in_use.try_emplace(node->name(), 1);
    }
    return state()->shapes.AddGraph(*state()->graph);
  }

  std::vector<Output> OutputsOf(const std::vector<Node*>& nodes) {
    std::vector<Output> outputs;
    for (Node* node : nodes) outputs.push_back(Output(state(), node, 0));
    return outputs;
  }

  Status AddGradientArgs() {
    for (const DataType type : body_->result_types()) {
      AttrMap attrs;
      attrs.Set("T", type);
      attrs.Set("index", static_cast<int64_t>(body_->args.size()));
      MR_ASSIGN_OR_RETURN(Node* const arg, state()->graph->AddNode(state()->UniqueName("dy"),
                                                                   "_Arg", std::move(attrs)));
      MR_RETURN_IF_ERROR(state()->shapes.AddNode(arg));
      body_->args.push_back(arg);
    }
    return OkStatus();
  }

  Status ReplaceResults(const std::vector<Output>& dxs) {
    for (Node* result : body_->results) state()->graph->RemoveNode(result);
    body_->results.clear();
    for (const Output& dx : dxs) {
      AttrMap attrs;
      attrs.Set("T", BaseType(dx.dtype()));
      attrs.Set("index", static_cast<int64_t>(body_->results.size()));
      MR_ASSIGN_OR_RETURN(Node* const result, state()->graph->AddNode(state()->UniqueName("dx"),
                                                                      "_Retval", std::move(attrs)));
      MR_RETURN_IF_ERROR(state()->graph->AddEdge(dx.op().node(), dx.index(), result, 0).status());
      body_->results.push_back(result);
    }
    return OkStatus();
  }

  std::unique_ptr<FunctionBody> body_;
  Graph graph_;
};

}  // namespace

StatusOr<std::unique_ptr<FunctionBody>> InstantiateGradient(
    const OpRegistry& ops, const std::shared_ptr<const FunctionLibrary>& library,
    const FunctionName& function) {
  if (library != nullptr) {
    const std::string& gradient = library->GradientOf(function.name);
    if (!gradient.empty()) {
      return InstantiateFunction(ops, library, FunctionName{gradient, function.attrs});
    }
  }
  // A function that differentiates itself would never end.
  constexpr int kMaxDepth = 4;
  thread_local int depth = 0;
  if (depth >= kMaxDepth) {
    return errors::InvalidArgument("gradients of functions are nested more than ", kMaxDepth,
                                   " deep at function ", function.name);
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<FunctionBody> body,
                      InstantiateFunction(ops, library, function));
  // Calls within it are differentiated as what they do.
  ++depth;
  const Status lowered = LowerBody(nullptr, body.get());
  --depth;
  MR_RETURN_IF_ERROR(lowered);
  StatusOr<std::unique_ptr<FunctionBody>> made = GradientBody(std::move(body)).Run();
  if (made.ok()) return made;
  return Annotate(made.status(), StrCat("\n\t In the gradient of function ", function.name));
}

}  // namespace millrace
