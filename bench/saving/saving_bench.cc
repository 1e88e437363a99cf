// SPDX-License-Identifier: Apache-2.0
// One round of saving and restoring a gigabyte of variables, and of copying as many bytes to a
// file, in seconds and on one line of JSON; with --steps also of training beside a save. compare.py
// runs it in turns with TensorFlow.
#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/checkpoint.h"
#include "millrace/core.h"
#include "millrace/saver.h"

namespace mr = millrace;

namespace {

// What something took: time, and how much of it all threads of this process computed, the system's
// work for them included. The second says more where the machine has other work to do.
struct Cost {
  double seconds = 0, cpu = 0;
};

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Cost CostOf(const std::function<mr::Status()>& run, mr::Status* status) {
  const double cpu = CpuSeconds();
  const auto begin = std::chrono::steady_clock::now();
  status->Update(run());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return {took.count(), CpuSeconds() - cpu};
}

using Costs = std::vector<std::pair<std::string, Cost>>;

void Print(const Costs& costs) {
  std::string line;
  for (const auto& [name, cost] : costs) {
    mr::StrAppend(&line, line.empty() ? "{" : ", ", "\"", name, "\": ", cost.seconds, ", \"", name,
                  "_cpu\": ", cost.cpu);
  }
  std::printf("%s}\n", line.c_str());
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

struct Sizes {
  std::string folder;
  int64_t mebibytes = 1024, tensors = 100, steps = 0, pairs = 5;
};

// Steps that compute, without a save and with one beside them, in turns; of the pairs the one whose
// ratio is in the middle. A single pair tells more of the machine than of the save.
void AddTraining(const Sizes& sizes, mr::Session& session, const mr::Operation& step,
                 mr::Checkpoint& checkpoint, Costs* costs, mr::Status* status) {
  const auto train = [&] {
    mr::Status trained;
    for (int64_t i = 0; i < sizes.steps; ++i) trained.Update(session.RunTargets({step}));
    return trained;
  };
  const auto train_aside = [&] {
    mr::Status both = checkpoint.SaveAsync(session, sizes.folder + "/t").status();
    both.Update(train());
    return both;
  };
  status->Update(train());  // warm
  std::vector<std::pair<Cost, Cost>> pairs;
  for (int64_t i = 0; i < sizes.pairs; ++i) {
    std::pair<Cost, Cost> pair;
    if (i % 2 == 0) pair.first = CostOf(train, status);
    pair.second = CostOf(train_aside, status);
    status->Update(checkpoint.Sync());
    if (i % 2 == 1) pair.first = CostOf(train, status);
    pairs.push_back(pair);
  }
  const auto middle = pairs.begin() + static_cast<std::ptrdiff_t>(pairs.size() / 2);
  std::nth_element(pairs.begin(), middle, pairs.end(), [](const auto& a, const auto& b) {
    return a.second.seconds * b.first.seconds < b.second.seconds * a.first.seconds;
  });
  costs->emplace_back("train", middle->first);
  costs->emplace_back("train_aside", middle->second);
}

mr::Status Run(const Sizes& sizes) {
  const std::string& folder = sizes.folder;
  std::filesystem::create_directories(folder);
  const int64_t elements = sizes.mebibytes * (int64_t{1} << 20) / 4 / sizes.tensors;
  mr::Tensor value(mr::kFloat, mr::Shape({elements}));
  for (int64_t i = 0; i < elements; ++i) value.data<float>()[i] = static_cast<float>(i % 1000);
  mr::Graph graph;
  const mr::Scope root = graph.root();
  const mr::Output fill = mr::ops::Fill(root, mr::Tensor::FromValues<int64_t>({elements}, {1}),
                                        mr::Tensor::Scalar(0.5f));
  std::map<std::string, mr::Trackable> objects;
  std::vector<mr::Operation> updates;
  for (int64_t i = 0; i < sizes.tensors; ++i) {
    const std::string name = mr::StrCat("v", i);
    const mr::Variable v = mr::MakeVariable(root, name, fill);
    updates.push_back(mr::AssignAdd(root, v, fill));
    objects.emplace(name, v);
  }
  MR_ASSIGN_OR_RETURN(const auto saver, mr::Saver::Create(graph, {.max_to_keep = 1}));
  MR_ASSIGN_OR_RETURN(const auto checkpoint, mr::Checkpoint::Create(graph, objects));
  const mr::Operation init = mr::InitializeVariables(root);
  const mr::Operation step = mr::Group(root, updates);
  MR_ASSIGN_OR_RETURN(mr::Session session, mr::Session::Create(graph));
  MR_RETURN_IF_ERROR(session.RunTargets({init}));
  mr::Status status;
  Costs costs;
  const auto add = [&](const char* name, const std::function<mr::Status()>& run) {
    costs.emplace_back(name, CostOf(run, &status));
  };
  const std::string copy = folder + "/copy";
  add("copy", [&] { return Copy(copy, value, sizes.tensors, false); });
  add("copy_fsync", [&] { return Copy(copy, value, sizes.tensors, true); });
  add("save", [&] { return saver->Save(session, folder + "/s", {.global_step = 1}).status(); });
  add("restore", [&] { return saver->Restore(session, folder + "/s-1"); });
  std::filesystem::remove_all(folder);
  add("aside_blocks", [&] { return checkpoint->SaveAsync(session, folder + "/a").status(); });
  add("aside_writes", [&] { return checkpoint->Sync(); });
  std::filesystem::remove_all(folder);
  if (sizes.steps > 0) AddTraining(sizes, session, step, *checkpoint, &costs, &status);
  std::filesystem::remove_all(folder);
  Print(costs);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  Sizes sizes{.folder = "/dev/shm/saving_bench"};
  CLI::App app("Times of saving and restoring");
  app.add_option("--folder", sizes.folder, "made, and deleted")->capture_default_str();
  app.add_option("--mebibytes", sizes.mebibytes)->capture_default_str();
  app.add_option("--tensors", sizes.tensors)->capture_default_str();
  app.add_option("--steps", sizes.steps, "that are timed beside a save; 0: none")
      ->capture_default_str();
  app.add_option("--pairs", sizes.pairs, "of --steps steps without and with a save")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const mr::Status status = Run(sizes);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
