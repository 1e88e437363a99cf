// Work that may wait for a long time on behalf of a device: walks of data sets that call
// functions, buffers that are filled ahead.
#ifndef KERNELS_BACKGROUND_H_
#define KERNELS_BACKGROUND_H_

#include <functional>

#include "device/device.h"

namespace millrace {

// Runs `work` on a thread of its own, so that what waits for each other cannot run out of threads.
// Threads are used again, and leave when many are idle. Thread-safe.
void RunInBackground(const Device* device, std::function<void()> work);

// Blocks until all work for the device, and for others of its incarnation, has ended and its
// functions are destroyed: somebody must have told it to. Before the device and the threads of its
// task go. Not from within such work.
void WaitForBackground(const Device* device);

}  // namespace millrace

#endif  // KERNELS_BACKGROUND_H_
