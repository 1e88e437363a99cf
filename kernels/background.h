// SPDX-License-Identifier: Apache-2.0
// Work that may wait for a long time on behalf of a device: walks of data sets that call
// functions, buffers that are filled ahead.
#ifndef KERNELS_BACKGROUND_H_
#define KERNELS_BACKGROUND_H_

#include <functional>

#include "device/device.h"
#include "kernels/kernel.h"

namespace millrace {

// How many threads this process has for such work at most, those that wait among them.
inline constexpr int kMostBackgroundThreads = 2048;

// Runs `work` on a thread of its own, so that what waits for each other waits for no thread.
// Threads are used again, and leave when many are idle. ResourceExhausted, and nothing runs, where
// there are too many or the system gives no more. What `work` throws is logged. Thread-safe.
Status RunInBackground(const Device* device, std::function<void()> work);

// The same for an asynchronous kernel: `done` is told what `compute` returns or throws, or that
// there is no thread for it.
void ComputeInBackground(const Device* device, DoneCallback done, std::function<Status()> compute);

// Blocks until all work for the device, and for others of its incarnation, has ended and its
// functions are destroyed: somebody must have told it to. Before the device and the threads of its
// task go. Not from within such work.
void WaitForBackground(const Device* device);

}  // namespace millrace

#endif  // KERNELS_BACKGROUND_H_
