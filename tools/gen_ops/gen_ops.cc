// SPDX-License-Identifier: Apache-2.0
// gen_ops header|source: writes the C++ wrappers of all registered ops, so that one
// definition serves the wire, the kernels and C++ users.
#include <algorithm>
#include <cctype>
#include <iostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/dtype.h"
#include "ops/all_ops.h"
#include "ops/op_registry.h"

namespace millrace {
namespace {

using pb::OpDef;

std::string Identifier(const std::string& name) {
  static const auto* const kReserved = new std::set<std::string>{
      "and",     "bool",     "case",      "char",     "class",  "const",    "default",  "delete",
      "do",      "double",   "else",      "enum",     "export", "float",    "for",      "if",
      "int",     "long",     "namespace", "new",      "not",    "op",       "operator", "or",
      "private", "public",   "return",    "scope",    "short",  "signed",   "static",   "struct",
      "switch",  "template", "this",      "typename", "union",  "unsigned", "using",    "void",
      "where",   "while",    "xor",       "attrs"};
  return kReserved->contains(name) ? name + "_" : name;
}

std::string CppType(const std::string& attr_type) {
  if (attr_type.starts_with("list(")) {
    return StrCat("std::vector<", CppType(attr_type.substr(5, attr_type.size() - 6)), ">");
  }
  if (attr_type == "string") return "std::string";
  if (attr_type == "int") return "int64_t";
  if (attr_type == "float") return "float";
  if (attr_type == "bool") return "bool";
  if (attr_type == "type") return "DataType";
  if (attr_type == "shape") return "PartialShape";
  if (attr_type == "tensor") return "Tensor";
  return "FunctionName";
}

std::string TypeLiteral(DataType dtype) {
  std::string name = DataTypeName(dtype);
  name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
  return StrCat("DataType::k", name);
}

std::string FloatLiteral(float value) {
  std::string text = StrCat(value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text + "f";
}

// The default as a C++ initialiser, with the leading " = ".
std::string Initializer(const OpDef::AttrDef& attr) {
  const pb::AttrValue& v = attr.default_value();
  const auto list = [&](const auto& values, auto format) {
    std::string text = " = {";
    for (int i = 0; i < values.size(); ++i) StrAppend(&text, i > 0 ? ", " : "", format(values[i]));
    return text + "}";
  };
  const auto type_of = [](int t) { return TypeLiteral(static_cast<DataType>(t)); };
  const auto quoted = [](const std::string& s) { return StrCat("\"", CEscape(s), "\""); };
  const std::string& type = attr.type();
  if (type == "string") return StrCat(" = ", quoted(v.s()));
  if (type == "int") return StrCat(" = ", v.i());
  if (type == "float") return StrCat(" = ", FloatLiteral(v.f()));
  if (type == "bool") return StrCat(" = ", v.b());
  if (type == "type") return StrCat(" = ", type_of(v.type()));
  if (type == "list(int)") return list(v.list().i(), [](int64_t i) { return StrCat(i); });
  if (type == "list(float)") return list(v.list().f(), FloatLiteral);
  if (type == "list(string)") return list(v.list().s(), quoted);
  if (type == "list(type)") return list(v.list().type(), type_of);
  if (type == "shape" && !v.shape().unknown_rank()) {
    std::vector<int64_t> dims;
    for (const auto& dim : v.shape().dim()) dims.push_back(dim.size());
    return StrCat(" = PartialShape({", StrJoin(dims, ", "), "})");
  }
  return " = {}";
}

bool IsList(const OpDef::ArgDef& arg) {
  return !arg.number_attr().empty() || !arg.type_list_attr().empty();
}

// Attributes that the inputs decide are no parameters.
std::set<std::string> InferredAttrs(const OpDef& def) {
  std::set<std::string> inferred;
  for (const auto& arg : def.input_arg()) {
    for (const std::string& name : {arg.type_attr(), arg.number_attr(), arg.type_list_attr()}) {
      if (!name.empty()) inferred.insert(name);
    }
  }
  return inferred;
}

struct Wrapper {
  const OpDef& def;
  std::vector<const OpDef::AttrDef*> required, optional;

  explicit Wrapper(const OpDef& d) : def(d) {
    const std::set<std::string> inferred = InferredAttrs(d);
    for (const auto& attr : d.attr()) {
      if (inferred.contains(attr.name())) continue;
      (attr.has_default_value() ? optional : required).push_back(&attr);
    }
  }

  std::string ReturnType() const {
    if (def.output_arg_size() == 0) return "Operation";
    if (def.output_arg_size() > 1) return def.name() + "Outputs";
    return IsList(def.output_arg(0)) ? "std::vector<Output>" : "Output";
  }

  std::string Signature(bool with_defaults) const {
    std::string text = StrCat(ReturnType(), " ", def.name(), "(const Scope& scope");
    for (const auto& arg : def.input_arg()) {
      StrAppend(&text, IsList(arg) ? ", const std::vector<Input>& " : ", const Input& ",
                Identifier(arg.name()));
    }
    for (const auto* attr : required) {
      StrAppend(&text, ", const ", CppType(attr->type()), "& ", Identifier(attr->name()));
    }
    if (!optional.empty()) {
      StrAppend(&text, ", const ", def.name(), "Attrs& attrs", with_defaults ? " = {}" : "");
    }
    StrAppend(&text, ", std::source_location where",
              with_defaults ? " = std::source_location::current()" : "", ")");
    return text;
  }
};

void WriteHeader(const Wrapper& w, std::ostream& out) {
  const OpDef& def = w.def;
  if (!w.optional.empty()) {
    out << "struct " << def.name() << "Attrs {\n";
    for (const auto* attr : w.optional) {
      out << "  " << CppType(attr->type()) << " " << Identifier(attr->name()) << Initializer(*attr)
          << ";\n";
    }
    out << "};\n";
  }
  if (def.output_arg_size() > 1) {
    out << "struct " << def.name() << "Outputs {\n";
    for (const auto& arg : def.output_arg()) {
      out << (IsList(arg) ? "  std::vector<Output> " : "  Output ") << Identifier(arg.name())
          << ";\n";
    }
    out << "  Operation operation;\n};\n";
  }
  out << w.Signature(true) << ";\n\n";
}

void WriteSource(const Wrapper& w, std::ostream& out) {
  const OpDef& def = w.def;
  out << w.Signature(false) << " {\n  std::vector<std::vector<Input>> args_("
      << def.input_arg_size() << ");\n";
  for (int i = 0; i < def.input_arg_size(); ++i) {
    const std::string name = Identifier(def.input_arg(i).name());
    if (IsList(def.input_arg(i))) {
      out << "  args_[" << i << "] = " << name << ";\n";
    } else {
      out << "  args_[" << i << "].push_back(" << name << ");\n";
    }
  }
  out << "  std::vector<std::pair<std::string, AttrValue>> attr_values_;\n";
  for (const auto* attr : w.required) {
    out << "  attr_values_.emplace_back(\"" << attr->name() << "\", AttrValue("
        << Identifier(attr->name()) << "));\n";
  }
  for (const auto* attr : w.optional) {
    out << "  attr_values_.emplace_back(\"" << attr->name() << "\", AttrValue(attrs."
        << Identifier(attr->name()) << "));\n";
  }
  out << "  const Operation op_ = scope.AddOpWithLists(\"" << def.name()
      << "\", args_, std::move(attr_values_), where);\n";
  if (def.output_arg_size() == 0) {
    out << "  return op_;\n}\n\n";
    return;
  }
  const auto value = [&](const OpDef::ArgDef& arg) {
    return StrCat(IsList(arg) ? "OutputList" : "OneOutput", "(op_, \"", arg.name(), "\")");
  };
  if (def.output_arg_size() == 1) {
    out << "  return " << value(def.output_arg(0)) << ";\n}\n\n";
    return;
  }
  out << "  return {";
  for (const auto& arg : def.output_arg()) out << value(arg) << ", ";
  out << "op_};\n}\n\n";
}

int Run(std::string_view mode) {
  OpRegistry registry;
  if (const Status status = RegisterAllOps(registry); !status.ok()) {
    std::cerr << Message(status) << "\n";
    return 1;
  }
  const bool header = mode == "header";
  std::cout << "// SPDX-License-Identifier: Apache-2.0\n"
               "// Made from the op definitions by tools/gen_ops.\n";
  if (header) {
    std::cout << "#ifndef MILLRACE_OPS_H_\n#define MILLRACE_OPS_H_\n\n#include <source_location>\n"
                 "#include <string>\n#include <vector>\n\n#include \"millrace/graph.h\"\n\n"
                 "// One function per op. Arguments that may be constants are Inputs; attributes "
                 "without a\n// default are parameters, the others members of XAttrs. A node that "
                 "cannot be made is\n// recorded in the graph's status together with the caller's "
                 "file and line.\nnamespace millrace::ops {\n\n";
  } else {
    std::cout << "#include \"millrace/ops.h\"\n\n#include <utility>\n\n"
                 "#include \"frontend/op_outputs.h\"\n\nnamespace millrace::ops {\n\n";
  }
  for (const OpInfo* info : registry.SortedOps()) {
    if (info->def.name().starts_with("_")) continue;
    const Wrapper wrapper(info->def);
    header ? WriteHeader(wrapper, std::cout) : WriteSource(wrapper, std::cout);
  }
  std::cout << "}  // namespace millrace::ops\n";
  if (header) std::cout << "\n#endif  // MILLRACE_OPS_H_\n";
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const std::string_view mode = argc == 2 ? argv[1] : "";
  if (mode != "header" && mode != "source") {
    std::cerr << "usage: gen_ops header|source\n";
    return 2;
  }
  return millrace::Run(mode);
}
