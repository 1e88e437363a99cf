// SPDX-License-Identifier: Apache-2.0
// What a step costs the processes that every worker talks to, by the number of workers: the master,
// and the leader that the members of a collective ask for each other.
//
//   scale_bench [--steps N] [--rounds N] [--members N] [--check]
//
// All tasks are objects of this process that are called directly and answer at once, so that what
// is left is the work of the one that is measured: no wire, no executor, no kernel. A line is
// fitted to the times of 16 to 256 workers; its slope is what a worker costs in a step. Then as
// many members as --members says find each other in a new group, each through a manager of its own.
// --check: fails beyond 5 us for a worker and step, 1 s for the group, or where a time is further
// than a quarter from the line.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "collective/tasks_in_process.h"
#include "master/session_test_util.h"
#include "session/client_session.h"

namespace millrace {
namespace {

constexpr int kWorkers[] = {16, 32, 64, 128, 256};
constexpr double kMostMicros = 5, kMostSeconds = 1, kFurthest = 0.25;

double MicrosSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

// Of steps that nobody else on the machine disturbed: one in ten is shorter.
double Undisturbed(std::vector<double> values) {
  const std::size_t at = values.size() / 10;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

// Has a CPU, and does at once whatever it is asked.
class NullWorker : public WorkerInterface {
 public:
  explicit NullWorker(std::string device) : device_(std::move(device)) {}

  void GetStatusAsync(const CallOptions&, std::vector<pb::DeviceAttributes>* devices,
                      Done done) override {
    pb::DeviceAttributes& cpu = devices->emplace_back();
    cpu.set_name(device_);
    cpu.set_device_type("CPU");
    cpu.set_memory_limit(1 << 28);
    cpu.set_incarnation(1 + std::hash<std::string>()(device_));
    done(OkStatus());
  }
  void CreateSessionAsync(const CallOptions&, const WorkerSessionOptions&, Done done) override {
    done(OkStatus());
  }
  void DeleteSessionAsync(const CallOptions&, const std::string&, Done done) override {
    done(OkStatus());
  }
  void RegisterGraphAsync(const CallOptions&, RegisterGraphArgs, std::string* graph_handle,
                          Done done) override {
    *graph_handle = "graph";
    done(OkStatus());
  }
  void DeregisterGraphAsync(const CallOptions&, const std::string&, const std::string&,
                            Done done) override {
    done(OkStatus());
  }
  void RunGraphAsync(const CallOptions&, RunGraphArgs*, RunGraphResult*, Done done) override {
    ++steps_;
    done(OkStatus());
  }
  void CleanupGraphAsync(const CallOptions&, int64_t, Done done) override { done(OkStatus()); }
  void CleanupAllAsync(const CallOptions&, std::vector<std::string>, Done done) override {
    done(OkStatus());
  }
  void RecvTensorAsync(const CallOptions&, int64_t, const std::string&, RecvDone done) override {
    done(errors::Unimplemented("a worker that has no values"), Tensor(), false);
  }

  int64_t steps() const { return steps_; }

 private:
  const std::string device_;
  std::atomic<int64_t> steps_{0};
};

// A master of task 0, and workers that do nothing.
class NullCluster {
 public:
  explicit NullCluster(int workers) : pool_("inter_op", 0) {
    RegisterTestOpsAndKernels(ops_, kernels_);
    for (int i = 0; i < workers; ++i) {
      const std::string task = TestCluster::TaskName(i);
      workers_.push_back(std::make_unique<NullWorker>(StrCat(task, "/device:CPU:0")));
      cache_.Add(task, workers_.back().get());
    }
    device_ = NewCpuDevice(StrCat(TestCluster::TaskName(0), "/device:CPU:0"), 1, nullptr, nullptr);
    env_.task = TestCluster::TaskName(0);
    env_.devices = {device_.get()};
    env_.ops = &ops_;
    env_.kernels = &kernels_;
    env_.inter_op_pool = &pool_;
    env_.rendezvous = rendezvous_.get();
    env_.workers = &cache_;
    master_ = std::make_shared<Master>(MasterEnv{&env_, {}, nullptr});
  }
  ~NullCluster() { master_.reset(); }

  std::shared_ptr<Master> master() const { return master_; }
  int64_t steps(int worker) const { return workers_[static_cast<std::size_t>(worker)]->steps(); }

 private:
  OpRegistry ops_;
  KernelRegistry kernels_;
  ThreadPool pool_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<RendezvousManager> rendezvous_ = NewLocalRendezvousManager();
  FixedWorkerCache cache_;
  std::vector<std::unique_ptr<NullWorker>> workers_;
  WorkerEnv env_;
  std::shared_ptr<Master> master_;
};

// Microseconds of a warm step with a part at each worker.
StatusOr<double> MasterStep(int workers, int steps) {
  const NullCluster cluster(workers);
  TestGraph graph;
  ClientSession::RunRequest request;
  for (int i = 0; i < workers; ++i) {
    const std::string name = StrCat("part", i);
    graph.Const(name, 1, StrCat(TestCluster::TaskName(i), "/device:CPU:0"));
    request.targets.push_back(name);
  }
  MR_ASSIGN_OR_RETURN(const auto session, ClientSession::Create(cluster.master(), graph.def(), {}));
  std::vector<double> times;
  for (int i = 0; i < steps + 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    MR_RETURN_IF_ERROR(session->Run(request).status());
    if (i >= 3) times.push_back(MicrosSince(begin));
  }
  for (int i = 0; i < workers; ++i) {
    if (cluster.steps(i) == steps + 3) continue;
    return errors::Internal("worker ", i, " was given ", cluster.steps(i), " steps of ", steps + 3);
  }
  return Undisturbed(times);
}

DeviceAttributes CpuOf(int task) {
  DeviceAttributes device;
  device.name = StrCat(TestCluster::TaskName(task), "/device:CPU:0");
  device.device_type = "CPU";
  device.incarnation = static_cast<uint64_t>(task) + 1;
  return device;
}

// Microseconds in which a leader answers the members of a collective that agree in every step.
StatusOr<double> LeaderStep(int members, int steps) {
  testing::Cluster cluster({1});
  CollectivePeer& leader = *cluster.manager(0).local();
  int joined = 0;
  Status error;
  for (int i = 0; i < members; ++i) {
    leader.CompleteGroup({1, members, CollectiveKind::kBroadcast, CpuOf(i)}, nullptr,
                         [&](const auto& group) {
                           ++joined;
                           error.Update(group.status());
                         });
  }
  MR_RETURN_IF_ERROR(error);
  InstanceRequest request;
  request.node = "broadcast";
  request.kind = CollectiveKind::kBroadcast;
  request.dtype = kFloat;
  request.shape = Shape({4});
  request.group_key = 1;
  request.group_size = members;
  request.instance_key = 7;
  request.device_type = "CPU";
  std::vector<std::string> devices;
  for (int i = 0; i < members; ++i) devices.push_back(CpuOf(i).name);
  std::vector<double> times;
  for (int step = 1; step <= steps + 3; ++step) {
    int answered = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < members; ++i) {
      request.step_id = step;
      request.is_source = i == 0;
      request.device = devices[static_cast<std::size_t>(i)];
      leader.CompleteInstance(request, nullptr, [&](const StatusOr<int>& source) {
        ++answered;
        error.Update(source.status());
      });
    }
    cluster.manager(0).Cleanup(step);
    if (step > 3) times.push_back(MicrosSince(begin));
    MR_RETURN_IF_ERROR(error);
    if (answered != members || joined != members) {
      return errors::Internal(answered, " of ", members, " members were answered");
    }
  }
  return Undisturbed(times);
}

// Seconds until all members of a new group know it.
StatusOr<double> ResolveGroup(int members) {
  testing::Cluster cluster(std::vector<int>(static_cast<std::size_t>(members), 1));
  // Bounded: of a benchmark.
  const Tensor value(kFloat, Shape({4}));
  std::vector<RefPtr<CollectiveExecutor>> executors;
  std::atomic<int> known{0};
  Notification all;
  std::atomic<bool> failed{false};
  const auto devices = cluster.Members();
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& [task, device] : devices) {
    executors.push_back(cluster.manager(task).NewStep(1, cluster.leader()));
    executors.back()->ResolveAsync(testing::Reduce(members, value), *device,
                                   [&](const auto& resolved) {
                                     if (!resolved.ok()) failed = true;
                                     if (++known == members) all.Notify();
                                   });
  }
  const bool came = all.WaitUntil(DeadlineAfter(std::chrono::seconds(60)));
  const double seconds = MicrosSince(begin) / 1e6;
  executors.clear();
  for (const auto& [task, device] : devices) cluster.manager(task).Cleanup(1);
  if (!came || failed) return errors::Internal(known.load(), " of ", members, " know their group");
  return seconds;
}

struct Line {
  double at_none = 0, slope = 0;
  double furthest = 0;  // of a time from the line, as a share of it
};
Line FitLine(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sx += x[i];
    sy += y[i];
    sxx += x[i] * x[i];
    sxy += x[i] * y[i];
  }
  Line line;
  line.slope = (n * sxy - sx * sy) / (n * sxx - sx * sx);
  line.at_none = (sy - line.slope * sx) / n;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double wanted = line.at_none + line.slope * x[i];
    line.furthest = std::max(line.furthest, std::abs(y[i] - wanted) / wanted);
  }
  return line;
}

