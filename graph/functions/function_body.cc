// SPDX-License-Identifier: Apache-2.0
#include "graph/functions/function_body.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "base/strings.h"
#include "graph/graph_def_io.h"

namespace millrace {
namespace {

std::vector<DataType> TypesOf(const std::vector<Node*>& nodes) {
  std::vector<DataType> types;
  for (const Node* node : nodes) {
    types.push_back(node->attrs().GetOr<DataType>("T", DataType::kInvalid));
  }
  return types;
}

// Attributes of nodes in a body may name attributes of the function: a function that calls itself
// can make them larger each time.
class Substitution {
 public:
  static constexpr std::size_t kMaxFunctions = 1024;  // within one attribute

  explicit Substitution(const AttrMap& attrs) : attrs_(attrs) {}

  StatusOr<AttrValue> InPlace(const AttrValue& value) {
    num_functions_ = 0;
    return Apply(value);
  }

 private:
  StatusOr<AttrValue> Apply(const AttrValue& value) {
    if (const auto* placeholder = value.get_if<AttrPlaceholder>()) {
      const AttrValue* const found = attrs_.Find(placeholder->name);
      if (found == nullptr) {
        return errors::InvalidArgument("Failed to bind placeholder attribute '", placeholder->name,
                                       "'");
      }
      MR_RETURN_IF_ERROR(Count(*found));
      return *found;
    }
    if (const FunctionName* function = value.function()) {
      MR_ASSIGN_OR_RETURN(FunctionName applied, Apply(*function));
      return AttrValue(std::move(applied));
    }
    if (const auto* list = value.get_if<std::vector<FunctionName>>()) {
      std::vector<FunctionName> applied;
      for (const FunctionName& function : *list) {
        MR_ASSIGN_OR_RETURN(FunctionName one, Apply(function));
        applied.push_back(std::move(one));
      }
      return AttrValue(std::move(applied));
    }
    return value;
  }

  // Of what was put in place before: one function at least for each level of nesting.
  Status Count(const AttrValue& value) {
    std::vector<std::string> names;
    AddMentioned(value, &names);
    num_functions_ += names.size();
    if (num_functions_ <= kMaxFunctions) return OkStatus();
    return errors::InvalidArgument("its attributes name more than ", kMaxFunctions, " functions");
  }

  StatusOr<FunctionName> Apply(const FunctionName& function) {
    FunctionName applied{function.name, {}};
    for (const auto& [name, value] : function.attrs) {
      MR_ASSIGN_OR_RETURN(applied.attrs[name], Apply(value));
    }
    return applied;
  }

  const AttrMap& attrs_;
  std::size_t num_functions_ = 0;
};

// The nodes that stand for one name of the definition.
struct Source {
  Node* node = nullptr;     // a node of the body, or
  std::vector<Node*> args;  // the tensors of an argument
  bool is_arg = false;
};

class Instantiator {
 public:
  Instantiator(const OpRegistry& ops, const std::shared_ptr<const FunctionLibrary>& library,
               const Function& function)
      : def_(function.def), body_(std::make_unique<FunctionBody>()) {
    body_->graph = std::make_unique<DataflowGraph>(&ops);
    body_->graph->set_library(library);
    body_->name = function.name();
  }

  StatusOr<std::unique_ptr<FunctionBody>> Run(const FunctionName& function) {
    for (const auto& [name, value] : function.attrs) attrs_.Set(name, value);
    AddDefaultAttrs(def_.signature(), &attrs_);
    for (const auto& [name, value] : def_.attr()) {
      MR_ASSIGN_OR_RETURN(AttrValue converted, AttrFromProto(value));
      body_->attrs.Set(name, std::move(converted));
    }
    MR_RETURN_IF_ERROR(AddArgs());
    MR_RETURN_IF_ERROR(AddNodes());
    for (const pb::NodeDef& node : def_.node_def()) MR_RETURN_IF_ERROR(Connect(node));
    MR_RETURN_IF_ERROR(AddResults());
    MR_RETURN_IF_ERROR(FindEffects());
    MR_RETURN_IF_ERROR(CheckCycles());
    body_->graph->FixSourceAndSink();
    return std::move(body_);
  }

 private:
  DataflowGraph& graph() { return *body_->graph; }

  Status AddArgs() {
    std::vector<DataType> inputs, outputs;
    MR_RETURN_IF_ERROR(ExpandTypes(def_.signature(), attrs_, &inputs, &outputs));
    result_types_ = std::move(outputs);
    int64_t index = 0;
    for (const pb::OpDef::ArgDef& arg : def_.signature().input_arg()) {
      int begin = 0, end = 0;
      MR_RETURN_IF_ERROR(
          ArgRange(def_.signature(), attrs_, arg.name(), /*is_input=*/true, &begin, &end));
      Source& source = sources_[arg.name()];
      if (source.is_arg) return errors::InvalidArgument("two arguments '", arg.name(), "'");
      source.is_arg = true;
      for (int i = begin; i < end; ++i, ++index) {
        AttrMap attrs;
        attrs.Set("T", inputs[i]);
        attrs.Set("index", index);
        const std::string name = end - begin == 1 ? arg.name() : StrCat(arg.name(), "_", i - begin);
        MR_ASSIGN_OR_RETURN(Node * node, AddNamed(name, "_Arg", std::move(attrs)));
        source.args.push_back(node);
        body_->args.push_back(node);
      }
    }
    return OkStatus();
  }

