// SPDX-License-Identifier: Apache-2.0
// A program that writes checkpoints for others, and prints what it finds in theirs
// (tests/tf_compat/checkpoints.py).
//   saving_program write FOLDER     FOLDER/by_name, FOLDER/sharded, FOLDER/by_object,
//                                   FOLDER/limited with files of at most 8 bytes, and
//                                   FOLDER/in_parts with the kernel in two parts and its momentum
//   saving_program names FOLDER     restores FOLDER's newest checkpoint by names
//   saving_program objects FOLDER   and by objects, all of which must be there
//   saving_program parts FOLDER     the same of what in_parts has
#include <cstdio>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "millrace/checkpoint.h"
#include "millrace/checkpoint_layout.h"
#include "millrace/core.h"
#include "millrace/partitioners.h"
#include "millrace/saver.h"

namespace millrace {
namespace {

struct Program {
  Program() {
    const Scope root = graph.root();
    const auto variable = [&](const char* name, const Tensor& value, bool use_resource) {
      return MakeVariable(root, name, Constant(root.WithOpName(StrCat(name, "_init")), value),
                          {.use_resource = use_resource});
    };
    kernel = variable("kernel", Tensor::FromValues<float>({1, 2, 3, 4, 5, 6}, {2, 3}), false);
    bias = variable("bias", Tensor::FromValues<float>({7, 8, 9}), true);
    text = variable("text", Tensor::FromValues<std::string>({"red", "green"}), true);
    step = GlobalStep(root);
    init = InitializeVariables(root);
    step_is_5 = Assign(root, step, Tensor::Scalar<int64_t>(5));
  }

  Trackable Layer() const {
    Trackable layer;
    layer.Add("kernel", kernel).Add("bias", bias).Add("a/b.c", text);
    return layer;
  }

  Status Print(Session& session) {
    for (const Variable& v : {kernel, bias, text, step}) {
      MR_ASSIGN_OR_RETURN(const Tensor value, session.Eval(v.read));
      std::printf("%s %s\n", v.name().c_str(), value.DebugString(100).c_str());
    }
    return OkStatus();
  }

  Graph graph;
  Variable kernel, bias, text, step;
  Operation init, step_is_5;
};

// The kernel by its rows.
struct ProgramInParts {
  explicit ProgramInParts(float first) {
    const Scope root = graph.root();
    Tensor value(kFloat, Shape({2, 3}));
    for (int i = 0; i < 6; ++i) value.data<float>()[i] = first + static_cast<float>(i);
    kernel = MakeShardedVariable(root, "kernel", Constant(root, value), FixedShards(2));
    std::vector<Variable> parts;
    std::vector<GradientAndVariable> gradients;
    for (const VariablePart& part : kernel.parts) {
      parts.push_back(part.variable);
      gradients.push_back({part.variable.read, part.variable});
    }
    train = *momentum->ApplyGradients(root, gradients, nullptr);
    objects = {{"kernel", TrackableOf(kernel)}, {"optimizer", Trackable::Of(*momentum, parts)}};
    init = InitializeVariables(root);
  }

  Graph graph;
  ShardedVariable kernel;
  std::unique_ptr<Optimizer> momentum = Momentum({.learning_rate = 0.0f, .momentum = 0.5f});
  std::map<std::string, Trackable> objects;
  Operation init, train;
};

// After a step the momentum is what the kernel is.
Status WriteParts(const std::string& prefix) {
  ProgramInParts p(1);
  MR_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Create(p.graph, p.objects));
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(p.graph));
  MR_RETURN_IF_ERROR(session.RunTargets({p.init}));
  MR_RETURN_IF_ERROR(session.RunTargets({p.train}));
  return checkpoint->Save(session, prefix).status();
}

Status RestoreParts(const std::string& folder) {
  ProgramInParts p(0);
  MR_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Create(p.graph, p.objects));
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(p.graph));
  MR_ASSIGN_OR_RETURN(const LoadStatus status,
                      checkpoint->Restore(session, LatestCheckpoint(folder)));
  MR_RETURN_IF_ERROR(status.AssertConsumed());
  for (const Variable& v : Variables(p.graph)) {
    MR_ASSIGN_OR_RETURN(const Tensor value, session.Eval(v.read));
    std::printf("%s %s\n", v.name().c_str(), value.DebugString(100).c_str());
  }
  return OkStatus();
}

Status Write(const std::string& folder) {
  MR_RETURN_IF_ERROR(WriteParts(folder + "/in_parts/ckpt"));
  Program p;
  MR_ASSIGN_OR_RETURN(const auto saver, Saver::Create(p.graph));
  MR_ASSIGN_OR_RETURN(const auto sharded,
                      Saver::Create(p.graph, {.sharded = true, .save_relative_paths = true}));
  MR_ASSIGN_OR_RETURN(const auto checkpoint,
                      Checkpoint::Create(p.graph, {{"layer", p.Layer()}, {"step", p.step}}));
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(p.graph));
  MR_RETURN_IF_ERROR(session.RunTargets({p.init}));
  MR_RETURN_IF_ERROR(session.RunTargets({p.step_is_5}));
  for (int64_t step : {4, 5}) {
    const SaveOptions options{.global_step = step};
    MR_RETURN_IF_ERROR(saver->Save(session, folder + "/by_name/model.ckpt", options).status());
    MR_RETURN_IF_ERROR(sharded->Save(session, folder + "/sharded/model.ckpt", options).status());
  }
  MR_RETURN_IF_ERROR(checkpoint->Save(session, folder + "/by_object/ckpt").status());
  MR_RETURN_IF_ERROR(SetLayout(*checkpoint, {.max_file_bytes = 8}));
  return checkpoint->Write(session, folder + "/limited/ckpt-1");
}

Status RestoreNames(const std::string& folder) {
  Program p;
  MR_ASSIGN_OR_RETURN(const auto saver, Saver::Create(p.graph));
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(p.graph));
  MR_RETURN_IF_ERROR(saver->Restore(session, LatestCheckpoint(folder)));
  return p.Print(session);
}

Status RestoreObjects(const std::string& folder) {
  Program p;
  MR_ASSIGN_OR_RETURN(const auto checkpoint,
                      Checkpoint::Create(p.graph, {{"layer", p.Layer()}, {"step", p.step}}));
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(p.graph));
  MR_ASSIGN_OR_RETURN(const LoadStatus status,
                      checkpoint->Restore(session, LatestCheckpoint(folder)));
  MR_RETURN_IF_ERROR(status.AssertConsumed());
  return p.Print(session);
}

int Main(const std::string& what, const std::string& folder) {
  const Status status = what == "write"     ? Write(folder)
                        : what == "names"   ? RestoreNames(folder)
                        : what == "objects" ? RestoreObjects(folder)
                        : what == "parts"   ? RestoreParts(folder)
                                            : errors::InvalidArgument("no such command: ", what);
  if (status.ok()) return 0;
  std::fprintf(stderr, "saving_program: %s\n", std::string(Message(status)).c_str());
  return 1;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  return argc == 3 ? millrace::Main(argv[1], argv[2]) : millrace::Main("", "");
}