using Measure = std::function<StatusOr<double>(int workers, int steps)>;
// The best of so many rounds for each number of workers: others may use the machine.
StatusOr<Line> Report(const char* what, const Measure& measure, int steps, int rounds) {
  std::vector<double> x, y;
  std::printf("%s, us a step:", what);
  for (const int workers : kWorkers) {
    double best = 0;
    for (int round = 0; round < rounds; ++round) {
      MR_ASSIGN_OR_RETURN(const double micros, measure(workers, steps));
      best = round == 0 ? micros : std::min(best, micros);
    }
    x.push_back(workers);
    y.push_back(best);
    std::printf("  %d: %.1f", workers, best);
    std::fflush(stdout);
  }
  const Line line = FitLine(x, y);
  std::printf("\n  %.2f us a worker and step, and %.1f us; times lie up to %.0f %% from the line\n",
              line.slope, line.at_none, 100 * line.furthest);
  return line;
}

Status Run(int steps, int rounds, int members, bool check) {
  MR_ASSIGN_OR_RETURN(const Line master, Report("master", MasterStep, steps, rounds));
  MR_ASSIGN_OR_RETURN(const Line leader, Report("leader", LeaderStep, steps, rounds));
  MR_ASSIGN_OR_RETURN(const double seconds, ResolveGroup(members));
  std::printf("a group of %d members is known to all after %.3f s\n", members, seconds);
  if (!check) return OkStatus();
  for (const Line& line : {master, leader}) {
    if (line.slope > kMostMicros || line.furthest > kFurthest) {
      return errors::ResourceExhausted("a worker costs ", line.slope, " us in a step, of ",
                                       kMostMicros, ", and times lie ", 100 * line.furthest,
                                       " % from a line");
    }
  }
  if (seconds > kMostSeconds) {
    return errors::ResourceExhausted("the group took ", seconds, " s of ", kMostSeconds);
  }
  return OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  int steps = 200, rounds = 3, members = 1000;
  bool check = false;
  CLI::App app("What a step costs masters and leaders, by the number of workers", "scale_bench");
  app.add_option("--steps", steps, "Steps of a round")->check(CLI::Range(1, 1'000'000));
  app.add_option("--rounds", rounds, "Rounds, of which the best counts")->check(CLI::Range(1, 100));
  app.add_option("--members", members, "Members of the group")->check(CLI::Range(1, 10'000));
  app.add_flag("--check", check, "Fail beyond the limits");
  CLI11_PARSE(app, argc, argv);
  const millrace::Status status = millrace::Run(steps, rounds, members, check);
  if (status.ok()) return 0;
  std::fprintf(stderr, "scale_bench: %s\n", status.ToString().c_str());
  return 1;
}
