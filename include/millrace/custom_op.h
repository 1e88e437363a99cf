// SPDX-License-Identifier: Apache-2.0
// Ops of one's own: defined in a shared library that programs and servers load before they build
// their first graph. docs/custom_ops.md has a whole one.
//
//   MR_CUSTOM_OPS(ops) {
//     ops.Add("Twice").Input("x: T").Output("y: T").Attr("T: {float, double}")
//         .Shape(ShapeOfTwice).Kernel(MakeTwice).Gradient(GradientOfTwice);
//   }
//
// Programs use it through Scope::AddOp("Twice", ...). The library links nothing of Millrace: it
// takes what it needs from the process that loads it, one with libmillrace.so or `millrace server`.
#ifndef MILLRACE_CUSTOM_OP_H_
#define MILLRACE_CUSTOM_OP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "millrace/attr_value.h"
#include "millrace/graph.h"
#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "millrace/version.h"

// What library and process must agree on: until 1.0 every version may change layouts.
#define MILLRACE_CUSTOM_OP_ABI "millrace " MILLRACE_VERSION ", ops 1"

namespace millrace {

// The attributes of one node. Valid during the call that it is given to.
class NodeAttrs {
  template <typename T>
  static constexpr bool kIsList =
      requires(T list) { list.resize(0); } && !std::is_same_v<T, std::string>;

 public:
  virtual const AttrValue* Find(std::string_view name) const = 0;  // null if there is none
  // The value of a declared attribute. T: std::string, int64_t, float, bool, DataType,
  // PartialShape, Tensor, or a std::vector of one of them. InvalidArgument if it is missing or of
  // another kind.
  template <typename T>
  StatusOr<T> Get(std::string_view name) const {
    const AttrValue* const value = Find(name);
    if (value != nullptr) {
      if constexpr (std::is_same_v<T, Tensor>) {
        if (value->tensor() != nullptr) return *value->tensor();
      } else if (const T* const found = value->get_if<T>()) {
        return *found;
      } else if (value->get_if<AttrValue::EmptyList>() != nullptr && kIsList<T>) {
        return T();
      }
    }
    return Status(StatusCode::kInvalidArgument,
                  "attr '" + std::string(name) + "' is missing or of another kind");
  }

 protected:
  ~NodeAttrs() = default;
};

// What a shape function sees, and fills. Valid during the call.
class ShapeContext {
 public:
  // Number of inputs, with the members of lists counted one by one.
  virtual int num_inputs() const = 0;
  // Number of outputs, with the members of lists counted one by one.
  virtual int num_outputs() const = 0;
  // Shape of input i as far as it is known; unknown if there is no such input.
  virtual const PartialShape& input(int i) const = 0;
  virtual const Tensor* constant(int i) const = 0;  // the value if it is known, else null
  // Attributes of the node.
  virtual const NodeAttrs& attrs() const = 0;
  // Outputs that are not set have an unknown shape.
  virtual void set_output(int i, PartialShape shape) = 0;

 protected:
  ~ShapeContext() = default;
};

// One execution of a kernel, for one thread, until Compute returns.
class CustomKernelContext {
 public:
  // Name of the node in its graph, for texts.
  virtual const std::string& node_name() const = 0;
  // Number of inputs, with the members of lists counted one by one.
  virtual int num_inputs() const = 0;
  // Number of outputs, with the members of lists counted one by one.
  virtual int num_outputs() const = 0;
  // In host memory. Its buffer may be shared: never write to it.
  virtual const Tensor& input(int i) const = 0;
  // Type that output i must have; kInvalid if there is no such output.
  virtual DataType output_type(int i) const = 0;
  // Memory for output i, elements not set, until Compute returns. ResourceExhausted if there is
  // none, InvalidArgument for a shape that is not valid.
  virtual StatusOr<Tensor*> AllocateOutput(int i, const Shape& shape) = 0;
  // Makes a tensor output i, without a copy. InvalidArgument if its type is another one.
  virtual Status SetOutput(int i, Tensor value) = 0;
  // Runs body(begin, end) over parts of [0, n), several at a time, and returns when all are done.
  // `cost` is what one unit takes, in nanoseconds. The body must not throw.
  virtual void ParallelFor(int64_t n, double cost,
                           const std::function<void(int64_t begin, int64_t end)>& body) = 0;
  // True once the step is given up: a long Compute returns then, with any error.
  virtual bool cancelled() const = 0;

