// SPDX-License-Identifier: Apache-2.0
// The version of these headers: semantic versioning, see CHANGELOG.md.
#ifndef MILLRACE_VERSION_H_
#define MILLRACE_VERSION_H_

// While it is 0, a minor version may change the C++ API.
#define MILLRACE_VERSION_MAJOR 0
// Raised by additions.
#define MILLRACE_VERSION_MINOR 2
// Raised by corrections.
#define MILLRACE_VERSION_PATCH 0
// All three, as `millrace --version` says them.
#define MILLRACE_VERSION "0.2.0"

#endif  // MILLRACE_VERSION_H_
