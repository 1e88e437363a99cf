// SPDX-License-Identifier: Apache-2.0
// The pages about the graphs of a task's sessions.
#ifndef RUNTIME_GRAPH_PAGES_H_
#define RUNTIME_GRAPH_PAGES_H_

#include "master/master.h"
#include "observe/page.h"

namespace millrace {

// "/graphz", the list of sessions, and "/placementz?session=H", a session's graph with the placer's
// reasons. `master` must be there until the table is closed.
void AddGraphPages(const Master* master, PageTable* pages);

}  // namespace millrace

#endif  // RUNTIME_GRAPH_PAGES_H_
