// SPDX-License-Identifier: Apache-2.0
#include "ops/shape_inference.h"

#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

// A shape of `rank` dimensions, none known.
PartialShape UnknownDims(int64_t rank) {
  PartialShape shape{std::span<const int64_t>()};
  for (int64_t i = 0; i < rank; ++i) shape.AddDim(-1);
  return shape;
}

bool ElementsAsInts(const Tensor& tensor, Dims* out) {
  if (tensor.dtype() == kInt32) {
    const auto values = tensor.flat<int32_t>();
    out->assign(values.begin(), values.end());
    return true;
  }
  if (tensor.dtype() == kInt64) {
    const auto values = tensor.flat<int64_t>();
    out->assign(values.begin(), values.end());
    return true;
  }
  return false;
}

constexpr int kMaxRank = 254;

}  // namespace

InferenceContext::InferenceContext(const pb::OpDef& def, const AttrMap& attrs,
                                   std::span<const Input> inputs, int num_outputs)
    : def_(def),
      attrs_(attrs),
      inputs_(inputs),
      outputs_(static_cast<std::size_t>(num_outputs)),
      handles_(static_cast<std::size_t>(num_outputs)) {}

void InferenceContext::set_output_handle(int i, HandleShape handle) {
  handles_[i] = std::move(handle);
}

const HandleShape* InferenceContext::output_handle(int i) const {
  return handles_[i].has_value() ? &*handles_[i] : nullptr;
}

StatusOr<PartialShape> InferenceContext::WithRank(int i, int rank) const {
  const PartialShape& shape = input(i);
  if (!shape.has_rank()) return UnknownDims(rank);
  if (shape.rank() == rank) return shape;
  return errors::InvalidArgument("Shape must be rank ", rank, " but is rank ", shape.rank(),
                                 " for input ", i, " of '", def_.name(), "' with shape ",
                                 shape.DebugString());
}

StatusOr<PartialShape> InferenceContext::WithRankAtLeast(int i, int rank) const {
  const PartialShape& shape = input(i);
  if (!shape.has_rank() || shape.rank() >= rank) return shape;
  return errors::InvalidArgument("Shape must be at least rank ", rank, " but is rank ",
                                 shape.rank(), " for input ", i, " of '", def_.name(),
                                 "' with shape ", shape.DebugString());
}

StatusOr<PartialShape> InferenceContext::InputAsShape(int i) const {
  const Input& in = inputs_[i];
  if (in.constant != nullptr) {
    Dims dims;
    if (in.constant->rank() > 1 || !ElementsAsInts(*in.constant, &dims)) {
      return errors::InvalidArgument("input ", i, " of '", def_.name(),
                                     "' must be a vector of int32 or int64 sizes");
    }
    // A lone -1 stands for a shape of which nothing is known.
    if (in.constant->rank() == 0) {
      if (dims[0] == -1) return PartialShape();
      return errors::InvalidArgument("input ", i, " of '", def_.name(),
                                     "' must be a vector, or the scalar -1");
    }
    if (dims.size() > kMaxRank) {
      return errors::InvalidArgument("input ", i, " of '", def_.name(), "' asks for rank ",
                                     dims.size(), ", more than ", kMaxRank);
    }
    for (int64_t dim : dims) {
      if (dim < -1) {
        return errors::InvalidArgument("input ", i, " of '", def_.name(),
                                       "': dimension sizes must be at least -1, got ", dim);
      }
    }
    return PartialShape(std::span<const int64_t>(dims.data(), dims.size()));
  }
  if (in.constant_as_shape != nullptr) return *in.constant_as_shape;
  if (!in.shape.has_rank() || in.shape.rank() == 0) return PartialShape();
  MR_ASSIGN_OR_RETURN(const PartialShape vector, WithRank(i, 1));
  if (vector.dim(0) < 0) return PartialShape();
  if (vector.dim(0) > kMaxRank) {
    return errors::InvalidArgument("input ", i, " of '", def_.name(), "' asks for rank ",
                                   vector.dim(0), ", more than ", kMaxRank);
  }
  return UnknownDims(vector.dim(0));
}

bool InferenceContext::ConstantInt(int i, int64_t* value) const {
  *value = -1;
  Dims dims;
  const Tensor* tensor = constant(i);
  if (tensor == nullptr || tensor->num_elements() != 1 || !ElementsAsInts(*tensor, &dims)) {
    return false;
  }
  *value = dims[0];
  return true;
}

Status UnchangedShape(InferenceContext& c) {
  c.set_output(0, c.input(0));
  if (const HandleShape* handle = c.handle(0)) c.set_output_handle(0, *handle);
  return OkStatus();
}

Status ScalarShape(InferenceContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, Shape());
  return OkStatus();
}

Status UnknownShape(InferenceContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape());
  return OkStatus();
}

Status NoOutputs(InferenceContext& c) { return OkStatus(); }

Status BroadcastShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, BroadcastShapes(c.input(0), c.input(1)));
  c.set_output(0, std::move(shape));
  return OkStatus();
}

StatusOr<PartialShape> BroadcastShapes(const PartialShape& a, const PartialShape& b) {
  if (!a.has_rank() || !b.has_rank()) return PartialShape();
  const int rank = std::max(a.rank(), b.rank());
  PartialShape out = UnknownDims(rank);
  for (int i = 0; i < rank; ++i) {
    const int from_a = i - (rank - a.rank());
    const int from_b = i - (rank - b.rank());
    const int64_t x = from_a < 0 ? 1 : a.dim(from_a);
    const int64_t y = from_b < 0 ? 1 : b.dim(from_b);
    if (x == y) {
      out.SetDim(i, x);
    } else if (x == 1 || y == 1) {
      out.SetDim(i, x == 1 ? y : x);
    } else if (x < 0 || y < 0) {
      // The unknown one is 1 or equal: either way the known one, which is not 1, wins.
      out.SetDim(i, std::max(x, y));
    } else {
      return errors::InvalidArgument("Dimensions must be equal, but are ", x, " and ", y,
                                     " when broadcasting ", a.DebugString(), " with ",
                                     b.DebugString());
    }
  }
  return out;
}

}  // namespace millrace
