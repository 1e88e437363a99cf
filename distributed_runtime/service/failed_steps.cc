// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/service/failed_steps.h"

#include <string>

#include "base/calls/line_budget.h"
#include "base/calls/request_text.h"
#include "base/engine_thread.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/strings.h"

namespace millrace {

void FailedSteps::Log(std::string_view method, std::string_view of, int64_t request_id,
                      const Status& why, std::string_view by) {
  if (why.ok() || errors::IsOutOfRange(why) || errors::IsCancelled(why)) return;
  int64_t left_out = 0;
  if (!budget_.Take(&left_out)) return;
  const LogRequest named(request_id);
  MR_LOG(kInfo, method, " of ", InOneLine(of, 200), " failed", RequestText(request_id), ": ",
         InOneLine(Message(why), 1000), by.empty() ? "" : "; called by ", InOneLine(by, 400),
         left_out == 0 ? "" : StrCat(" (", left_out, " before it were not logged)"));
}

}  // namespace millrace
