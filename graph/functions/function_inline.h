// Puts the nodes of a function's body into a graph.
#ifndef GRAPH_FUNCTIONS_FUNCTION_INLINE_H_
#define GRAPH_FUNCTIONS_FUNCTION_INLINE_H_

#include <string>
#include <vector>

#include "graph/dataflow_graph.h"
#include "graph/functions/function_body.h"
#include "millrace/status.h"

namespace millrace {

// Where a body goes.
struct InlineSite {
  std::string prefix;  // of the names of the nodes: "prefix/name"
  // Nodes of the body run here; where they ask for a device themselves, what they do not say
  // is filled in from it.
  InternedString device;
  InternedString origin, device_origin;  // of whoever asked for the body
  bool ignore_body_devices = false;      // everything runs at `device`, whatever the body says
  std::vector<OutputRef> inputs;
  std::vector<Node*> controls;  // nothing of the body runs before these
  // True: `controls` are dead exactly when the body shall not run. False: it shall not run
  // either if one of the inputs is dead.
  bool controls_decide = false;
  // Nothing of the body runs but for an output.
  bool ignore_effects = false;
};

// The site of a call: the node's name, device, control inputs, and inputs from this one on.
InlineSite SiteOf(const Node& node, int first_input);

struct InlinedBody {
  std::vector<OutputRef> outputs;
  Node* done = nullptr;  // everything with effects has run; null if the outputs imply that
};

// True if the body may be put into another graph: what has effects in it runs either always or
// because an output needs it. Effects within branches and loops that no output waits for
// cannot be waited for from outside. False too if the function says _noinline, unless that does
// not matter.
bool CanInline(const FunctionBody& body, bool even_noinline = false);

// Adds the nodes of the body. Outputs come after all that has effects, as those of a call do.
// InvalidArgument if the types of inputs do not fit. The graph may be half changed then.
StatusOr<InlinedBody> InlineBody(const FunctionBody& body, const InlineSite& site,
                                 DataflowGraph* graph);

// Lets a node that only passes on stay where what it passes on is: with a colocation label if
// that is not placed yet. To be set as the node's attributes, and then as its device.
InternedString StayBeside(const Node& source, AttrMap* attrs);

// Replaces `call` by its body: the edges out of it leave the body's outputs, and a node with its
// name and outputs stays, so that it can be fetched and run. `call` is gone afterwards.
Status InlineCall(const FunctionBody& body, Node* call, bool ignore_body_devices,
                  DataflowGraph* graph);

// What lowering has in common: replaces `node` by these outputs, with `done` (may be null) for
// whoever waits for the node, and keeps a node of its name. `node` is gone afterwards.
Status ReplaceNode(Node* node, const std::vector<OutputRef>& outputs, Node* done,
                   DataflowGraph* graph);

// An attribute of the node that keeps the name of what was replaced: its inputs are what its
// outputs stand for.
inline constexpr char kStandsForInputs[] = "_stands_for_inputs";

}  // namespace millrace

#endif  // GRAPH_FUNCTIONS_FUNCTION_INLINE_H_
