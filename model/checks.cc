// SPDX-License-Identifier: Apache-2.0
// What is wrong with a call, in words of who made it.
#include <cmath>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "model/loops.h"

namespace millrace::model {

Status CheckAtLeastOne(std::string_view option, std::optional<int64_t> value) {
  if (!value || *value >= 1) return OkStatus();
  return errors::InvalidArgument(option, " must be at least 1, not ", *value);
}

Status CheckCompiled(const Steps& steps, std::string_view call) {
  if (steps.is_compiled()) return OkStatus();
  return errors::FailedPrecondition(
      call,
      " needs an optimizer, a loss and metrics: call Compile({.optimizer = \"adam\", .loss = "
      "\"mse\"}) on the model before");
}

namespace {

Status CheckClasses(const std::string& output, int64_t classes, const Tensor& y) {
  const auto check = [&](const auto* labels) -> Status {
    for (int64_t i = 0; i < y.num_elements(); ++i) {
      const double label = static_cast<double>(labels[i]);
      if (label >= 0 && label < static_cast<double>(classes)) continue;
      return errors::InvalidArgument(
          "label ", label, " of sample ", i / (y.num_elements() / y.dim(0)),
          output.empty() ? "" : StrCat(" for output '", output, "'"),
          " is no class: the model predicts ", classes, " classes, so that labels are 0 to ",
          classes - 1, "; give the last layer more units, or correct y");
    }
    return OkStatus();
  };
  switch (y.dtype()) {
    case kInt32:
      return check(y.data<int32_t>());
    case kInt64:
      return check(y.data<int64_t>());
    case kInt8:
      return check(y.data<int8_t>());
    case kInt16:
      return check(y.data<int16_t>());
    case kUint8:
      return check(y.data<uint8_t>());
    case kUint16:
      return check(y.data<uint16_t>());
    case kFloat:
      return check(y.data<float>());
    case kDouble:
      return check(y.data<double>());
    default:
      return OkStatus();
  }
}

}  // namespace

Status CheckLabels(const Steps& steps, std::span<const Tensor> y) {
  for (std::size_t i = 0; i < y.size(); ++i) {
    const int64_t classes = steps.num_classes(i);
    if (classes < 0 || !steps.checks_labels(i)) continue;
    MR_RETURN_IF_ERROR(CheckClasses(steps.output_names()[i], classes, y[i]));
  }
  return OkStatus();
}

namespace {

// Of what the check of weights says, the row of the first that is wrong; -1 if it says none, as a
// device does.
int64_t BadRow(std::string_view message) {
  constexpr std::string_view kPlace = "the first at [";
  const std::size_t at = message.find(kPlace, message.find(kBadWeight));
  if (at == std::string_view::npos) return -1;
  message.remove_prefix(at + kPlace.size());
  int64_t row = -1;
  return ParseInt64(message.substr(0, message.find_first_of(",]")), &row) ? row : -1;
}

}  // namespace

Status ExplainFailure(const Steps& steps, const Status& status) {
  if (!errors::IsInvalidArgument(status)) return status;
  if (Message(status).find(kBadWeight) != std::string_view::npos) {
    const int64_t row = BadRow(Message(status));
    const std::string place = row < 0 ? "" : StrCat("; it is that of row ", row, " of the batch");
    return Annotate(status, StrCat(place, "; correct what makes the weights, or leave such rows ",
                                   "out with Filter before Batch"));
  }
  if (steps.output_names().size() != 1) return status;
  const int64_t classes = steps.num_classes(0);
  if (classes < 0 || Message(status).find("label") == std::string_view::npos) return status;
  return Annotate(
      status, StrCat("; the model predicts ", classes, " classes: labels are 0 to ", classes - 1));
}

}  // namespace millrace::model
