// SPDX-License-Identifier: Apache-2.0
#include "saved_model/signatures.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "graph/node_name.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

using Tensors = std::map<std::string, SignatureTensor>;

// A composite tensor within a composite tensor, and so on: none is deeper than that.
constexpr int kMostLevels = 8;

Status CheckShape(const pb::TensorShapeProto& shape) {
  for (const auto& dim : shape.dim()) {
    if (dim.size() < -1) {
      return errors::InvalidArgument("has a dimension of size ", dim.size(),
                                     "; a size is not negative, or -1 for any");
    }
  }
  return OkStatus();
}

Status AddPlain(const std::string& name, const std::string& tensor, DataType dtype,
                const PartialShape& shape, Tensors* tensors) {
  const StatusOr<TensorName> parsed = ParseTensorName(tensor);
  if (!parsed.ok() || parsed->IsControl()) {
    return errors::InvalidArgument("'", name, "' stands for '", CEscape(tensor),
                                   "', which is no name of a tensor (NODE:OUTPUT)");
  }
  if (DataTypeName(dtype) == DataTypeName(DataType::kInvalid)) {
    return errors::InvalidArgument("'", name, "' is of type ", static_cast<int>(dtype),
                                   ", which is none");
  }
  tensors->insert_or_assign(name, SignatureTensor{tensor, BaseType(dtype), shape});
  return OkStatus();
}

Status AddTensor(const std::string& name, const pb::TensorInfo& info, int level, Tensors* tensors) {
  if (level > kMostLevels) {
    return errors::InvalidArgument("'", name, "' has composite tensors within each other, more ",
                                   "than ", kMostLevels, " deep");
  }
  if (const Status status = CheckShape(info.tensor_shape()); !status.ok()) {
    return WithMessage(status, StrCat("'", name, "' ", Message(status)));
  }
  const auto dtype = static_cast<DataType>(info.dtype());
  if (info.has_coo_sparse()) {
    const pb::TensorInfo::CooSparse& sparse = info.coo_sparse();
    MR_RETURN_IF_ERROR(AddPlain(name + "/indices", sparse.indices_tensor_name(), kInt64,
                                PartialShape({-1, -1}), tensors));
    MR_RETURN_IF_ERROR(AddPlain(name + "/dense_shape", sparse.dense_shape_tensor_name(), kInt64,
                                PartialShape({-1}), tensors));
    return AddPlain(name + "/values", sparse.values_tensor_name(), dtype, PartialShape({-1}),
                    tensors);
  }
  if (info.has_composite_tensor()) {
    int i = 0;
    for (const pb::TensorInfo& component : info.composite_tensor().components()) {
      MR_RETURN_IF_ERROR(AddTensor(StrCat(name, "/", i++), component, level + 1, tensors));
    }
    return OkStatus();
  }
  const PartialShape shape =
      info.has_tensor_shape() ? ShapeFromProto(info.tensor_shape()) : PartialShape();
  return AddPlain(name, info.name(), dtype, shape, tensors);
}

StatusOr<ModelSignature> SignatureOf(const pb::SignatureDef& def) {
  ModelSignature signature;
  signature.method_name = def.method_name();
  for (const auto& [name, info] : def.inputs()) {
    MR_RETURN_IF_ERROR(AddTensor(name, info, 0, &signature.inputs));
  }
  for (const auto& [name, info] : def.outputs()) {
    MR_RETURN_IF_ERROR(AddTensor(name, info, 0, &signature.outputs));
  }
  for (const auto& [name, value] : def.defaults()) {
    StatusOr<Tensor> tensor = TensorFromProto(value);
    if (!tensor.ok()) return Annotate(tensor.status(), StrCat(" (the default of '", name, "')"));
    signature.defaults.insert_or_assign(name, *std::move(tensor));
  }
  return signature;
}

void ToInfo(const SignatureTensor& tensor, pb::TensorInfo* info) {
  info->set_name(tensor.tensor);
  info->set_dtype(static_cast<pb::DataType>(tensor.dtype));
  ShapeToProto(tensor.shape, info->mutable_tensor_shape());
}

}  // namespace

StatusOr<std::map<std::string, ModelSignature>> SignaturesOf(const pb::MetaGraphDef& meta) {
  std::map<std::string, ModelSignature> signatures;
  for (const auto& [name, def] : meta.signature_def()) {
    if (name == kInitSignature) continue;
    StatusOr<ModelSignature> signature = SignatureOf(def);
    if (!signature.ok()) {
      return WithMessage(signature.status(),
                         StrCat("signature '", CEscape(name), "': ", Message(signature.status())));
    }
    signatures.insert_or_assign(name, *std::move(signature));
  }
  return signatures;
}

void SignatureToProto(const ModelSignature& signature, pb::SignatureDef* def) {
  def->set_method_name(signature.method_name);
  for (const auto& [name, tensor] : signature.inputs) {
    ToInfo(tensor, &(*def->mutable_inputs())[name]);
  }
  for (const auto& [name, tensor] : signature.outputs) {
    ToInfo(tensor, &(*def->mutable_outputs())[name]);
  }
  for (const auto& [name, value] : signature.defaults) {
    TensorToProto(value, &(*def->mutable_defaults())[name]);
  }
}

}  // namespace millrace
