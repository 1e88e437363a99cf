// SPDX-License-Identifier: Apache-2.0
// What protection and observation cost: steps and tensors with certificates beside the same in the
// clear, steps while pages are served and scraped beside steps without, and what an idle server
// takes with all of it on. In turns: one, the other, one, the other...
//
//   operating_bench [--repetitions N] [--millrace PATH]
//
// The parameter servers are processes of their own, started as a user starts them.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/child_process.h"
#include "base/log.h"
#include "base/strings.h"
#include "distributed_runtime/service/observe_service.h"
#include "millrace/core.h"
#include "millrace/pages.h"
#include "transport/grpc/grpc_alone.h"

namespace millrace {
namespace {

constexpr std::chrono::seconds kStartLimit(30);

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double MicrosPer(int count, const std::function<void()>& call) {
  const double begin = Now();
  for (int i = 0; i < count; ++i) call();
  return (Now() - begin) * 1e6 / count;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Flags {
  int repetitions = 15;
  std::string millrace = "bazel-bin/tools/millrace";
};

void Compare(const Flags& flags, const std::string& what, double limit,
             const std::function<double()>& with, const std::function<double()>& without) {
  std::vector<double> a, b, ratio;
  with();  // warm
  without();
  for (int i = 0; i < flags.repetitions; ++i) {
    a.push_back(with());
    b.push_back(without());
    ratio.push_back(a.back() / b.back());
  }
  const auto [low, high] = std::minmax_element(ratio.begin(), ratio.end());
  std::printf("%-52s %10.2f us  without %10.2f us  ratio %6.3f [%.3f, %.3f]  goal %.2f\n",
              what.c_str(), Median(a), Median(b), Median(ratio), *low, *high, limit);
  std::fflush(stdout);
}

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  MR_CHECK(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
  MR_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  close(fd);
  return ntohs(address.sin_port);
}

// The answer to a request for the path, "" if nobody takes the connection.
std::string HttpGet(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request =
        StrCat("GET ", path, " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    char buffer[1 << 16];
    ssize_t got = write(fd, request.data(), request.size());
    while (got > 0 && (got = read(fd, buffer, sizeof(buffer))) > 0) {
      answer.append(buffer, static_cast<std::size_t>(got));
    }
  }
  close(fd);
  return answer;
}

// A program that ends with this object.
class Child {
 public:
  explicit Child(std::vector<std::string> words) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      EnterChild(parent, STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    MR_CHECK(pid_ > 0);
  }
  ~Child() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Of its memory, in MiB.
  double Resident() const {
    std::ifstream pages(StrCat("/proc/", pid_, "/statm"));
    int64_t size = 0, resident = 0;
    pages >> size >> resident;
    return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / (1 << 20);
  }

 private:
  pid_t pid_;
};

Credentials FilesOf(const std::string& folder, const std::string& name) {
  return {.tls_cert = StrCat(folder, "/", name, ".pem"),
          .tls_key = StrCat(folder, "/", name, ".key"),
          .tls_ca = folder + "/ca.pem"};
}

// A cluster of a ps, which is a process, and a worker here.
struct Cluster {
  Cluster(const Flags& flags, const std::string& certificates) {
    const int ps_port = FreePort();
    const std::string spec = StrCat("ps|127.0.0.1:", ps_port, ",worker|127.0.0.1:", FreePort());
    std::vector<std::string> words = {flags.millrace, "server", "--cluster_spec=" + spec,
                                      "--job_name=ps"};
    Credentials client;
    ServerOptions options;
    if (!certificates.empty()) {
      const std::string made =
          StrCat(flags.millrace, " certs '", spec, "' --out=", certificates, " >/dev/null");
      MR_CHECK(std::system(made.c_str()) == 0);
      const auto of = [&](const std::string& name) { return FilesOf(certificates, name); };
      const Credentials ps_files = of("ps-0");
      words.push_back("--tls_cert=" + ps_files.tls_cert);
      words.push_back("--tls_key=" + ps_files.tls_key);
      words.push_back("--tls_ca=" + ps_files.tls_ca);
      client = of("client");
      options.credentials = of("worker-0");
    }
    ps = std::make_unique<Child>(words);
    options.cluster = *ClusterSpec::Parse(spec);
    options.job_name = "worker";
    auto made = Server::Create(options);
    MR_CHECK(made.ok() && (*made)->Start().ok());
    server = *std::move(made);

    const Scope far = graph.root().WithDevice("/job:ps/task:0");
    const Scope near = graph.root().WithDevice("/job:worker/task:0");
    const Operation far_null = ops::NoOp(far), near_null = ops::NoOp(near);
    constexpr int64_t kFloats = (1 << 20) / 4;
    const Variable v = MakeVariable(far, "v", Zeros(far, {kFloats}));
    const Operation moved =
        ops::NoOp(near.WithControlDependencies({ops::Identity(near, v.read).op()}));
    const double begin = Now();
    while (!at_ps_session) {
      auto at_ps = Session::Create(
          graph, {.target = StrCat("grpc://127.0.0.1:", ps_port), .credentials = client});
      if (at_ps.ok()) at_ps_session.emplace(*std::move(at_ps));
      MR_CHECK(Now() - begin < std::chrono::duration<double>(kStartLimit).count());
    }
    MR_CHECK(at_ps_session->Run({}, {}, std::span(&v.initializer, 1)).ok());
    null_step = *at_ps_session->MakeCallable({}, {}, std::span(&far_null, 1));
    fetch = *at_ps_session->MakeCallable({}, std::span(&v.read, 1));
    // A few milliseconds of products, in the weights of the ps.
    const Output weights = ops::Reshape(near, v.read, {512, 512});
    Output product = weights;
    for (int i = 0; i < 4; ++i) product = ops::MatMul(near, product, weights);
    // Fetched: products that nobody asks for are not computed.
    const Output worked = ops::Max(near, product, {0, 1});
    auto here =
        Session::Create(graph, {.target = server->target(), .credentials = options.credentials});
    MR_CHECK(here.ok());
    here_session.emplace(*std::move(here));
    own_step = *here_session->MakeCallable({}, {}, std::span(&near_null, 1));
    move = *here_session->MakeCallable({}, {}, std::span(&moved, 1));
    work = *here_session->MakeCallable({}, std::span(&worked, 1));
  }

  std::unique_ptr<Child> ps;
  std::unique_ptr<Server> server;
  Graph graph;
  std::optional<Session> at_ps_session, here_session;
  Callable null_step, fetch, own_step, move, work;
};

std::function<double()> Steps(const Callable& callable, int count) {
  return [&callable, count] { return MicrosPer(count, [&] { MR_CHECK(callable.Run({}).ok()); }); };
}

void Protection(const Flags& flags, const std::string& folder) {
  const Cluster plain(flags, ""), proven(flags, folder);
  Compare(flags, "null step of a client, with certificates", 1.2, Steps(proven.null_step, 2000),
          Steps(plain.null_step, 2000));
  Compare(flags, "fetch of 1 MiB by a client (gRPC), with certificates", 1 / 0.7,
          Steps(proven.fetch, 50), Steps(plain.fetch, 50));
  Compare(flags, "1 MiB from ps to worker, with certificates", 1 / 0.7, Steps(proven.move, 200),
          Steps(plain.move, 200));
  // The floor of the first two: the same encryption of gRPC's with nothing of ours around it.
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1} << 20}) {
    GrpcAlone clear({}, {}, bytes);
    GrpcAlone secure(FilesOf(folder, "ps-0"), FilesOf(folder, "client"), bytes);
    const int count = bytes == 0 ? 2000 : 50;
    Compare(
        flags,
        bytes == 0 ? "empty call of gRPC alone, with certificates"
                   : "1 MiB of gRPC alone, with certificates",
        bytes == 0 ? 1.2 : 1 / 0.7, [&] { return MicrosPer(count, [&] { secure.Call(); }); },
        [&] { return MicrosPer(count, [&] { clear.Call(); }); });
  }
}

