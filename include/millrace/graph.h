// SPDX-License-Identifier: Apache-2.0
// Building graphs. A Scope carries what applies to every node made through it (name prefix,
// device, control inputs, colocation); op wrappers (millrace/ops.h) add nodes.
//
// Lifetimes: the nodes live as long as the Graph, a Scope of it or a Session made of it, whichever
// is last. Operation and Output are plain handles to them, to be used no longer than that.
// Threads: a graph is built by one thread at a time. Sessions may run meanwhile what they have
// been told of; a Run in another thread must not take place while a node is being added.
#ifndef MILLRACE_GRAPH_H_
#define MILLRACE_GRAPH_H_

#include <functional>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "millrace/attr_value.h"
#include "millrace/dtype.h"
#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

class Node;  // graph/dataflow_graph.h
class DataflowGraph;
struct GraphState;  // frontend/graph_builder.h
class Output;

// A node of a graph: a light handle, valid as long as the nodes live (see above). A handle that
// stands for a failed construction is not valid; using it further is harmless.
class Operation {
 public:
  Operation() = default;
  // Wraps a node of that graph; null stands for none. The op wrappers call this.
  Operation(GraphState* graph, Node* node) : graph_(graph), node_(node) {}

  // Whether it stands for a node. If not, texts are "", counts 0 and outputs not valid.
  bool valid() const { return node_ != nullptr; }
  // Full name with the prefixes of scopes, unique in the graph: "outer/MatMul_1".
  const std::string& name() const;
  // Name of the op: "MatMul".
  const std::string& type() const;
  // Number of data inputs, with the members of lists counted one by one; no control inputs.
  int num_inputs() const;
  // Number of outputs, with the members of lists counted one by one.
  int num_outputs() const;
  // Output i, from 0; not valid if there is none.
  Output output(int i) const;
  Output input(int i) const;  // what feeds slot i
  // The attribute's value; an AttrValue without a value if there is none.
  AttrValue attr(std::string_view name) const;
  // As requested, "" for none.
  const std::string& device() const;

  // Internals of the library, null if it is not valid: the node, and the graph that it is in.
  Node* node() const { return node_; }
  // State of the graph that the node is in; null for no graph.
  GraphState* graph() const { return graph_; }
  friend bool operator==(const Operation& a, const Operation& b) { return a.node_ == b.node_; }

 private:
  GraphState* graph_ = nullptr;
  Node* node_ = nullptr;
};

// One output of a node: what edges, feeds and fetches name.
class Output {
 public:
  Output() = default;
  // Output `index`, from 0, of a node. Whether the node has so many is not checked here.
  Output(Operation op, int index) : op_(op), index_(index) {}
  // The same of a node that there is no handle of: the library calls this.
  Output(GraphState* graph, Node* node, int index) : op_(graph, node), index_(index) {}

  // Whether it stands for an output. False after a failed construction.
  bool valid() const { return op_.valid(); }
  // Node that computes it; valid as long as this handle is there.
  const Operation& op() const { return op_; }
  // Position among the outputs of its node, from 0.
  int index() const { return index_; }
  DataType dtype() const;      // a reference type for the output of a reference variable
  PartialShape shape() const;  // as inferred while building
  std::string name() const;    // "node:0"
  operator Operation() const { return op_; }  // NOLINT: an output can stand for its node
  friend bool operator==(const Output& a, const Output& b) {
    return a.op_ == b.op_ && a.index_ == b.index_;
  }

 private:
  Operation op_;
  int index_ = 0;
};

// An argument of an op wrapper: an output, or a value that becomes a Const node.
class Input {
 public:
  Input(const Output& output) : output_(output) {}   // NOLINT
  Input(Tensor value) : value_(std::move(value)) {}  // NOLINT
  template <typename T>
    requires(std::is_arithmetic_v<T>)
  Input(T value) : value_(Tensor::Scalar<T>(value)) {}              // NOLINT
  Input(const char* text) : value_(Tensor::String(text)) {}         // NOLINT
  Input(const std::string& text) : value_(Tensor::String(text)) {}  // NOLINT
  template <typename T>
  Input(std::initializer_list<T> values) : value_(Tensor::FromValues<T>(values)) {}  // NOLINT

  // Whether it is a value, which becomes a Const node, and no output.
  bool is_constant() const { return !output_.valid() && value_.IsInitialized(); }
  // Output that was given; not valid for a value.
  const Output& output() const { return output_; }
  // Value that was given; not initialised for an output.
  const Tensor& value() const { return value_; }

 private:
  Output output_;
  Tensor value_;
};

// What a device function sees of the node that is about to be added.
struct NodeView {
  std::string_view name;    // in full, with the prefixes of scopes
  std::string_view type;    // name of the op: "MatMul"
  std::string_view device;  // requested so far, by inner scopes
  // Types by output; of a VarHandleOp that of the variable behind it.
  std::span<const DataType> output_types;
  // Shapes by output, as inferred so far; of a VarHandleOp that of the variable behind it.
  std::span<const PartialShape> output_shapes;
};
// Returns the device string to request. Called once per node, in order of creation.
using DeviceFunction = std::function<std::string(const NodeView&)>;

// Cheap to copy. Scopes of one graph share its state, and keep it; not synchronised.
class Scope {
 public:
  // No moves: a scope that was moved from is still one.
  Scope(const Scope&) = default;
  Scope& operator=(const Scope&) = default;

