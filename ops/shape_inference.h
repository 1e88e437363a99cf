// SPDX-License-Identifier: Apache-2.0
// Static shapes. A shape function reads input shapes, constant inputs and attributes and
// sets the shapes of the outputs, or says why the node cannot be right.
#ifndef OPS_SHAPE_INFERENCE_H_
#define OPS_SHAPE_INFERENCE_H_

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "ops/attr_map.h"
#include "proto/op_def.pb.h"

namespace millrace {

// Shape and type behind a resource handle, where known.
struct HandleShape {
  DataType dtype = DataType::kInvalid;
  PartialShape shape;
};

class InferenceContext {
 public:
  struct Input {
    PartialShape shape;
    const Tensor* constant = nullptr;                 // the value, if it is known statically
    const PartialShape* constant_as_shape = nullptr;  // partial knowledge of a shape vector
    const HandleShape* handle = nullptr;              // for resource inputs
  };
  InferenceContext(const pb::OpDef& def, const AttrMap& attrs, std::span<const Input> inputs,
                   int num_outputs);

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  const PartialShape& input(int i) const { return inputs_[i].shape; }
  const Tensor* constant(int i) const { return inputs_[i].constant; }
  const HandleShape* handle(int i) const { return inputs_[i].handle; }
  const AttrMap& attrs() const { return attrs_; }
  template <typename T>
  StatusOr<T> attr(std::string_view name) const {
    return attrs_.Get<T>(name);
  }
  void set_output(int i, PartialShape shape) { outputs_[i] = std::move(shape); }
  const PartialShape& output(int i) const { return outputs_[i]; }
  void set_output_handle(int i, HandleShape handle);
  const HandleShape* output_handle(int i) const;

  // The input as a shape of `rank`; InvalidArgument naming the input if it has another.
  StatusOr<PartialShape> WithRank(int i, int rank) const;
  StatusOr<PartialShape> WithRankAtLeast(int i, int rank) const;
  // What a 1-D int32/int64 input says about a shape: unknown elements are -1.
  StatusOr<PartialShape> InputAsShape(int i) const;
  // A scalar integer constant input; -1 and ok=false if not known.
  bool ConstantInt(int i, int64_t* value) const;

 private:
  const pb::OpDef& def_;
  const AttrMap& attrs_;
  std::span<const Input> inputs_;
  std::vector<PartialShape> outputs_;
  std::vector<std::optional<HandleShape>> handles_;
};

// Shared shape functions.
Status UnchangedShape(InferenceContext& c);  // output 0 = input 0
Status ScalarShape(InferenceContext& c);     // every output a scalar
Status UnknownShape(InferenceContext& c);
Status NoOutputs(InferenceContext& c);
Status BroadcastShape(InferenceContext& c);  // output 0 = broadcast of inputs 0 and 1
StatusOr<PartialShape> BroadcastShapes(const PartialShape& a, const PartialShape& b);

}  // namespace millrace

#endif  // OPS_SHAPE_INFERENCE_H_