// Steps of the master's own worker are the shortest there are at a server. Prometheus asks four
// times a minute; here it is asked ten times a second.
void Observation(const Flags& flags) {
  const Cluster cluster(flags, "");
  std::unique_ptr<Pages> pages;
  std::atomic<bool> scrape{false}, ended{false};
  std::atomic<int> port{0};
  std::thread scraper([&] {
    while (!ended) {
      if (scrape) MR_CHECK(!HttpGet(port, "/metrics").empty());
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  const auto steps = Steps(cluster.own_step, 20'000);
  Compare(
      flags, "null step of the own worker, pages scraped 10 times/s", 1.01,
      [&] {
        pages = *Pages::Serve(*cluster.server, "127.0.0.1:0");
        const std::string url = pages->url();
        port = std::atoi(url.c_str() + url.rfind(':') + 1);
        scrape = true;
        const double micros = steps();
        scrape = false;
        std::this_thread::sleep_for(std::chrono::milliseconds(150));  // for the last one
        pages.reset();
        return micros;
      },
      steps);
  ended = true;
  scraper.join();
}

// While somebody records every step of the cluster, as `millrace trace` does.
void Tracing(const Flags& flags) {
  const Cluster cluster(flags, "");
  std::atomic<bool> on{false}, ended{false};
  std::atomic<int64_t> recorded{0};
  std::thread tracer([&] {
    while (!ended) {
      if (!on) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      const auto trace = TraceSteps(cluster.server->address(), 50, std::chrono::seconds(5));
      if (trace.ok()) recorded += trace->step_size();
    }
  });
  const auto steps = Steps(cluster.work, 100);
  Compare(
      flags, "step of some products, every step recorded", 1.05,
      [&] {
        on = true;
        const double micros = steps();
        on = false;
        return micros;
      },
      [&] {
        // What is being recorded ends with the steps that it waits for.
        for (int i = 0; i < 60; ++i) MR_CHECK(cluster.work.Run({}).ok());
        return steps();
      });
  ended = true;
  tracer.join();
  MR_CHECK(recorded > 0);
}

// From the start of the program to the answer of its page, and what it holds a second later.
void IdleServer(const Flags& flags, const std::string& folder) {
  std::vector<double> millis, resident;
  for (int i = 0; i < std::max(3, flags.repetitions / 3); ++i) {
    const int port = FreePort(), http = FreePort();
    const std::string spec = StrCat("ps|127.0.0.1:", port);
    const std::string certificates = StrCat(folder, "/idle", i);
    const std::string made =
        StrCat(flags.millrace, " certs '", spec, "' --out=", certificates, " --token >/dev/null");
    MR_CHECK(std::system(made.c_str()) == 0);
    const double begin = Now();
    const Child server({flags.millrace, "server", "--cluster_spec=" + spec, "--job_name=ps",
                        StrCat("--tls_cert=", certificates, "/ps-0.pem"),
                        StrCat("--tls_key=", certificates, "/ps-0.key"),
                        StrCat("--tls_ca=", certificates, "/ca.pem"),
                        StrCat("--token_file=", certificates, "/token"),
                        StrCat("--http=127.0.0.1:", http), "--log_format=json"});
    while (HttpGet(http, "/healthz").find("ok") == std::string::npos) {
      MR_CHECK(Now() - begin < std::chrono::duration<double>(kStartLimit).count());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    millis.push_back((Now() - begin) * 1e3);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    resident.push_back(server.Resident());
  }
  std::printf("%-52s %10.2f ms  goal 60\n", "idle server, everything on: to its first answer",
              Median(millis));
  std::printf("%-52s %10.2f MiB goal 40\n", "idle server, everything on: resident",
              Median(resident));
}

int Main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 < argc && name == "--repetitions") {
      flags.repetitions = std::max(1, std::atoi(argv[i + 1]));
    } else if (i + 1 < argc && name == "--millrace") {
      flags.millrace = argv[i + 1];
    } else {
      std::fprintf(stderr, "usage: operating_bench [--repetitions N] [--millrace PATH]\n");
      return 2;
    }
  }
  char folder[] = "/tmp/operating_bench.XXXXXX";
  MR_CHECK(mkdtemp(folder) != nullptr);
  Protection(flags, StrCat(folder, "/certs"));
  Observation(flags);
  Tracing(flags);
  IdleServer(flags, folder);
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