 protected:
  ~CustomKernelContext() = default;
};

// Computes a node on the CPU. One object for each node of a session, used by many steps at the same
// time: what it keeps is constant, or locked.
class CustomKernel {
 public:
  virtual ~CustomKernel() = default;
  // Sets every output, in full. An error, or an exception of the standard library, fails the step;
  // the text needs no name of a node or device.
  virtual Status Compute(CustomKernelContext& context) = 0;
};

// The derivatives of one node. Valid during the call.
class GradientContext {
 public:
  virtual const Scope& scope() const = 0;  // what the function adds its nodes to
  // The node whose derivatives are wanted.
  virtual const Operation& op() const = 0;
  // By output i; not valid if nothing depends on that output.
  virtual Output dy(int i) const = 0;
  // By input i; inputs that are not set have no derivative.
  virtual void set_dx(int i, const Output& dx) = 0;

  // Output that feeds input i of the node; not valid if there is none.
  Output x(int i) const { return op().input(i); }
  // Output i of the node; not valid if there is none.
  Output y(int i) const { return op().output(i); }

 protected:
  ~GradientContext() = default;
};

// Sets the shapes of the outputs. An error refuses the node that is being built.
using CustomShape = std::function<Status(ShapeContext&)>;
// Makes the kernel of one node from its attributes. An error fails the step, null is Internal.
using CustomKernelMaker = std::function<StatusOr<std::unique_ptr<CustomKernel>>(const NodeAttrs&)>;
// Adds the nodes that compute the derivatives. Its error is that of Gradients().
using CustomGradient = std::function<Status(GradientContext&)>;

// One definition, put together by chained calls. Functions are called by several threads.
class CustomOp {
 public:
  // Begins the definition of an op, CamelCase. Names that begin with "_" are refused.
  explicit CustomOp(std::string op_name) : name(std::move(op_name)) {}
  // "x: T", "n: int32", "xs: N * T". No references, no resources.
  CustomOp& Input(std::string_view text) { return Add(inputs, ", ", text); }
  // One more output, written as inputs are: "y: T".
  CustomOp& Output(std::string_view text) { return Add(outputs, ", ", text); }
  // "scale: float = 1.0", "T: {float, double}", "N: int >= 1", "mode: {'a', 'b'} = 'a'".
  CustomOp& Attr(std::string_view text) { return Add(attrs, "; ", text); }
  // One more line of the description that the op's definition carries.
  CustomOp& Doc(std::string_view text) { return Add(doc, "\n", text); }
  // Has state or effects: never folded, merged with an equal node, or left out.
  CustomOp& Stateful(bool has_state = true) { return Set(stateful, has_state); }
  // Without one, shapes of outputs are unknown.
  CustomOp& Shape(CustomShape function) { return Set(shape, function); }
  // Without one, the op can be built but not run in this process.
  CustomOp& Kernel(CustomKernelMaker make) { return Set(kernel, make); }
  // Without one, Gradients() through it fails.
  CustomOp& Gradient(CustomGradient function) { return Set(gradient, function); }

  std::string name, inputs, outputs, attrs, doc;  // as the calls put it together
  bool stateful = false;                          // as Stateful() says
  CustomShape shape;                              // null: shapes are unknown
  CustomKernelMaker kernel;                       // null: cannot be run here
  CustomGradient gradient;                        // null: no derivative

 private:
  CustomOp& Add(std::string& list, std::string_view separator, std::string_view text) {
    if (!list.empty()) list += separator;
    list += text;
    return *this;
  }
  template <typename T>
  CustomOp& Set(T& field, const T& value) {
    field = value;
    return *this;
  }
};

// The ops of one library.
class CustomOps {
 public:
  // CamelCase, as TensorFlow's ops. The reference is valid until the next Add.
  CustomOp& Add(std::string name) { return ops_.emplace_back(std::move(name)); }
  // The definitions in the order of Add; LoadLibrary takes them over.
  std::vector<CustomOp>& all() { return ops_; }

 private:
  std::vector<CustomOp> ops_;
};

// Loads a library of ops; all of them or none. Again the same file: OK, nothing happens.
// FailedPrecondition after the process has made its first graph, session or server, or if the
// library is for another version; NotFound without a file; InvalidArgument for a bad definition;
// AlreadyExists for a name that is taken. The code has all rights of the process for good.
// Thread-safe.
Status LoadLibrary(const std::string& path);

}  // namespace millrace

// Once in a library: what it is asked for when it is loaded.
#define MR_CUSTOM_OPS(ops)                                                         \
  extern "C" [[gnu::visibility("default")]] const char* millrace_custom_op_abi() { \
    return MILLRACE_CUSTOM_OP_ABI;                                                 \
  }                                                                                \
  extern "C" [[gnu::visibility("default")]] void millrace_custom_ops(::millrace::CustomOps& ops)

#endif  // MILLRACE_CUSTOM_OP_H_
