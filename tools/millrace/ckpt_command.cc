// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/ckpt_command.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/filesystem.h"
#include "tools/millrace/offline.h"

namespace millrace {
namespace {

using CkptFunction = Status (*)(const CkptFlags&, std::string*, int*);

int RunCkpt(const char* name, CkptFunction function, const CkptFlags& flags) {
  std::string text;
  int code = kDone;
  const std::string command = StrCat("ckpt ", name);
  if (const Status status = function(flags, &text, &code); !status.ok()) {
    return Complain(command, status, errors::IsDataLoss(status) ? kImpossible : kWrongInput);
  }
  const int written = Write(command, "", text);
  return written == kDone ? code : written;
}

CLI::App* Add(CLI::App* ckpt, const char* name, const char* what, CkptFunction function,
              const std::shared_ptr<CkptFlags>& flags, std::function<int()>* chosen, int least,
              int most) {
  CLI::App* const command = AddCommand(
      ckpt, name, what, [name, function, flags] { return RunCkpt(name, function, *flags); },
      chosen);
  command
      ->add_option("prefix", flags->prefixes,
                   "checkpoint, or a directory for its newest; grpc://host:port/PATH for a "
                   "server's")
      ->required()
      ->expected(least, most);
  command->add_flag("--json", flags->as_json, "for programs");
  return command;
}

void AddOutput(CLI::App* command, CkptFlags* flags) {
  command->add_option("-o,--output", flags->output, "prefix of the checkpoint to write")
      ->required();
}

}  // namespace

StatusOr<OpenCheckpoint> OpenPrefix(const std::string& prefix, bool with_data) {
  OpenCheckpoint open;
  if (IsRemotePrefix(prefix)) {
    MR_ASSIGN_OR_RETURN(open.copy, FetchedCheckpoint::Fetch(prefix, with_data));
    open.prefix = open.copy->remote();
    MR_ASSIGN_OR_RETURN(open.reader, CheckpointReader::Open(open.copy->local()));
    return open;
  }
  open.prefix = prefix;
  if (PosixFileSystem()->IsDirectory(prefix)) {
    open.prefix = LatestCheckpoint(prefix);
    if (open.prefix.empty()) {
      return errors::NotFound("there is no complete checkpoint in ", prefix);
    }
  }
  StatusOr<std::unique_ptr<CheckpointReader>> reader = CheckpointReader::Open(open.prefix);
  if (errors::IsNotFound(reader.status())) {
    return errors::NotFound("there is no checkpoint ", prefix, " (", prefix,
                            ".index is missing); give a prefix or a directory");
  }
  MR_ASSIGN_OR_RETURN(open.reader, std::move(reader));
  return open;
}

void AddCkptCommand(CLI::App* app, std::function<int()>* chosen) {
  CLI::App* const ckpt = app->add_subcommand("ckpt", "look into checkpoints, and make new ones");
  ckpt->require_subcommand(1);
  const auto flags = std::make_shared<CkptFlags>();
  constexpr int kMany = 1000;
  Add(ckpt, "list", "the tensors: name, type, shape, bytes, files", CkptList, flags, chosen, 1,
      kMany);
  CLI::App* command = Add(ckpt, "show", "values, with their least, greatest and mean", CkptShow,
                          flags, chosen, 1, 1);
  command->add_option("--tensor", flags->tensor, "only this one");
  command->add_option("--values", flags->values, "so many of each")->capture_default_str();
  Add(ckpt, "verify", "read everything and check every checksum; exits with 1 if one is wrong",
      CkptVerify, flags, chosen, 1, kMany);
  command = Add(ckpt, "diff", "compare two, tensor by tensor; exits with 3 if they differ",
                CkptDiff, flags, chosen, 2, 2);
  command->add_option("--tolerance", flags->tolerance, "greatest difference that is none");
  command = Add(ckpt, "convert", "with other names or types", CkptConvert, flags, chosen, 1, 1);
  AddOutput(command, flags.get());
  command->add_option("--dtype", flags->dtype, "floating tensors become this type")
      ->check(CLI::IsMember({"float", "double", "half", "bfloat16"}));
  command->add_flag("--by_name", flags->by_name,
                    "a checkpoint of objects becomes one of names, for savers");
  command->add_flag("--by_object", flags->by_object,
                    "a checkpoint of names becomes one of objects: names are the ways to them, "
                    "layer/kernel, and layer/kernel/.OPTIMIZER_SLOT/optimizer/m for slots");
  command->add_option("--mapping", flags->mapping,
                      "file with a line old=new for each tensor that gets another name");
  command->add_option("--rename", flags->renames, "old=new; again for others")
      ->allow_extra_args(false);
  command = Add(ckpt, "reshard", "the same in another number of data files", CkptReshard, flags,
                chosen, 1, 1);
  AddOutput(command, flags.get());
  command->add_option("--files", flags->files, "data files")->check(CLI::Range(1, 99999));
  command = Add(ckpt, "merge", "the tensors of all in one; none may be in two", CkptMerge, flags,
                chosen, 2, kMany);
  AddOutput(command, flags.get());
  command = Add(ckpt, "average", "the means of floating tensors; others are the last one's",
                CkptAverage, flags, chosen, 1, kMany);
  AddOutput(command, flags.get());
}

}  // namespace millrace
