// SPDX-License-Identifier: Apache-2.0
// Figures of a GPU, beside what the driver does by itself and beside torch in the same run.
//
//   gpu_bench [--only NAME]... [--rounds N] [--seconds S] [--peer COMMAND]... [--json FILE]
//
// A peer is a shell command (bench/gpu/torch_peer.py) that prints a line of JSON for each thing it
// times, {"name": "mlp.torch_eager", "value": milliseconds}; it is given --only and --seconds, and
// takes turns with us: ours, theirs, ours, theirs. Every figure is a median over the rounds. Exits
// with 0, also if a goal is missed; 1 if something could not be run; 3 without a GPU.
//
// --device CPU or FAKE with --small runs little graphs, to test the program itself.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "bench/executor/peer.h"
#include "bench/gpu/bare.h"
#include "bench/gpu/runner.h"
#include "bench/gpu/workloads.h"
#include "millrace/gpu.h"
#include "nlohmann/json.hpp"

namespace millrace::bench {
namespace {

constexpr int kNoGpu = 3;

struct Flags {
  std::vector<std::string> only, peers;
  int rounds = 3;
  double seconds = 1;
  std::string json, device = "GPU";
  bool small = false;
};

// What a time is held against: at most `most` of the other one.
struct Goal {
  const char* id;
  const char* workload;
  const char* other;  // "bare...": the driver's own; else a peer's
  double most;
};
constexpr Goal kGoals[] = {
    {"H1", "tiny_chain", "bare_graph", 1.05},
    {"H1", "tiny_chain", "torch_eager", 0.2},
    {"H2", "mlp", "torch_graph", 1.0},
    {"H2", "mlp", "torch_eager", 0.25},
    {"H2", "cnn", "torch_graph", 1.0},
    {"H2", "cnn", "torch_eager", 0.25},
    {"H3", "gemm_bf16", "torch_eager", 1 / 0.98},
    {"H3", "gemm_tf32", "torch_eager", 1 / 0.98},
    {"H3", "gemm_f32", "torch_eager", 1 / 0.98},
    {"H3", "gemm_batched", "torch_eager", 1 / 0.95},
    {"H4", "elementwise", "bare_copy", 1 / 0.92},
    {"H4", "elementwise", "torch_compile", 1.05},
    {"H5", "resnet50", "torch_eager", 1.0},
    {"H5", "resnet50", "torch_compile", 1 / 0.92},
};
constexpr double kMostHostMicroseconds = 20;  // H1
constexpr double kMostMemory = 1.03;          // H7, of torch's

class Bench {
 public:
  explicit Bench(Flags flags) : flags_(std::move(flags)) {}

  int Run() {
    if (flags_.device == "GPU") {
      if (const Status status = FindGpu(); !status.ok()) {
        std::printf("gpu_bench: not run: %s\n", std::string(status.message()).c_str());
        return kNoGpu;
      }
    }
    for (int round = 0; round < flags_.rounds; ++round) {
      for (const std::string& name : flags_.only) RunOurs(name);
      for (const std::string& peer : flags_.peers) RunPeer(peer);
    }
    Print();
    WriteJson();
    return failures_.empty() ? 0 : 1;
  }

 private:
  Status FindGpu() {
    // Also says whether this program has CUDA in it.
    MR_ASSIGN_OR_RETURN(const std::vector<GpuInfo> gpus, FindGpus());
    gpu_ = gpus[0].description;
    MR_ASSIGN_OR_RETURN(CudaDriver* const driver, LoadedCudaDriver());
    MR_ASSIGN_OR_RETURN(bare_, Bare::Start(driver));
    return OkStatus();
  }

