// SPDX-License-Identifier: Apache-2.0
// `millrace model`: SavedModels looked into, asked and served.
#ifndef TOOLS_MILLRACE_MODEL_COMMAND_H_
#define TOOLS_MILLRACE_MODEL_COMMAND_H_

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "millrace/saved_model.h"

namespace CLI {
class App;
}

namespace millrace {

void AddModelCommand(CLI::App* app, std::function<int()>* chosen);

struct ModelFlags {
  std::string directory;
  std::vector<std::string> tags{kServeTag};
  bool as_json = false;
  std::string signature = kServingDefault;  // run
  std::vector<std::string> inputs;          // run: NAME=JSON, NAME=FILE.npy or NAME=FILE.json
  std::string name;                         // serve
  std::string host = "127.0.0.1";
  int port = 8500;
  int http_port = -1;
  int64_t max_batch_rows = 64;
  int steps_at_once = 1;
  bool insecure = false;
  Credentials credentials;
};

// Each sets `*text` to what is to be printed.
Status ModelShow(const ModelFlags& flags, std::string* text);
Status ModelRun(const ModelFlags& flags, std::string* text);
// Until SIGTERM or SIGINT.
Status ModelServe(const ModelFlags& flags, std::string* text);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_MODEL_COMMAND_H_
