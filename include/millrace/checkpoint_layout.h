// SPDX-License-Identifier: Apache-2.0
// Into which files a Checkpoint (millrace/checkpoint.h) writes, and who does it.
#ifndef MILLRACE_CHECKPOINT_LAYOUT_H_
#define MILLRACE_CHECKPOINT_LAYOUT_H_

#include <cstdint>
#include <string>

#include "millrace/status.h"

namespace millrace {

class Checkpoint;

// How big the files of a checkpoint are and which task writes them; as it is here, each task writes
// one.
struct CheckpointLayout {
  // A data file has at most so many bytes of tensors; 0: one file for each task. Tensors that are
  // bigger are cut into slices, along the axis that needs the fewest; where one element is bigger
  // still, it has a file of its own, and a line in the log says so. Texts, whose size is not known
  // before, count nothing. Readers, TensorFlow's too, put slices together again.
  int64_t max_file_bytes = 0;
  // The device that writes and reads all files, such as "/job:worker/task:0/device:CPU:0", where
  // not every task sees the file system. "": each task writes and reads what lives on it.
  std::string io_device{};
};

// For saves and restores of `checkpoint` from now on, asynchronous ones too. InvalidArgument for a
// negative size or a device that cannot be, Unimplemented (at the next save) if a size is given and
// the shape of a variable is not known before it has a value.
Status SetLayout(Checkpoint& checkpoint, const CheckpointLayout& layout);

// Where a worker writes what belongs at a prefix, in a program that every worker of a cluster runs
// and in which all save alike: the chief writes there, and the others, whose files would be the
// same, to DIRECTORY/workertemp_<worker>/, which goes with this object, whether the save has
// succeeded or not. So nobody has to ask who it is, and no two write the same files. The chief may
// save alone. (Model::SaveWeights and ModelCheckpoint do this by themselves.)
//
//   const WorkerPrefix own(strategy->is_chief(), rank, "/data/run/model.ckpt");
//   MR_RETURN_IF_ERROR(saver->Save(session, own.path(), {.write_state = own.is_real()}).status());
class WorkerPrefix {
 public:
  // `worker`: another number for each.
  WorkerPrefix(bool is_chief, int worker, const std::string& prefix);
  ~WorkerPrefix();
  WorkerPrefix(const WorkerPrefix&) = delete;
  WorkerPrefix& operator=(const WorkerPrefix&) = delete;

  // The prefix that this worker saves to: the given one, or one in its own folder.
  const std::string& path() const { return path_; }
  // Whether what is written stays.
  bool is_real() const { return temporary_.empty(); }

 private:
  std::string path_;
  std::string temporary_;  // the folder that goes; "": none
};

}  // namespace millrace

#endif  // MILLRACE_CHECKPOINT_LAYOUT_H_