  void Note(const std::string& name, const StatusOr<double>& value) {
    if (value.ok()) {
      values_[name].push_back(*value);
    } else {
      Fail(name, value.status());
    }
  }
  void Fail(const std::string& name, const Status& status) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), status.ToString().c_str());
    failures_[name] = std::string(status.message());
  }

  void RunOurs(const std::string& name) {
    if (failures_.contains(name)) return;
    WorkloadOptions options;
    options.device = StrCat("/device:", flags_.device, ":0");
    options.small = flags_.small;
    const int64_t before = MemoryInUse();
    auto runner = Runner::Start(MakeWorkload(name, options), flags_.device);
    if (!runner.ok()) return Fail(name, runner.status());
    const auto cost = (*runner)->Measure(flags_.seconds);
    if (!cost.ok()) return Fail(name, cost.status());
    values_[name].push_back(cost->milliseconds);
    values_[name + ".host_us"].push_back(cost->host_microseconds);
    values_[name + ".process_us"].push_back(cost->process_microseconds);
    if (bare_ == nullptr) return;
    values_[name + ".mib"].push_back(static_cast<double>(MemoryInUse() - before) / (1 << 20));
    const Workload& w = (*runner)->workload();
    flops_[name] = w.flops * w.parts;
    bytes_[name] = w.bytes * w.parts;
    if (name == "tiny_chain") {
      Note("tiny_chain.bare_graph", bare_->GraphOfAdditions(w.parts, flags_.seconds));
      Note("tiny_chain.bare_launches", bare_->Additions(w.parts, flags_.seconds));
    }
    // The chain reads and writes what a copy does.
    if (name == "elementwise") {
      Note("elementwise.bare_copy",
           bare_->CopyOnDevice(static_cast<std::size_t>(w.bytes / 2), flags_.seconds));
    }
  }

  int64_t MemoryInUse() {
    if (bare_ == nullptr) return 0;
    return bare_->MemoryInUse().value_or(0);
  }

  void RunPeer(const std::string& command) {
    std::string all = StrCat(command, " --seconds ", flags_.seconds);
    for (const std::string& name : flags_.only) StrAppend(&all, " --only ", name);
    if (flags_.small) StrAppend(&all, " --small");
    if (!peer_.RunCommand(all)) failures_[command] = "the peer failed: see above";
  }

  // Median of ours, the driver's or a peer's; 0 if there is none.
  double ValueOf(const std::string& name) const {
    if (const auto ours = values_.find(name); ours != values_.end()) return Median(ours->second);
    const auto theirs = peer_.Medians();
    const auto found = theirs.find(name);
    return found == theirs.end() ? 0 : found->second;
  }

  void PrintRow(const std::string& id, const std::string& what, double ours,
                const std::string& other_name, double other, double most) {
    nlohmann::json row = {{"goal", id}, {"what", what}, {"ours", ours}, {"beside", other_name}};
    std::string verdict = "not run";
    double ratio = 0;
    if (ours > 0 && other > 0) {
      ratio = ours / other;
      verdict = ratio <= most ? "reached" : "MISSED";
      row["other"] = other;
      row["ratio"] = ratio;
    }
    row["at_most"] = most;
    row["verdict"] = verdict;
    rows_.push_back(row);
    std::printf("%-3s %-22s %12.4f  %-16s %12.4f  ratio %6.3f  goal <= %5.3f  %s\n", id.c_str(),
                what.c_str(), ours, other_name.c_str(), other, ratio, most, verdict.c_str());
  }

  void Print() {
    std::printf("%s\n%d rounds, medians, milliseconds of a step if nothing else is said\n",
                gpu_.empty() ? flags_.device.c_str() : gpu_.c_str(), flags_.rounds);
    for (const Goal& goal : kGoals) {
      if (std::count(flags_.only.begin(), flags_.only.end(), goal.workload) == 0) continue;
      PrintRow(goal.id, goal.workload, ValueOf(goal.workload), goal.other,
               ValueOf(StrCat(goal.workload, ".", goal.other)), goal.most);
    }
    for (const std::string& name : flags_.only) {
      if (name == "tiny_chain") {
        PrintRow("H1", "tiny_chain host us", ValueOf("tiny_chain.host_us"), "limit",
                 kMostHostMicroseconds, 1);
      }
      if (name == "resnet50") {
        PrintRow("H7", "resnet50 MiB", ValueOf("resnet50.mib"), "torch_mib",
                 ValueOf("resnet50.torch_mib"), kMostMemory);
      }
      const double seconds = 1e-3 * ValueOf(name);
      if (seconds == 0) continue;
      std::printf("    %-22s %10.4f ms, host %8.1f us (all threads %8.1f)", name.c_str(),
                  1e3 * seconds, ValueOf(name + ".host_us"), ValueOf(name + ".process_us"));
      if (flops_[name] > 0) std::printf(", %8.1f TFLOP/s", 1e-12 * flops_[name] / seconds);
      if (bytes_[name] > 0) std::printf(", %8.1f GB/s", 1e-9 * bytes_[name] / seconds);
      std::printf("\n");
    }
    for (const auto& [name, why] : failures_) {
      std::printf("not run: %s: %s\n", name.c_str(), why.c_str());
    }
  }

  void WriteJson() {
    if (flags_.json.empty()) return;
    nlohmann::json all = {{"device", gpu_.empty() ? flags_.device : gpu_},
                          {"rounds", flags_.rounds},
                          {"rows", rows_},
                          {"failures", failures_},
                          {"ours", values_},
                          {"peers", peer_.Medians()}};
    std::ofstream(flags_.json) << all.dump(2) << "\n";
  }

  const Flags flags_;
  std::string gpu_;
  std::unique_ptr<Bare> bare_;
  Peer peer_;
  std::map<std::string, std::vector<double>> values_;
  std::map<std::string, double> flops_, bytes_;
  std::map<std::string, std::string> failures_;
  std::vector<nlohmann::json> rows_;
};

// False, with a line that says why, for a command line that makes no sense.
bool ParseFlags(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--small") {
      flags->small = true;
      continue;
    }
    if (i + 1 == argc) {
      std::fprintf(stderr, "gpu_bench: %s is no flag, or lacks its value\n", flag.c_str());
      return false;
    }
    const std::string value = argv[++i];
    if (flag == "--only") {
      const auto names = WorkloadNames();
      if (std::find(names.begin(), names.end(), value) == names.end()) {
        std::fprintf(stderr, "gpu_bench: no workload %s, but %s\n", value.c_str(),
                     StrJoin(names, ", ").c_str());
        return false;
      }
      flags->only.push_back(value);
    } else if (flag == "--peer") {
      flags->peers.push_back(value);
    } else if (flag == "--rounds") {
      flags->rounds = std::max(1, std::atoi(value.c_str()));
    } else if (flag == "--seconds") {
      flags->seconds = std::atof(value.c_str());
    } else if (flag == "--json") {
      flags->json = value;
    } else if (flag == "--device") {
      flags->device = value;
    } else {
      std::fprintf(stderr, "gpu_bench: unknown flag %s\n", flag.c_str());
      return false;
    }
  }
  if (flags->only.empty()) flags->only = WorkloadNames();
  return true;
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!ParseFlags(argc, argv, &flags)) return 2;
  return Bench(std::move(flags)).Run();
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) { return millrace::bench::Main(argc, argv); }
