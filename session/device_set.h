// SPDX-License-Identifier: Apache-2.0
// The devices of a task as its worker wants them.
#ifndef SESSION_DEVICE_SET_H_
#define SESSION_DEVICE_SET_H_

#include <memory>

#include "device/device_factory.h"
#include "millrace/status.h"
#include "session/worker_env.h"

namespace millrace {

// With resources of their own; see TaskDevices::MakeDevices.
StatusOr<std::unique_ptr<DeviceSet>> MakeDeviceSet(const TaskDevices& devices,
                                                   ThreadPool* intra_op_pool);

}  // namespace millrace

#endif  // SESSION_DEVICE_SET_H_
