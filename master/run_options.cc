// SPDX-License-Identifier: Apache-2.0
#include "master/run_options.h"

#include "base/errors.h"
#include "base/status_macros.h"
#include "session/inter_op_pools.h"

namespace millrace {

Status CheckRunOptions(const pb::RunOptions& options, const pb::ConfigProto& session,
                       const WorkerEnv& task) {
  if (options.output_partition_graphs() &&
      session.experimental().disable_output_partition_graphs()) {
    return errors::InvalidArgument(
        "RunOptions.output_partition_graphs() is not supported when "
        "disable_output_partition_graphs is true.");
  }
  MR_RETURN_IF_ERROR(CheckInterOpPool(task, options.inter_op_thread_pool()));
  // A watch that names no place to write to has nothing to show: hooks of clients send such.
  for (const pb::DebugTensorWatch& watch : options.debug_options().debug_tensor_watch_opts()) {
    if (watch.debug_urls_size() == 0) continue;
    return errors::Unimplemented(
        "RunOptions.debug_options: the watch of ", watch.node_name(), ":", watch.output_slot(),
        " is to be written to ", watch.debug_urls(0),
        ", and tensors are written nowhere: fetch it, or leave debug_urls out");
  }
  return OkStatus();
}

}  // namespace millrace
