// SPDX-License-Identifier: Apache-2.0
#include "kernels/nn/epilogue.h"

#include "base/errors.h"
#include "base/strings.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/isa.h"
#include "kernels/nn/bias_plan.h"

namespace millrace {
namespace {

template <typename T>
struct AddBiasRow {
  static MR_ALWAYS_INLINE void Run(void* row_ptr, const void* bias_ptr, int64_t columns) {
    T* row = static_cast<T*>(row_ptr);
    const T* bias = static_cast<const T*>(bias_ptr);
    using C = ComputeType<T>;
    MR_IVDEP
    for (int64_t i = 0; i < columns; ++i) {
      row[i] = static_cast<T>(static_cast<C>(row[i]) + static_cast<C>(bias[i]));
    }
  }
};

}  // namespace

Epilogue::Epilogue(KernelConstruction& c)
    : type_(BaseType(c.output_types()[0])),
      nodes_(c.attrs().GetOr<std::vector<std::string>>("nodes", {})),
      name_(c.name()) {
  const auto activation = c.attr<std::string>("activation");
  const bool known = DispatchType(FloatTypes(), type_,
                                  [&]<typename T>() { add_bias_ = LoopFor<AddBiasRow<T>, T>(); });
  if (!known) {
    c.SetError(errors::Unimplemented("no bias for ", DataTypeName(type_)));
  } else if (!activation.empty()) {
    activate_ = ActivationLoop(activation, type_);
    if (activate_ == nullptr) {
      c.SetError(errors::Unimplemented("no activation '", activation, "'"));
    }
  }
}

Status Epilogue::Check(const Tensor& bias, int64_t columns) const {
  if (bias.rank() == 1 && bias.dim(0) == columns) return OkStatus();
  const std::string who =
      nodes_.size() > 1 ? StrCat("{{node ", nodes_[1], "}} (part of ", name_, "): ") : "";
  return CheckColumnBiases(bias.shape(), columns, who);
}

Status Epilogue::OfProduct(Status status) const {
  if (status.ok() || nodes_.empty()) return status;
  return WithMessage(status,
                     StrCat("{{node ", nodes_[0], "}} (part of ", name_, "): ", Message(status)));
}

void Epilogue::Apply(void* data, int64_t rows, int64_t columns, int64_t stride,
                     const void* bias) const {
  const int64_t step = stride * static_cast<int64_t>(DataTypeSize(type_));
  char* row = static_cast<char*>(data);
  for (int64_t i = 0; i < rows; ++i, row += step) {
    add_bias_(row, bias, columns);
    if (activate_ != nullptr) activate_(row, row, columns);
  }
}

}  // namespace millrace
