// SPDX-License-Identifier: Apache-2.0
// Asking a signature that was prepared.
#include "base/errors.h"
#include "base/status_macros.h"
#include "millrace/saved_model.h"

namespace millrace {
namespace {

Status CheckValue(const std::string& name, const SignatureTensor& wanted, const Tensor& value) {
  if (value.IsInitialized() && value.dtype() == wanted.dtype &&
      wanted.shape.IsCompatibleWith(value.shape())) {
    return OkStatus();
  }
  return errors::InvalidArgument("input '", name, "' takes ", DataTypeName(wanted.dtype),
                                 wanted.shape.DebugString(), ", and gets ",
                                 DataTypeName(value.dtype()), value.shape().DebugString());
}

}  // namespace

StatusOr<std::vector<Tensor>> SignatureCall::InOrder(
    const std::map<std::string, Tensor>& inputs) const {
  std::vector<Tensor> values;
  for (const auto& [name, tensor] : signature_->inputs) {
    auto given = inputs.find(name);
    if (given == inputs.end()) {
      given = signature_->defaults.find(name);
      if (given == signature_->defaults.end()) {
        return errors::InvalidArgument("input '", name, "' is missing");
      }
    }
    MR_RETURN_IF_ERROR(CheckValue(name, tensor, given->second));
    values.push_back(given->second);
  }
  for (const auto& [name, value] : inputs) {
    if (signature_->inputs.contains(name)) continue;
    return errors::InvalidArgument("there is no input '", CEscape(name), "', but ",
                                   StrJoin(inputs_, ", "));
  }
  return values;
}

Status SignatureCall::Run(std::span<const Tensor> inputs, std::vector<Tensor>* outputs,
                          const RunOptions& options) const {
  return callable_.Run(inputs, outputs, options);
}

}  // namespace millrace
