// SPDX-License-Identifier: Apache-2.0
#include "base/errors.h"

namespace millrace {

Status WithMessage(const Status& status, std::string_view message) {
  if (status.ok()) return status;
  Status result = MakeStatus(status.code(), message);
  status.ForEachPayload([&result](std::string_view type_url, std::string_view payload) {
    result.SetPayload(type_url, payload);
  });
  return result;
}

Status Annotate(const Status& status, std::string_view text) {
  if (status.ok()) return status;
  return WithMessage(status, StrCat(Message(status), text));
}

Status MarkDerived(Status status) {
  if (!status.ok()) status.SetPayload(kDerivedPayload, "");
  return status;
}

bool IsDerived(const Status& status) { return status.GetPayload(kDerivedPayload).has_value(); }

}  // namespace millrace
