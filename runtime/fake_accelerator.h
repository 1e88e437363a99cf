// SPDX-License-Identifier: Apache-2.0
// The simulated accelerator (device/fake) for programs that ask for it: tests, and tools that try
// what an accelerator would do where there is none. No other program has its devices or kernels.
#ifndef RUNTIME_FAKE_ACCELERATOR_H_
#define RUNTIME_FAKE_ACCELERATOR_H_

namespace millrace {

// Adds devices "FAKE", of which a session's device_count says how many it has (0), and kernels for
// them. As AddDeviceType (runtime/registries.h); does nothing the second time. Thread-safe beside
// itself.
void UseFakeAccelerator();

}  // namespace millrace

#endif  // RUNTIME_FAKE_ACCELERATOR_H_
