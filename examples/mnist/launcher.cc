// SPDX-License-Identifier: Apache-2.0
#include "examples/mnist/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <string_view>

#include "base/child_process.h"
#include "base/clock.h"
#include "base/errors.h"
#include "base/free_port.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "examples/mnist/child_process.h"
#include "examples/mnist/task.h"

namespace millrace::mnist {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kStopGrace = 3 * kSecond;        // from SIGTERM to SIGKILL
constexpr int64_t kStragglerGrace = 15 * kSecond;  // from the last worker's end
constexpr int64_t kRedraw = kSecond / 10;
constexpr int64_t kPlainInterval = 5 * kSecond;

volatile sig_atomic_t interrupted = 0;
void OnInterrupt(int number) { interrupted = number; }

// What is known of one worker's progress.
struct WorkerProgress {
  int64_t local_steps = 0;
  double rate = 0;  // examples per second, smoothed
  int64_t last_steps = 0, last_time = 0;
};

struct JobResult {
  bool known = false;
  double seconds = 0, cross_entropy = 0, accuracy = 0;
  int64_t validation_size = 0;
};

// What a person sees: the tasks' lines with a prefix, and one line of progress.
class Display {
 public:
  Display(const Flags& flags)
      : flags_(flags),
        terminal_(isatty(STDOUT_FILENO) != 0 && TermIsCapable()),
        colours_(terminal_ && std::getenv("NO_COLOR") == nullptr),
        started_(SteadyNanos()) {}

  bool terminal() const { return terminal_; }

  void Line(const std::string& task, std::string_view text) {
    // On a terminal the progress line stands for the line of every step.
    if (terminal_ && text.find(": training step ") != std::string_view::npos) return;
    Erase();
    if (text.starts_with("{\"time\":")) {  // --log_format=json: it names its task
      std::printf("%.*s\n", static_cast<int>(text.size()), text.data());
    } else if (colours_) {
      std::printf("\033[%dm%-9s|\033[0m %.*s\n", Colour(task), task.c_str(),
                  static_cast<int>(text.size()), text.data());
    } else {
      std::printf("%-9s| %.*s\n", task.c_str(), static_cast<int>(text.size()), text.data());
    }
    std::fflush(stdout);
  }

  void Step(const std::string& task, int64_t local, int64_t global, double loss) {
    WorkerProgress& w = workers_[task];
    w.local_steps = local;
    global_step_ = std::max(global_step_, global);
    loss_ = loss_known_ ? 0.95 * loss_ + 0.05 * loss : loss;
    if (!loss_known_) first_step_ = SteadyNanos();
    loss_known_ = true;
  }

  void Progress(bool force = false) {
    const int64_t now = SteadyNanos();
    const int64_t interval = terminal_ ? kRedraw : kPlainInterval;
    if (!loss_known_ || (!force && now - last_drawn_ < interval)) return;
    UpdateRates(now);
    last_drawn_ = now;
    std::string text = StrCat("step ", std::min<int64_t>(global_step_, flags_.train_steps), "/",
                              flags_.train_steps, "  loss ", Fixed(loss_, 4), "  examples/s");
    for (const auto& [task, w] : workers_) StrAppend(&text, " ", task, " ", Fixed(w.rate, 0));
    StrAppend(&text, "  ETA ", Fixed(Eta(now), 1), " s");
    if (terminal_) {
      std::printf("\r\033[K%s", text.c_str());
      drawn_ = true;
    } else {
      std::printf("progress | %s\n", text.c_str());
    }
    std::fflush(stdout);
  }

  void Erase() {
    if (drawn_) std::printf("\r\033[K");
    drawn_ = false;
  }

 private:
  static bool TermIsCapable() {
    const char* term = std::getenv("TERM");
    return term != nullptr && std::string_view(term) != "dumb";
  }
  static std::string Fixed(double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof(text), "%.*f", digits, value);
    return text;
  }
  static int Colour(const std::string& task) {
    if (task.starts_with("ps/")) return 33;
    return 34 + static_cast<int>(std::hash<std::string>()(task) % 3);
  }
  void UpdateRates(int64_t now) {
    for (auto& [task, w] : workers_) {
      if (w.last_time == 0) w.last_time = started_;
      const double seconds = static_cast<double>(now - w.last_time) / kSecond;
      if (seconds < 0.05) continue;
      const double rate =
          static_cast<double>((w.local_steps - w.last_steps) * flags_.batch_size) / seconds;
      w.rate = w.last_steps == 0 ? rate : 0.7 * w.rate + 0.3 * rate;
      w.last_steps = w.local_steps;
      w.last_time = now;
    }
  }
  double Eta(int64_t now) const {
    const double done = static_cast<double>(global_step_);
    if (done < 1) return 0;
    const double left = std::max(0.0, static_cast<double>(flags_.train_steps) - done);
    return left * static_cast<double>(now - first_step_) / kSecond / done;
  }

