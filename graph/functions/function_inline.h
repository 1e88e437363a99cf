// SPDX-License-Identifier: Apache-2.0
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
  // By input, with controls_decide: the same in every iteration of a loop, and there when the body
  // shall not run any more. What takes nothing else waits for `controls`. False where it ends.
  std::vector<bool> invariant;
  enum class Effects {
    kAll,       // everything in the body that has effects, before any of the outputs: a call
    kDeclared,  // what the definition says must run, for whoever waits for `done`: the outputs
                // wait for no more than they are made of, as in TensorFlow's lowered branches
    kNone,      // nothing runs but for an output
  };
  Effects effects = Effects::kAll;
};

// The site of a call: the node's name, device, control inputs, and inputs from this one on.
InlineSite SiteOf(const Node& node, int first_input);

struct InlinedBody {
  std::vector<OutputRef> outputs;
  Node* done = nullptr;  // the site's effects have happened; null if the outputs imply that
};

// True if the body may be put into another graph: what runs for its effects there runs either
// always or because an output needs it. Effects within branches and loops that no output waits
// for cannot be waited for from outside. False too if the function says _noinline, unless that
// does not matter.
bool CanInline(const FunctionBody& body, InlineSite::Effects effects, bool even_noinline = false);

// Adds the nodes of the body. InvalidArgument if the types of inputs do not fit. The graph may
// be half changed then.
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
