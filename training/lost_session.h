// Which errors another session may cure.
#ifndef TRAINING_LOST_SESSION_H_
#define TRAINING_LOST_SESSION_H_

#include "millrace/status.h"

namespace millrace {

// A task is gone, silent, new or has dropped the session: another session may work.
bool SessionIsLost(const Status& status);

}  // namespace millrace

#endif  // TRAINING_LOST_SESSION_H_
