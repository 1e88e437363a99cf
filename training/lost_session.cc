#include "training/lost_session.h"

#include "base/errors.h"

namespace millrace {

bool SessionIsLost(const Status& status) {
  return errors::IsAborted(status) || errors::IsUnavailable(status) ||
         status.GetPayload(kWorkerRestartedPayload).has_value();
}

}  // namespace millrace
