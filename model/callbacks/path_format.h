// SPDX-License-Identifier: Apache-2.0
// Names of files with places for numbers, as Python's format has them.
#ifndef MODEL_CALLBACKS_PATH_FORMAT_H_
#define MODEL_CALLBACKS_PATH_FORMAT_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "millrace/history.h"
#include "millrace/status.h"

namespace millrace::model {

// "run/{epoch:02d}-{val_loss:.2f}" -> "run/03-0.25". A place is {name} or {name:spec}, a spec
// [0][width][.precision][d, f, e or g]; whole numbers are those of `counts`, all others those of
// `logs`. "{{" and "}}" are braces. InvalidArgument with the path and what is wrong with it.
StatusOr<std::string> FormatPath(std::string_view path,
                                 const std::map<std::string, int64_t>& counts, const Logs& logs);

// Where a worker keeps its own beside the chief's, worker 0's: "run/03" of worker 1 is
// "run/workertemp_1/03".
std::string PathOfWorker(const std::string& chiefs, int worker);

}  // namespace millrace::model

#endif  // MODEL_CALLBACKS_PATH_FORMAT_H_