  // Children prefix the names of their nodes: "outer/inner/MatMul". A second child of one
  // name gets "_1" appended.
  Scope Named(std::string_view name) const;
  // The next nodes of this scope take exactly this name (made unique), without their op's.
  Scope WithOpName(std::string_view name) const;
  // The next node takes the name of this scope itself, which Named() made: what stands for all
  // that the scope has. "_1" is appended if a node has it.
  Scope WithScopeName() const;
  // Inner scopes override outer ones field by field ("/job:ps" within "/task:1" is both);
  // "" keeps what there is; a function sees the result and has the last word.
  Scope WithDevice(std::string_view device) const;
  // Asks the function for each node that is made within; an empty function changes nothing.
  Scope WithDevice(DeviceFunction function) const;
  // Forgets all enclosing device scopes (TensorFlow's device(None)).
  Scope WithoutDevice() const;
  // Nodes made within run after `ops`, and after those of the enclosing scopes.
  Scope WithControlDependencies(std::span<const Operation> ops) const;
  // The same of ops that are named on the spot: WithControlDependencies({a, b}).
  Scope WithControlDependencies(std::initializer_list<Operation> ops) const {
    return WithControlDependencies(std::span(ops.begin(), ops.size()));
  }
  // Forgets the control dependencies of all enclosing scopes.
  Scope WithoutControlDependencies() const;
  // Nodes made within go to the device of `op`, wherever that is placed. One that is not valid
  // changes nothing.
  Scope ColocateWith(const Operation& op) const;
  // For functions that make many nodes for one call: what is made through this scope counts as
  // made at `where`, in errors and as the node's origin. The outermost call that says so decides.
  Scope CalledFrom(std::source_location where) const;

  // The first error of the graph.
  const Status& status() const;
  // Makes `status` the error of the graph, with the place `where`, or that of CalledFrom. The first
  // error stays.
  void RecordError(Status status, std::source_location where) const;
  // State of the graph, for the library itself; valid as long as this scope.
  GraphState* graph() const { return graph_.get(); }

  // Adds a node with the given inputs (flattened over arguments) and attributes; type
  // attributes that inputs decide may be left out. The op wrappers call this. On error the
  // graph's status says what is wrong, with `where`; the result is then not valid.
  Operation AddOp(std::string_view op, std::span<const Input> inputs,
                  std::vector<std::pair<std::string, AttrValue>> attrs,
                  std::source_location where) const;
  // The same with list arguments kept apart: one vector per input argument.
  Operation AddOpWithLists(std::string_view op, std::span<const std::vector<Input>> args,
                           std::vector<std::pair<std::string, AttrValue>> attrs,
                           std::source_location where) const;

 private:
  friend class Graph;
  struct Settings;
  Scope(std::shared_ptr<GraphState> graph, std::shared_ptr<const Settings> settings)
      : graph_(std::move(graph)), settings_(std::move(settings)) {}
  std::shared_ptr<GraphState> graph_;
  std::shared_ptr<const Settings> settings_;
};

// Has the nodes, together with its scopes and sessions. Move-only; handles and scopes stay valid
// when it is moved. What was moved from takes no nodes: its status says so, until another graph is
// moved into it.
class Graph {
 public:
  Graph();
  ~Graph();
  // Takes the nodes of another graph over.
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  // The scope with no prefix, device or control inputs.
  Scope root();
  // The first error made while building, with the file and line of the call; OK if none.
  const Status& status() const;
  // Seed of the random ops made afterwards that bring none of their own (0: unseeded).
  void SetSeed(int64_t seed);

  // Invalid if there is no such node.
  Operation FindOperation(std::string_view name) const;
  // All nodes that were added so far.
  std::vector<Operation> operations() const;

  // A serialized GraphDef (TensorFlow's message). InvalidArgument, naming the biggest constants, if
  // it is 2 GiB or more, which no such message may be.
  StatusOr<std::string> ToGraphDef() const;
  StatusOr<std::string> ToText() const;  // text format
  // Adds the nodes of a serialized GraphDef, all or none, their names under `prefix`.
  Status ImportGraphDef(std::string_view bytes, std::string_view prefix = "");

  // Named lists of outputs and ops that tools share: "variables", "local_variables", ...
  void AddToCollection(std::string_view collection, const Output& output);
  // The outputs of a collection in the order in which they were added; empty if there is none.
  std::vector<Output> collection(std::string_view collection) const;

  // State of the graph, for the library itself; valid as long as this graph is not moved from.
  GraphState* state() const { return shared_state().get(); }
  // The same with a share in it, which keeps the nodes.
  const std::shared_ptr<GraphState>& shared_state() const;

 private:
  mutable std::shared_ptr<GraphState> state_;
};

// Adds to the graph of `scope` the nodes that compute d(sum of ys)/dx for each x. A result is
// not valid (Output::valid) where no y depends on the x. `grad_ys`, if given, are the
// gradients that arrive at the ys. Unimplemented, naming the node, if an op on the way has
// no gradient.
StatusOr<std::vector<Output>> Gradients(
    const Scope& scope, std::span<const Output> ys, std::span<const Output> xs,
    std::span<const Output> grad_ys = {},
    std::source_location where = std::source_location::current());

}  // namespace millrace

#endif  // MILLRACE_GRAPH_H_
