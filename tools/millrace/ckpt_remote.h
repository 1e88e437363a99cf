// SPDX-License-Identifier: Apache-2.0
// Checkpoints that only a server sees: "grpc://host:port/dir/model.ckpt-200".
#ifndef TOOLS_MILLRACE_CKPT_REMOTE_H_
#define TOOLS_MILLRACE_CKPT_REMOTE_H_

#include <memory>
#include <string>
#include <string_view>

#include "millrace/status.h"

namespace millrace {

bool IsRemotePrefix(std::string_view prefix);

// A copy of a server's checkpoint, which goes with this object.
class FetchedCheckpoint {
 public:
  // Of the index and, if it is asked for, of the data files, read by the server, within its
  // --file_root. A directory stands for the checkpoint that its state file names. NotFound if there
  // is none, PermissionDenied outside of the root, DataLoss for an index that is damaged.
  static StatusOr<std::unique_ptr<FetchedCheckpoint>> Fetch(const std::string& prefix,
                                                            bool with_data);
  ~FetchedCheckpoint();
  FetchedCheckpoint(const FetchedCheckpoint&) = delete;
  FetchedCheckpoint& operator=(const FetchedCheckpoint&) = delete;

  const std::string& remote() const { return remote_; }  // with the server
  const std::string& local() const { return local_; }    // the prefix of the copy

 private:
  FetchedCheckpoint() = default;

  std::string folder_, remote_, local_;
};

}  // namespace millrace

#endif  // TOOLS_MILLRACE_CKPT_REMOTE_H_
