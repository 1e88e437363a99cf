// SPDX-License-Identifier: Apache-2.0
// write_events DIRECTORY: events of every kind, as tests/tf_compat/read_events.py expects them.
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "millrace/millrace.h"
#include "millrace/summary.h"

namespace millrace {
namespace {

Status WriteGraphs(EventWriter& events) {
  Graph graph;
  const Scope root = graph.root();
  const Output in =
      ops::Const(root.Named("in").WithDevice("/cpu:0"), Tensor::Scalar<float>(2), kFloat);
  const Output out = ops::Mul(root.Named("out"), in, in);
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(graph, {.rewrite_graph = false}));
  RunMetadata run;
  MR_RETURN_IF_ERROR(
      session.Run({}, {out}, {}, RunOptions{.trace = true, .partition_graphs = true}, &run)
          .status());
  MR_RETURN_IF_ERROR(events.WriteGraph(graph, run));
  MR_RETURN_IF_ERROR(events.WriteRunMetadata("step 3", run, 3));
  return events.WriteKerasModel(
      R"({"class_name": "Sequential", "config": {"name": "model", "layers": [)"
      R"({"class_name": "Dense", "config": {"name": "hidden", "units": 2}},)"
      R"({"class_name": "Dense", "config": {"name": "out", "units": 1}}]}})");
}

Status WriteRun(const std::string& directory, double rate) {
  MR_ASSIGN_OR_RETURN(const auto events, EventWriter::Create(directory));
  const std::vector<std::pair<std::string, HParamValue>> hparams = {
      {"rate", rate}, {"units", 32}, {"optimizer", "adam"}, {"average", true}};
  MR_RETURN_IF_ERROR(events->WriteHParams(hparams, {.metrics = {{"loss"}}}));
  for (int step = 0; step < 5; ++step) {
    MR_RETURN_IF_ERROR(events->WriteScalar("loss", rate / (step + 1), step, "what *falls*"));
  }
  MR_RETURN_IF_ERROR(
      events->WriteHistogram("weights", Tensor::FromValues<float>({1, 2, 3, 4, 5}), 1, 4));
  Tensor images(kUint8, Shape({2, 3, 4, 3}));
  for (int i = 0; i < 72; ++i) images.data<uint8_t>()[i] = static_cast<uint8_t>(i);
  MR_RETURN_IF_ERROR(events->WriteImages("pictures", images, 2));
  MR_RETURN_IF_ERROR(events->WriteText("note", "**bold**", 0));
  MR_RETURN_IF_ERROR(events->WriteText(
      "table", Tensor::FromValues<std::string>({"a", "b", "c", "d"}, Shape({2, 2})), 0));
  MR_RETURN_IF_ERROR(WriteGraphs(*events));
  MR_RETURN_IF_ERROR(events->WriteHParamsEnd(true));
  return events->Close();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_events DIRECTORY\n";
    return 2;
  }
  for (const auto& [run, rate] : {std::pair("one", 0.5), std::pair("two", 0.25)}) {
    const millrace::Status status = millrace::WriteRun(millrace::StrCat(argv[1], "/", run), rate);
    if (!status.ok()) {
      std::cerr << "write_events: " << millrace::Message(status) << "\n";
      return 1;
    }
  }
  return 0;
}