  const Flags& flags_;
  const bool terminal_, colours_;
  const int64_t started_;
  int64_t first_step_ = 0, last_drawn_ = 0, global_step_ = 0;
  std::map<std::string, WorkerProgress> workers_;
  double loss_ = 0;
  bool loss_known_ = false, drawn_ = false;
};

class Launcher {
 public:
  Launcher(const Flags& flags, const std::vector<std::string>& argv)
      : flags_(flags), argv_(argv), display_(flags) {}

  int Run() {
    struct sigaction action{};
    action.sa_handler = OnInterrupt;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    const Status started = StartAll();
    if (!started.ok()) {
      Fail(StrCat("cannot start the cluster: ", Message(started)));
    }
    while (AnyRunning()) {
      Wait();
      Reap();
      Judge();
      display_.Progress();
    }
    ReadAll();
    display_.Erase();
    return Finish();
  }

 private:
  Status StartAll() {
    MR_ASSIGN_OR_RETURN(const std::vector<int> ports,
                        FreeLoopbackPorts(flags_.num_ps + flags_.num_workers));
    std::vector<std::string> ps_hosts, worker_hosts;
    for (int i = 0; i < flags_.num_ps + flags_.num_workers; ++i) {
      (i < flags_.num_ps ? ps_hosts : worker_hosts).push_back(StrCat("127.0.0.1:", ports[i]));
    }
    hosts_ = {"--ps_hosts=" + StrJoin(ps_hosts, ","),
              "--worker_hosts=" + StrJoin(worker_hosts, ",")};
    // What another job sends here by mistake is refused.
    if (flags_.cluster_id.empty()) hosts_.push_back("--cluster_id=mnist-" + Hex16(RandomId()));
    children_.reserve(ps_hosts.size() + worker_hosts.size());
    for (int i = 0; i < flags_.num_ps; ++i) MR_RETURN_IF_ERROR(StartTask("ps", i));
    for (int i = 0; i < flags_.num_workers; ++i) MR_RETURN_IF_ERROR(StartTask("worker", i));
    return OkStatus();
  }

  Status StartTask(const std::string& job, int index) {
    std::vector<std::string> args = argv_;
    args.insert(args.end(), hosts_.begin(), hosts_.end());
    args.push_back("--job_name=" + job);
    args.push_back(StrCat("--task_index=", index));
    children_.emplace_back();
    const Status status = StartChild(StrCat(job, "/", index), std::move(args), &children_.back());
    if (!status.ok()) children_.pop_back();
    return status;
  }

