// SPDX-License-Identifier: Apache-2.0
// Variables in files: counts to three, saves, and a session that knows nothing goes on from there.
// save_and_restore [DIRECTORY]
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "millrace/core.h"
#include "millrace/saver.h"

namespace mr = millrace;

mr::Status SaveAndRestore(const std::string& directory) {
  mr::Graph graph;
  const mr::Scope root = graph.root();
  const mr::Variable count = mr::MakeVariable(root, "count", mr::Zeros(root, {}));
  const mr::Operation add = mr::AssignAdd(root, count, 1.0f);
  const mr::Operation init = mr::InitializeVariables(root);
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<mr::Saver> saver, mr::Saver::Create(graph));

  std::string saved;
  {
    MR_ASSIGN_OR_RETURN(mr::Session session, mr::Session::Create(graph));
    MR_RETURN_IF_ERROR(session.RunTargets({init}));
    for (int i = 0; i < 3; ++i) MR_RETURN_IF_ERROR(session.RunTargets({add}));
    MR_ASSIGN_OR_RETURN(saved, saver->Save(session, directory + "/model", {.global_step = 3}));
    std::printf("counted to 3, saved as %s\n", saved.c_str());
  }
  // Variables of a session of this process go with it: this one has none yet.
  MR_ASSIGN_OR_RETURN(mr::Session session, mr::Session::Create(graph));
  MR_RETURN_IF_ERROR(saver->Restore(session, saved));
  MR_RETURN_IF_ERROR(session.RunTargets({add}));
  MR_ASSIGN_OR_RETURN(const mr::Tensor value, session.Eval(count.read));
  std::printf("restored, and counted to %g\n", value.scalar<float>());
  return value.scalar<float>() == 4
             ? mr::OkStatus()
             : mr::Status(mr::StatusCode::kInternal, "that is not what was saved");
}

int main(int argc, char** argv) {
  const std::string directory =
      argc > 1 ? argv[1] : (std::filesystem::temp_directory_path() / "millrace_counter").string();
  const mr::Status status = SaveAndRestore(directory);
  if (!status.ok()) std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