  // Names of arguments and results are ours to choose: only references to them are not.
  StatusOr<Node*> AddNamed(const std::string& name, std::string_view op, AttrMap attrs) {
    const bool taken = graph().FindNode(name) != nullptr ||
                       std::any_of(def_.node_def().begin(), def_.node_def().end(),
                                   [&](const pb::NodeDef& node) { return node.name() == name; });
    return graph().AddNode(taken ? graph().NewName(name) : name, op, std::move(attrs));
  }

  Status AddNodes() {
    Substitution substitution(attrs_);
    for (const pb::NodeDef& def : def_.node_def()) {
      AttrMap attrs;
      for (const auto& [name, value] : def.attr()) {
        StatusOr<AttrValue> read = AttrFromProto(value);
        StatusOr<AttrValue> applied = read.ok() ? substitution.InPlace(*read) : read.status();
        if (!applied.ok()) {
          return Annotate(applied.status(),
                          StrCat(" for attr '", name, "' of {{node ", def.name(), "}}"));
        }
        attrs.Set(name, *std::move(applied));
      }
      MR_ASSIGN_OR_RETURN(Node * node, graph().AddNode(def.name(), def.op(), std::move(attrs)));
      node->set_requested_device(def.device());
      if (def.has_experimental_debug_info() || def.has_experimental_type()) {
        node->set_notes({def.experimental_debug_info(), def.experimental_type()});
      }
      Source& source = sources_[def.name()];
      if (source.is_arg) {
        return errors::InvalidArgument("'", def.name(),
                                       "' is the name of an argument and of a "
                                       "node");
      }
      source.node = node;
    }
    return OkStatus();
  }

  // "argument" or "node:output", all tensors of it, or one: "argument:i", "node:output:i".
  StatusOr<std::vector<OutputRef>> Find(std::string_view text) {
    const std::size_t colon = text.find(':');
    const std::string_view name = text.substr(0, colon);
    std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
    const auto it = sources_.find(name);
    if (it == sources_.end()) return errors::InvalidArgument("input ", text, " is not found");
    const Source& source = it->second;
    std::string_view output;
    if (!source.is_arg) {
      const std::size_t next = rest.find(':');
      output = rest.substr(0, next);
      rest = next == std::string_view::npos ? "" : rest.substr(next + 1);
    }
    std::vector<OutputRef> all;
    if (source.is_arg) {
      for (Node* arg : source.args) all.push_back({arg, 0});
    } else {
      int begin = 0, end = 0;
      MR_RETURN_IF_ERROR(ArgRange(source.node->op().def, source.node->attrs(), output,
                                  /*is_input=*/false, &begin, &end));
      for (int i = begin; i < end; ++i) all.push_back({source.node, i});
    }
    if (rest.empty()) return all;
    int64_t index = 0;
    if (!ParseInt64(rest, &index) || index < 0) {
      return errors::InvalidArgument("'", text, "' is not the name of a tensor");
    }
    if (index >= static_cast<int64_t>(all.size())) {
      return errors::InvalidArgument("'", text, "': there are only ", all.size(), " tensors");
    }
    return std::vector<OutputRef>{all[index]};
  }

  Status Connect(const pb::NodeDef& def) {
    Node* const node = sources_.find(def.name())->second.node;
    const auto at_node = [&](const Status& status) {
      return Annotate(status, StrCat(" (an input of {{node ", def.name(), "}})"));
    };
    int slot = 0;
    for (const std::string& input : def.input()) {
      if (!input.empty() && input[0] == '^') {
        const auto it = sources_.find(std::string_view(input).substr(1));
        if (it == sources_.end()) {
          return at_node(errors::InvalidArgument("control input ", input, " is not found"));
        }
        if (it->second.node != nullptr) graph().AddControlEdge(it->second.node, node);
        for (Node* arg : it->second.args) graph().AddControlEdge(arg, node);
        continue;
      }
      const StatusOr<std::vector<OutputRef>> sources = Find(input);
      if (!sources.ok()) return at_node(sources.status());
      for (const OutputRef& source : *sources) {
        const StatusOr<Edge*> edge = graph().AddEdge(source.node, source.index, node, slot++);
        if (!edge.ok()) return at_node(edge.status());
      }
    }
    if (slot != node->num_inputs()) {
      return errors::InvalidArgument("{{node ", def.name(), "}} (op: ", def.op(), ") has ", slot,
                                     " inputs, but takes ", node->num_inputs());
    }
    return OkStatus();
  }

