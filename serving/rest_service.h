// SPDX-License-Identifier: Apache-2.0
// TensorFlow Serving's REST interface of a served model, version 1, as far as models are asked:
//
//   POST /v1/models/NAME[/versions/V]:predict     {"instances": [...]} or {"inputs": ...}
//   GET  /v1/models/NAME[/versions/V]             the model's status
//   GET  /v1/models/NAME[/versions/V]/metadata    its signatures
#ifndef SERVING_REST_SERVICE_H_
#define SERVING_REST_SERVICE_H_

#include <functional>

#include "base/notification.h"
#include "observe/http_server.h"
#include "serving/served_model.h"

namespace millrace {

// The answer to one request. Errors are {"error": TEXT} with the HTTP status that corresponds to
// their code. Blocks until the model has answered, the deadline has passed or `stopping` says so,
// which is asked every 20 ms. Thread-safe.
HttpAnswer AnswerRest(ServedModel* model, const HttpRequest& request, Deadline deadline,
                      const std::function<bool()>& stopping);

}  // namespace millrace

#endif  // SERVING_REST_SERVICE_H_