  bool AnyRunning() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const ChildProcess& c) { return c.running; });
  }
  bool WorkersRunning() const {
    return std::any_of(children_.begin(), children_.end(), [](const ChildProcess& c) {
      return c.running && c.name.starts_with("worker/");
    });
  }

  // Sleeps until a child says something, at most as long as the display may stand still.
  void Wait() {
    std::vector<pollfd> fds;
    for (const ChildProcess& c : children_) {
      if (c.output_fd >= 0) fds.push_back({c.output_fd, POLLIN, 0});
      if (c.progress_fd >= 0) fds.push_back({c.progress_fd, POLLIN, 0});
    }
    poll(fds.data(), fds.size(), 50);
    ReadAll();
  }

  void ReadAll() {
    for (ChildProcess& c : children_) {
      ReadLines(&c.output_fd, &c.output_tail, [&](std::string_view line) {
        // Lines behind the first of an error, which name nodes, are set in.
        const bool goes_on = line.empty() || line[0] == ' ' || line[0] == '\t';
        if (!goes_on || c.last_line.empty()) c.last_line = std::string(line);
        display_.Line(c.name, line);
      });
      ReadLines(&c.progress_fd, &c.progress_tail,
                [&](std::string_view line) { OnRecord(c.name, std::string(line)); });
    }
  }

  static void ReadLines(int* fd, std::string* tail,
                        const std::function<void(std::string_view)>& on_line) {
    char chunk[16384];
    while (*fd >= 0) {
      const ssize_t n = read(*fd, chunk, sizeof(chunk));
      if (n < 0) return;  // nothing there for now
      if (n == 0) {
        close(*fd);
        *fd = -1;
        if (!tail->empty()) on_line(*tail);
        return;
      }
      tail->append(chunk, static_cast<std::size_t>(n));
      std::size_t begin = 0, end;
      while ((end = tail->find('\n', begin)) != std::string::npos) {
        on_line(std::string_view(*tail).substr(begin, end - begin));
        begin = end + 1;
      }
      tail->erase(0, begin);
    }
  }

  void OnRecord(const std::string& task, const std::string& line) {
    std::istringstream in(line);
    std::string kind;
    in >> kind;
    if (kind == kStepRecord) {
      int64_t local = 0, global = 0;
      double loss = 0;
      if (in >> local >> global >> loss) display_.Step(task, local, global, loss);
    } else if (kind == kResultRecord) {
      int64_t steps = 0;
      if (in >> result_.seconds >> steps >> result_.cross_entropy >> result_.validation_size >>
          result_.accuracy) {
        result_.known = true;
      }
    }
  }

  void Reap() {
    for (ChildProcess& c : children_) {
      if (!c.running || waitpid(c.pid, &c.wait_status, WNOHANG) != c.pid) continue;
      c.running = false;
      if (c.wait_status != 0 && !stopping_) {
        ReadAll();
        Fail(StrCat(c.name, " ended with ", DescribeEnd(c.wait_status),
                    c.last_line.empty() ? "" : "; its last words: " + c.last_line));
      }
    }
  }

  // What the state of the children and the clock ask for.
  void Judge() {
    const int64_t now = SteadyNanos();
    if (interrupted != 0 && !stopping_) {
      display_.Erase();
      std::fprintf(stderr, "mnist_replica: interrupted, stopping all tasks\n");
      Stop();
    }
    if (!stopping_ && !WorkersRunning() && AnyRunning()) {
      if (workers_ended_ == 0) workers_ended_ = now;
      if (now - workers_ended_ > kStragglerGrace) {
        Fail("a ps did not end although all workers have");
      }
    }
    if (stopping_ && !killed_ && now - stop_began_ > kStopGrace) {
      killed_ = true;
      Signal(SIGKILL);
    }
  }

  void Fail(const std::string& reason) {
    if (failure_.empty()) failure_ = reason;
    Stop();
  }
  void Stop() {
    if (stopping_) return;
    stopping_ = true;
    stop_began_ = SteadyNanos();
    Signal(SIGTERM);
  }
  void Signal(int number) {
    for (const ChildProcess& c : children_) {
      if (c.running) kill(c.pid, number);
    }
  }

  int Finish() {
    if (interrupted != 0) return 128 + interrupted;
    if (!failure_.empty()) {
      std::fprintf(stderr, "mnist_replica: %s\n", failure_.c_str());
      return 1;
    }
    if (result_.known) {
      std::printf("training time: %.2f s\n", result_.seconds);
      std::printf("validation cross entropy: %g over %lld examples (%.4f per example)\n",
                  result_.cross_entropy, static_cast<long long>(result_.validation_size),
                  result_.cross_entropy / static_cast<double>(result_.validation_size));
      std::printf("test accuracy: %.2f %%\n", result_.accuracy * 100);
    }
    if (!flags_.dump_graph.empty()) {
      std::printf("graph dumps: %s\n", flags_.dump_graph.c_str());
    }
    return 0;
  }

  const Flags& flags_;
  const std::vector<std::string>& argv_;
  std::vector<std::string> hosts_;
  std::vector<ChildProcess> children_;
  Display display_;
  JobResult result_;
  std::string failure_;
  bool stopping_ = false, killed_ = false;
  int64_t stop_began_ = 0, workers_ended_ = 0;
};

}  // namespace

int LaunchLocalCluster(const Flags& flags, const std::vector<std::string>& argv) {
  return Launcher(flags, argv).Run();
}

}  // namespace millrace::mnist
