// SPDX-License-Identifier: Apache-2.0
// Graphs with functions, as text for tests.
#ifndef TESTS_FUNCTIONS_FUNCTION_TEXT_H_
#define TESTS_FUNCTIONS_FUNCTION_TEXT_H_

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "proto/graph.pb.h"

namespace millrace {

// One attribute: "T: float" is written Attr("T", "type: DT_FLOAT").
inline std::string Attr(const std::string& key, const std::string& value) {
  return StrCat(" attr { key: '", key, "' value { ", value, " } }");
}
inline std::string FloatT() { return Attr("T", "type: DT_FLOAT"); }
inline std::string Func(const std::string& key, const std::string& name) {
  return Attr(key, StrCat("func { name: '", name, "' }"));
}
// `count` floats in and `results` out, for calls and branches.
inline std::string FloatLists(int count, int results) {
  std::string in = "list {", out = "list {";
  for (int i = 0; i < count; ++i) in += " type: DT_FLOAT";
  for (int i = 0; i < results; ++i) out += " type: DT_FLOAT";
  return Attr("Tin", in + " }") + Attr("Tout", out + " }");
}

inline std::string NodeText(const std::string& field, const std::string& name,
                            const std::string& op, const std::vector<std::string>& inputs,
                            const std::string& attrs = "", const std::string& device = "") {
  std::string text = StrCat(field, " { name: '", name, "' op: '", op, "' device: '", device, "'");
  for (const std::string& input : inputs) StrAppend(&text, " input: '", input, "'");
  return StrCat(text, attrs, " }\n");
}
// A node of the graph, and one of a function's body.
inline std::string GraphNode(const std::string& name, const std::string& op,
                             const std::vector<std::string>& inputs, const std::string& attrs = "",
                             const std::string& device = "") {
  return NodeText("node", name, op, inputs, attrs, device);
}
inline std::string BodyNode(const std::string& name, const std::string& op,
                            const std::vector<std::string>& inputs, const std::string& attrs = "",
                            const std::string& device = "") {
  return NodeText("node_def", name, op, inputs, attrs, device);
}
inline std::string FloatConst(const std::string& field, const std::string& name, float value) {
  return NodeText(
      field, name, "Const", {},
      Attr("dtype", "type: DT_FLOAT") +
          Attr("value",
               StrCat("tensor { dtype: DT_FLOAT tensor_shape {} float_val: ", value, " }")));
}

// A function of floats: the names of its arguments, and of its results with what they are.
inline std::string FunctionText(const std::string& name, const std::vector<std::string>& args,
                                const std::vector<std::pair<std::string, std::string>>& results,
                                const std::string& body, const std::string& more = "") {
  std::string text = StrCat("library { function { signature { name: '", name, "'");
  for (const std::string& arg : args) {
    StrAppend(&text, " input_arg { name: '", arg, "' type: DT_FLOAT }");
  }
  for (const auto& [result, source] : results) {
    StrAppend(&text, " output_arg { name: '", result, "' type: DT_FLOAT }");
  }
  text += " }\n" + body;
  for (const auto& [result, source] : results) {
    StrAppend(&text, " ret { key: '", result, "' value: '", source, "' }");
  }
  return StrCat(text, more, " } }\n");
}

// The text format takes the field `library` only once: the parts between are read one by one.
inline bool ParseGraph(const std::string& text, pb::GraphDef* def) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find("library {", begin + 1), text.size());
    pb::GraphDef part;
    if (!google::protobuf::TextFormat::ParseFromString(text.substr(begin, end - begin), &part)) {
      return false;
    }
    def->MergeFrom(part);
    begin = end;
  }
  return true;
}

// A session of the graph that a text describes, which is put into `graph`.
inline StatusOr<Session> OpenText(const std::string& text, Graph* graph,
                                  const SessionOptions& options = {}) {
  pb::GraphDef def;
  if (!ParseGraph(text, &def)) return Status(StatusCode::kInvalidArgument, "no graph: " + text);
  const Status imported = graph->ImportGraphDef(def.SerializeAsString());
  if (!imported.ok()) return imported;
  return Session::Create(*graph, options);
}

}  // namespace millrace

#endif  // TESTS_FUNCTIONS_FUNCTION_TEXT_H_