  Status AddResults() {
    int64_t index = 0;
    for (const pb::OpDef::ArgDef& arg : def_.signature().output_arg()) {
      int begin = 0, end = 0;
      MR_RETURN_IF_ERROR(
          ArgRange(def_.signature(), attrs_, arg.name(), /*is_input=*/false, &begin, &end));
      const auto ret = def_.ret().find(arg.name());
      if (ret == def_.ret().end()) {
        return errors::InvalidArgument("Return ", arg.name(), " missing.");
      }
      MR_ASSIGN_OR_RETURN(const std::vector<OutputRef> sources, Find(ret->second));
      if (static_cast<int>(sources.size()) != end - begin) {
        return errors::InvalidArgument("Return ", arg.name(), " is ", sources.size(),
                                       " tensors, not ", end - begin);
      }
      for (int i = begin; i < end; ++i, ++index) {
        const OutputRef& source = sources[i - begin];
        AttrMap attrs;
        attrs.Set("T", result_types_[i]);
        attrs.Set("index", index);
        const std::string name = end - begin == 1 ? StrCat(arg.name(), "_RetVal")
                                                  : StrCat(arg.name(), "_RetVal_", i - begin);
        MR_ASSIGN_OR_RETURN(Node * node, AddNamed(name, "_Retval", std::move(attrs)));
        const StatusOr<Edge*> edge = graph().AddEdge(source.node, source.index, node, 0);
        if (!edge.ok()) return Annotate(edge.status(), StrCat(" (result ", arg.name(), ")"));
        body_->results.push_back(node);
      }
    }
    return OkStatus();
  }

  Status FindEffects() {
    for (const auto& [output, name] : def_.control_ret()) {
      const auto it = sources_.find(name);
      if (it == sources_.end()) {
        return errors::InvalidArgument("control output ", output, " is ", name,
                                       ", which is not a node of the body");
      }
      if (it->second.node != nullptr) body_->effects.push_back(it->second.node);
    }
    std::sort(body_->effects.begin(), body_->effects.end(),
              [](const Node* a, const Node* b) { return a->id() < b->id(); });
    body_->effects.erase(std::unique(body_->effects.begin(), body_->effects.end()),
                         body_->effects.end());
    return OkStatus();
  }

  Status CheckCycles() {
    std::vector<int> pending(graph().num_node_ids(), 0);
    std::vector<Node*> ready;
    const auto is_back_edge = [](const Edge& edge) {
      return edge.src->type() == "NextIteration" || edge.src->type() == "RefNextIteration";
    };
    const std::vector<Node*> nodes = graph().OpNodes();
    for (Node* node : nodes) {
      for (const Edge* edge : node->in_edges()) pending[node->id()] += is_back_edge(*edge) ? 0 : 1;
      if (pending[node->id()] == 0) ready.push_back(node);
    }
    std::size_t seen = 0;
    while (!ready.empty()) {
      Node* const node = ready.back();
      ready.pop_back();
      ++seen;
      for (const Edge* edge : node->out_edges()) {
        if (!is_back_edge(*edge) && --pending[edge->dst->id()] == 0) ready.push_back(edge->dst);
      }
    }
    if (seen == nodes.size()) return OkStatus();
    const auto stuck = std::find_if(nodes.begin(), nodes.end(),
                                    [&](const Node* node) { return pending[node->id()] > 0; });
    return errors::InvalidArgument("{{node ", (*stuck)->name(), "}} is in or behind a cycle of ",
                                   nodes.size() - seen, " nodes");
  }

  const pb::FunctionDef& def_;
  std::unique_ptr<FunctionBody> body_;
  AttrMap attrs_;
  std::vector<DataType> result_types_;
  StringMap<Source> sources_;
};

void AppendKey(const FunctionName& function, std::string* key);

void AppendKey(const AttrValue& value, std::string* key) {
  if (const FunctionName* function = value.function()) return AppendKey(*function, key);
  if (const auto* list = value.get_if<std::vector<FunctionName>>()) {
    for (const FunctionName& function : *list) AppendKey(function, key);
    return;
  }
  pb::AttrValue proto;
  AttrToProto(value, &proto);
  StrAppend(key, proto.SerializeAsString());
}

void AppendKey(const FunctionName& function, std::string* key) {
  StrAppend(key, function.name, "[");
  for (const auto& [name, value] : function.attrs) {
    std::string text;
    AppendKey(value, &text);
    StrAppend(key, name, "=", text.size(), ":", text, ",");
  }
  StrAppend(key, "]");
}

}  // namespace

std::vector<DataType> FunctionBody::arg_types() const { return TypesOf(args); }
std::vector<DataType> FunctionBody::result_types() const { return TypesOf(results); }

StatusOr<std::unique_ptr<FunctionBody>> InstantiateFunction(
    const OpRegistry& ops, const std::shared_ptr<const FunctionLibrary>& library,
    const FunctionName& function) {
  const Function* const found = library == nullptr ? nullptr : library->Find(function.name);
  if (found == nullptr) {
    return errors::NotFound("Function ", function.name, " is not defined.");
  }
  StatusOr<std::unique_ptr<FunctionBody>> body = Instantiator(ops, library, *found).Run(function);
  if (body.ok()) return body;
  return Annotate(body.status(), StrCat("\n\t In function ", function.name));
}

std::string FunctionKey(const FunctionName& function) {
  std::string key;
  AppendKey(function, &key);
  return key;
}

}  // namespace millrace
