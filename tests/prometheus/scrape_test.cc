// SPDX-License-Identifier: Apache-2.0
// A real Prometheus reads the metrics of real servers, and answers the questions that
// docs/operating.md has for it.
//
// Where there is no `prometheus` the test is skipped; with MILLRACE_REQUIRE_PROMETHEUS in the
// environment that is a failure.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "tests/cluster/free_ports.h"
#include "tests/cluster/process.h"

namespace millrace::testing {
namespace {

using Json = nlohmann::json;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr char kToken[] = "correct-horse-battery-staple";
constexpr seconds kPatience(60);

// The first file of that name in PATH that may be run; "" if there is none.
std::string FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const std::string_view folder : StrSplit(path == nullptr ? "" : path, ':')) {
    const std::string file = StrCat(folder, "/", name);
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// What follows the headers of the answer to a GET; "" if there is none.
std::string Get(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    // 1.0: no chunks.
    const std::string request = StrCat("GET ", path, " HTTP/1.0\r\nHost: localhost\r\n\r\n");
    if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
      char buffer[4096];
      for (ssize_t n; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
        answer.append(buffer, static_cast<std::size_t>(n));
      }
    }
  }
  close(fd);
  const std::size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

std::string Escaped(const std::string& query) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string escaped;
  for (const char c : query) {
    const auto byte = static_cast<unsigned char>(c);
    escaped += '%';
    escaped += kDigits[byte >> 4];
    escaped += kDigits[byte & 15];
  }
  return escaped;
}

class ScrapeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    program_ = FindProgram("prometheus");
    if (program_.empty()) {
      if (std::getenv("MILLRACE_REQUIRE_PROMETHEUS") != nullptr) FAIL() << "no prometheus";
      GTEST_SKIP() << "there is no prometheus";
    }
    folder_ = ::testing::TempDir();
    token_file_ = folder_ + "/token";
    std::ofstream(token_file_) << kToken << "\n";
    ASSERT_EQ(chmod(token_file_.c_str(), 0600), 0);
    const std::vector<int> ports = FreePorts(5);
    spec_ = StrCat("ps|127.0.0.1:", ports[0], ",worker|127.0.0.1:", ports[1]);
    ps_ = Serve("ps", ports[2]);
    worker_ = Serve("worker", ports[3]);
    target_ = StrCat("grpc://127.0.0.1:", ports[1]);
    port_ = ports[4];
    Scrape({ports[2], ports[3]});
  }

  std::unique_ptr<Process> Serve(const std::string& job, int http) const {
    auto server = std::make_unique<Process>(
        "tools/millrace",
        std::vector<std::string>{"server", "--cluster_spec=" + spec_, "--job_name=" + job,
                                 "--token_file=" + token_file_, StrCat("--http=127.0.0.1:", http)});
    EXPECT_TRUE(server->WaitForOutput("pages at", kPatience)) << server->output();
    return server;
  }

  void Scrape(const std::vector<int>& ports) {
    const std::string config = folder_ + "/prometheus.yml";
    std::ofstream(config) << "scrape_configs:\n"
                          << "  - job_name: millrace\n"
                          << "    scrape_interval: 200ms\n"
                          << "    scrape_timeout: 200ms\n"
                          << "    authorization: {type: Bearer, credentials_file: " << token_file_
                          << "}\n"
                          << "    static_configs:\n"
                          << "      - targets: ['127.0.0.1:" << ports[0]
                          << "', '127.0.0.1:" << ports[1] << "']\n";
    prometheus_ = std::make_unique<Process>(
        program_, std::vector<std::string>{"--config.file=" + config,
                                           "--storage.tsdb.path=" + folder_ + "/prometheus",
                                           StrCat("--web.listen-address=127.0.0.1:", port_)});
    ASSERT_TRUE(prometheus_->WaitForOutput("ready to receive", kPatience)) << prometheus_->output();
  }

  // The values of a query, once there are `count` that are all above `above`; else what was there
  // last.
  std::vector<double> Ask(const std::string& query, std::size_t count, double above = -1) const {
    std::vector<double> values;
    for (const auto limit = steady_clock::now() + kPatience; steady_clock::now() < limit;
         std::this_thread::sleep_for(std::chrono::milliseconds(200))) {
      values.clear();
      const Json answer = Json::parse(Get(port_, "/api/v1/query?query=" + Escaped(query)), nullptr,
                                      /*allow_exceptions=*/false);
      if (answer.is_discarded() || answer.value("status", "") != "success") continue;
      bool enough = true;
      for (const Json& row : answer["data"]["result"]) {
        values.push_back(std::strtod(row["value"][1].get<std::string>().c_str(), nullptr));
        enough = enough && values.back() > above;
      }
      if (values.size() == count && enough) return values;
    }
    ADD_FAILURE() << query << " has " << values.size() << " values, not " << count << " above "
                  << above;
    return values;
  }

  std::string program_, folder_, token_file_, spec_, target_;
  int port_ = 0;
  std::unique_ptr<Process> ps_, worker_, prometheus_;
};

TEST_F(ScrapeTest, AnswersWhatOperatorsAsk) {
  Graph graph;
  const Scope root = graph.root();
  const Output x = Placeholder(root, kFloat, PartialShape({}));
  const Output far = ops::Neg(root.WithDevice("/job:ps"), x);
  const Output sum = ops::Neg(root.WithDevice("/job:worker"), far);
  SessionOptions options;
  options.target = target_;
  options.credentials.token_file = token_file_;
  auto session = Session::Create(graph, options);
  ASSERT_TRUE(session.ok()) << session.status();
  bool stop = false;
  std::mutex mu;
  std::thread client([&] {
    for (;;) {
      const auto value = session->Run({{x, Tensor::Scalar(1.0f)}}, {sum});
      EXPECT_TRUE(value.ok()) << value.status();
      std::lock_guard lock(mu);
      if (stop || !value.ok()) return;
    }
  });
  EXPECT_EQ(Ask("up", 2, 0), (std::vector<double>{1, 1}));
  Ask("millrace_task_info", 2, 0);
  Ask("rate(millrace_steps_total{instance=~\".+\"}[1m]) > 0", 1, 0);
  Ask("histogram_quantile(0.99, rate(millrace_step_seconds_bucket[1m])) > 0", 1, 0);
  Ask("topk(3, rate(millrace_peer_receive_seconds_sum[1m])) > 0", 2, 0);
  Ask("millrace_tensor_bytes", 2);
  {
    std::lock_guard lock(mu);
    stop = true;
  }
  client.join();
  // Nothing was wrong with what it read: no target has an error.
  const std::string targets = Get(port_, "/api/v1/targets");
  EXPECT_THAT(targets, HasSubstr("\"lastError\":\"\",\"lastScrape\""));
  // A task that is gone shows.
  ps_.reset();
  Ask("up == 0", 1);
}

}  // namespace
}  // namespace millrace::testing
