// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/model_command.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "base/errors.h"
#include "tools/millrace/credential_flags.h"
#include "tools/millrace/offline.h"

namespace millrace {
namespace {

using ModelFunction = Status (*)(const ModelFlags&, std::string*);

int RunModel(const char* name, ModelFunction function, const ModelFlags& flags) {
  std::string text;
  const std::string command = StrCat("model ", name);
  if (const Status status = function(flags, &text); !status.ok()) {
    const bool is_input = errors::IsInvalidArgument(status) || errors::IsNotFound(status);
    return Complain(command, status, is_input ? kWrongInput : kImpossible);
  }
  return Write(command, "", text);
}

CLI::App* Add(CLI::App* model, const char* name, const char* what, ModelFunction function,
              const std::shared_ptr<ModelFlags>& flags, std::function<int()>* chosen) {
  CLI::App* const command = AddCommand(
      model, name, what, [name, function, flags] { return RunModel(name, function, *flags); },
      chosen);
  command->add_option("directory", flags->directory, "the directory of a SavedModel")->required();
  return command;
}

void AddTags(CLI::App* command, ModelFlags* flags) {
  command->add_option("--tags", flags->tags, "of the graph, with commas between")
      ->delimiter(',')
      ->capture_default_str();
}

}  // namespace

void AddModelCommand(CLI::App* app, std::function<int()>* chosen) {
  CLI::App* const model = app->add_subcommand("model", "look into SavedModels, ask and serve them");
  model->require_subcommand(1);
  const auto flags = std::make_shared<ModelFlags>();
  CLI::App* command =
      Add(model, "show", "graphs, signatures, and ops that are missing", ModelShow, flags, chosen);
  command->add_flag("--json", flags->as_json, "for programs");
  command = Add(model, "run", "compute a signature; the outputs as JSON", ModelRun, flags, chosen);
  AddTags(command, flags.get());
  command->add_option("--signature", flags->signature)->capture_default_str();
  command
      ->add_option("--input", flags->inputs,
                   "NAME=FILE.npy, NAME=FILE.json or NAME=JSON; again for others")
      ->allow_extra_args(false);
  command = Add(model, "serve", "answer the calls of TensorFlow Serving's clients until a signal",
                ModelServe, flags, chosen);
  AddTags(command, flags.get());
  command->add_option("--name", flags->name, "by which clients ask (default: the directory's)");
  command->add_option("--host", flags->host, "address to listen on")->capture_default_str();
  command->add_option("--port", flags->port, "for gRPC; 0: any that is free")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--http_port", flags->http_port, "for the REST interface; 0: any, -1: none")
      ->check(CLI::Range(-1, 65535))
      ->capture_default_str();
  command
      ->add_option("--max_batch_rows", flags->max_batch_rows,
                   "rows of calls that go through one step together; 1: none do")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--steps_at_once", flags->steps_at_once, "steps that run beside each other")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  AddCredentialFlags(command, &flags->credentials,
                     "PEM file with the certificate that is shown to callers, who need one, too",
                     "file (mode 0600) with a secret that every caller must know");
  command->add_flag("--insecure", flags->insecure,
                    "allow an address that is not loopback without any of these");
}

}  // namespace millrace
