// SPDX-License-Identifier: Apache-2.0
// Statuses by code, their messages put together from pieces, and the marks that travel
// with them. A message starts in lower case and says what, where, what was expected and
// what to do next.
#ifndef BASE_ERRORS_H_
#define BASE_ERRORS_H_

#include <string>
#include <string_view>

#include "base/strings.h"
#include "millrace/status.h"

namespace millrace {

inline Status MakeStatus(StatusCode code, std::string_view message) {
  return Status(code, message);
}
// The message, valid as long as the status.
inline std::string_view Message(const Status& status) { return status.message(); }
// The same code and payloads with another message.
Status WithMessage(const Status& status, std::string_view message);
// Appends `text` to the message, keeping code and payloads.
Status Annotate(const Status& status, std::string_view text);

// A derived error only reports that something else failed first: an aggregation drops it
// if any error that is not derived exists. Carried as a payload, as TensorFlow does.
inline constexpr char kDerivedPayload[] = "type.googleapis.com/tensorflow.DerivedStatus";
inline constexpr char kWorkerRestartedPayload[] =
    "type.googleapis.com/tensorflow.distributed_runtime.WorkerPossiblyRestarted";
Status MarkDerived(Status status);
bool IsDerived(const Status& status);

namespace errors {

#define MR_ERROR_MAKER(Name, Code)                        \
  template <typename... Args>                             \
  Status Name(const Args&... args) {                      \
    return MakeStatus(StatusCode::Code, StrCat(args...)); \
  }                                                       \
  inline bool Is##Name(const Status& status) { return status.code() == StatusCode::Code; }
MR_ERROR_MAKER(Cancelled, kCancelled)
MR_ERROR_MAKER(Unknown, kUnknown)
MR_ERROR_MAKER(InvalidArgument, kInvalidArgument)
MR_ERROR_MAKER(DeadlineExceeded, kDeadlineExceeded)
MR_ERROR_MAKER(NotFound, kNotFound)
MR_ERROR_MAKER(AlreadyExists, kAlreadyExists)
MR_ERROR_MAKER(PermissionDenied, kPermissionDenied)
MR_ERROR_MAKER(ResourceExhausted, kResourceExhausted)
MR_ERROR_MAKER(FailedPrecondition, kFailedPrecondition)
MR_ERROR_MAKER(Aborted, kAborted)
MR_ERROR_MAKER(OutOfRange, kOutOfRange)
MR_ERROR_MAKER(Unimplemented, kUnimplemented)
MR_ERROR_MAKER(Internal, kInternal)
MR_ERROR_MAKER(Unavailable, kUnavailable)
MR_ERROR_MAKER(DataLoss, kDataLoss)
#undef MR_ERROR_MAKER

}  // namespace errors
}  // namespace millrace

#endif  // BASE_ERRORS_H_
