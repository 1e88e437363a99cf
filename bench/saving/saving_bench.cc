// One round of saving and restoring a gigabyte of variables, and of copying as many bytes to a
// file, in seconds and on one line of JSON. compare.py runs it in turns with TensorFlow.
#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/checkpoint.h"
#include "millrace/core.h"
#include "millrace/saver.h"

namespace mr = millrace;

namespace {

double Seconds(const std::function<mr::Status()>& run, mr::Status* status) {
  const auto begin = std::chrono::steady_clock::now();
  status->Update(run());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What any program could do at best: the same bytes through write(2).
mr::Status Copy(const std::string& path, const mr::Tensor& tensor, int64_t times, bool sync) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd < 0) return mr::errors::Unavailable("cannot write ", path);
  bool good = true;
  for (int64_t i = 0; good && i < times; ++i) {
    const char* from = static_cast<const char*>(tensor.raw_data());
    for (std::size_t left = tensor.num_bytes(); good && left > 0;) {
      const ssize_t n = ::write(fd, from, left);
      good = n > 0;
      from += n;
      left -= static_cast<std::size_t>(n);
    }
  }
  if (good && sync) good = ::fsync(fd) == 0;
  ::close(fd);
  std::filesystem::remove(path);
  return good ? mr::OkStatus() : mr::errors::Unavailable("cannot write ", path);
}

mr::Status Run(const std::string& folder, int64_t mebibytes, int64_t tensors) {
  std::filesystem::create_directories(folder);
  const int64_t elements = mebibytes * (int64_t{1} << 20) / 4 / tensors;
  mr::Tensor value(mr::kFloat, mr::Shape({elements}));
  for (int64_t i = 0; i < elements; ++i) value.data<float>()[i] = static_cast<float>(i % 1000);
  mr::Graph graph;
  const mr::Scope root = graph.root();
  const mr::Output fill = mr::ops::Fill(root, mr::Tensor::FromValues<int64_t>({elements}, {1}),
                                        mr::Tensor::Scalar(0.5f));
  std::map<std::string, mr::Trackable> objects;
  for (int64_t i = 0; i < tensors; ++i) {
    const std::string name = mr::StrCat("v", i);
    objects.emplace(name, mr::MakeVariable(root, name, fill));
  }
  MR_ASSIGN_OR_RETURN(const auto saver, mr::Saver::Create(graph, {.max_to_keep = 1}));
  MR_ASSIGN_OR_RETURN(const auto checkpoint, mr::Checkpoint::Create(graph, objects));
  const mr::Operation init = mr::InitializeVariables(root);
  MR_ASSIGN_OR_RETURN(mr::Session session, mr::Session::Create(graph));
  MR_RETURN_IF_ERROR(session.RunTargets({init}));
  mr::Status status;
  const double copy =
      Seconds([&] { return Copy(folder + "/copy", value, tensors, false); }, &status);
  const double copy_sync =
      Seconds([&] { return Copy(folder + "/copy", value, tensors, true); }, &status);
  const double save = Seconds(
      [&] { return saver->Save(session, folder + "/s", {.global_step = 1}).status(); }, &status);
  const double restore = Seconds([&] { return saver->Restore(session, folder + "/s-1"); }, &status);
  std::filesystem::remove_all(folder);
  const double aside =
      Seconds([&] { return checkpoint->SaveAsync(session, folder + "/a").status(); }, &status);
  const double aside_rest = Seconds([&] { return checkpoint->Sync(); }, &status);
  std::filesystem::remove_all(folder);
  std::printf(
      "{\"copy\": %.3f, \"copy_fsync\": %.3f, \"save\": %.3f, \"restore\": %.3f, "
      "\"aside_blocks\": %.3f, \"aside_writes\": %.3f}\n",
      copy, copy_sync, save, restore, aside, aside_rest);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder = "/dev/shm/saving_bench";
  int64_t mebibytes = 1024, tensors = 100;
  CLI::App app("Times of saving and restoring");
  app.add_option("--folder", folder, "made, and deleted")->capture_default_str();
  app.add_option("--mebibytes", mebibytes)->capture_default_str();
  app.add_option("--tensors", tensors)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const mr::Status status = Run(folder, mebibytes, tensors);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
