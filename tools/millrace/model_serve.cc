// SPDX-License-Identifier: Apache-2.0
// A SavedModel behind an address, until a signal.
#include <chrono>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "serving/model_server.h"
#include "tools/millrace/model_command.h"
#include "tools/millrace/stop_signals.h"

namespace millrace {

Status ModelServe(const ModelFlags& flags, std::string* text) {
  StopSignals signals;

  ServedModelOptions options;
  options.directory = flags.directory;
  options.name = flags.name;
  options.load.tags = {flags.tags.begin(), flags.tags.end()};
  options.batching.max_rows = flags.max_batch_rows;
  options.batching.steps_at_once = flags.steps_at_once;
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<ServedModel> model, ServedModel::Load(options));
  ModelServer server(model.get(), {.host = flags.host,
                                   .grpc_port = flags.port,
                                   .http_port = flags.http_port,
                                   .credentials = flags.credentials,
                                   .insecure = flags.insecure});
  MR_RETURN_IF_ERROR(server.Start());
  MR_LOG(kInfo, "serving version ", model->version(), " of ", model->name(), " on grpc ",
         flags.host, ":", server.grpc_port(),
         server.http_port() < 0 ? "" : StrCat(" and http ", flags.host, ":", server.http_port()));
  signals.Wait();
  server.Stop(std::chrono::seconds(10));
  text->clear();
  return OkStatus();
}

}  // namespace millrace
