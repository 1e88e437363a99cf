// The version of these headers: semantic versioning, see CHANGELOG.md.
#ifndef MILLRACE_VERSION_H_
#define MILLRACE_VERSION_H_

#define MILLRACE_VERSION_MAJOR 0
#define MILLRACE_VERSION_MINOR 2
#define MILLRACE_VERSION_PATCH 0
#define MILLRACE_VERSION "0.2.0"

#endif  // MILLRACE_VERSION_H_
