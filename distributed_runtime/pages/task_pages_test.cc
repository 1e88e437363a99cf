// SPDX-License-Identifier: Apache-2.0
// The pages of real tasks, over HTTP and over gRPC, while they run steps.
#include "distributed_runtime/pages/task_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/errors.h"
#include "base/strings.h"
#include "distributed_runtime/pages/cluster_trace.h"
#include "distributed_runtime/pages/pages_test_util.h"
#include "distributed_runtime/service/observe_service.h"
#include "distributed_runtime/stub/remote_master.h"
#include "millrace/version.h"
#include "observe/open_metrics.h"
#include "observe/visitor_testlib.h"
#include "tests/cluster/certificate_files.h"
#include "transport/grpc/blocking_call.h"
#include "transport/grpc/client_pool.h"
#include "transport/grpc/health_watch_testlib.h"

namespace millrace {
namespace {

using std::chrono::seconds;
using testing::Get;
using ::testing::HasSubstr;
using ::testing::Not;

class TaskPagesTest : public PagesTest {
 protected:
  std::string Page(const std::string& path) {
    const testing::Answer answer = Get(http_->port(), path);
    EXPECT_EQ(answer.status, 200) << path;
    return answer.body;
  }
  std::vector<MetricSample> Metrics() {
    const auto samples = ParseOpenMetrics(
        Get(http_->port(), "/metrics", "Accept: application/openmetrics-text\r\n").body);
    EXPECT_TRUE(samples.ok()) << samples.status();
    return samples.ok() ? *samples : std::vector<MetricSample>();
  }
  static double Value(const std::vector<MetricSample>& samples, std::string_view name,
                      std::string_view label = "", std::string_view text = "") {
    for (const MetricSample& sample : samples) {
      if (sample.name == name && sample.Label(label) == text) return sample.value;
    }
    ADD_FAILURE() << "no " << name << " with " << label << " " << text;
    return -1;
  }
};

TEST_F(TaskPagesTest, StatusSaysWhoTheTaskIsAndOfWhomItHasHeard) {
  RunSteps(1);
  const std::string page = Page("/statusz");
  EXPECT_THAT(page, HasSubstr(kWorker));
  EXPECT_THAT(page, HasSubstr(worker_->address()));
  EXPECT_THAT(page, HasSubstr(kPs));
  EXPECT_THAT(page, HasSubstr(ps_->address()));
  EXPECT_THAT(page, HasSubstr("inter_op_threads"));
  for (const char* flag :
       {"max_message_size", "max_connections", "max_calls", "max_method_calls", "gpus"}) {
    EXPECT_THAT(page, HasSubstr(StrCat("<td>", flag))) << "what is in force by default";
  }
  EXPECT_THAT(page, HasSubstr(StrCat(kWorker, "/device:CPU:0")));
  EXPECT_THAT(page, Not(HasSubstr("<td>never</td>"))) << "the ps has answered";
  EXPECT_THAT(page, HasSubstr("<td>Millrace " MILLRACE_VERSION "</td>")) << "as its version";
}

TEST_F(TaskPagesTest, StepsAreThereWithTheTasksThatTookPart) {
  RunSteps(3);
  EXPECT_FALSE(session_->Run({}, {}, {"fail"}).ok());
  const std::string page = Page("/stepz");
  EXPECT_THAT(page, HasSubstr("Steps that have ended: 4, with an error: 1."));
  EXPECT_THAT(page, HasSubstr("bad luck"));
  EXPECT_THAT(page, HasSubstr(StrCat(kPs, " ")));
  EXPECT_THAT(page, HasSubstr("No step is running."));
}

TEST_F(TaskPagesTest, AClientsRequestIsNamedByEveryTaskThatWorkedForIt) {
  TestGraph graph;
  graph.Fail("fail", "/job:ps");
  // Over the wire, as a client of another process.
  auto session =
      ClientSession::Create(NewGrpcRemoteMaster(worker_->address(), ClientPool()), graph.def(), {});
  ASSERT_TRUE(session.ok()) << session.status();
  ::testing::internal::CaptureStderr();
  const Status failed = (*session)->Run({}, {}, {"fail"}).status();
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string text(failed.message());
  const std::size_t at = text.rfind("[request ");
  ASSERT_NE(at, std::string::npos) << text;
  const std::string request = text.substr(at, std::string("[request 0123456789abcdef]").size());
  EXPECT_THAT(Page("/stepz"), HasSubstr(StrCat("<td>", request.substr(9, 16), "</td>")));
  for (const char* method : {"RunStep", "RunGraph"}) {  // of the worker, and of the ps
    const std::size_t line = log.find(StrCat(method, " of session"));
    ASSERT_NE(line, std::string::npos) << method << " in " << log;
    EXPECT_THAT(log.substr(line, log.find('\n', line) - line), HasSubstr(request));
  }
}

TEST_F(TaskPagesTest, MetricsCountStepsCallsAndBytesByPeer) {
  const std::vector<MetricSample> before = Metrics();
  RunSteps(5);
  const std::vector<MetricSample> after = Metrics();
  EXPECT_EQ(Value(after, "millrace_steps_total") - Value(before, "millrace_steps_total"), 5);
  EXPECT_EQ(Value(after, "millrace_steps_running"), 0);
  EXPECT_EQ(Value(after, "millrace_step_seconds_count"), 5);
  EXPECT_GT(Value(after, "millrace_step_seconds_sum"), 0);
  EXPECT_EQ(Value(after, "millrace_peer_received_bytes_total", "peer", kPs), 5 * 4)
      << "a float each";
  EXPECT_EQ(Value(after, "millrace_peer_receives_waiting", "peer", kPs), 0);
  EXPECT_LT(Value(after, "millrace_peer_silence_seconds", "peer", kPs), 60);
  EXPECT_EQ(Value(after, "millrace_peer_info", "address", ps_->address()), 1);
  EXPECT_EQ(Value(after, "millrace_build_info", "version", MILLRACE_VERSION), 1);
  EXPECT_GT(Value(after, "millrace_tensor_peak_bytes", "device", StrCat(kWorker, "/device:CPU:0")),
            0);
  EXPECT_GT(Value(after, "process_resident_memory_bytes"), 1e6);
  EXPECT_GT(Value(after, "process_start_time_seconds"), 1.6e9);
  // What the ps was asked for, at the ps.
  const auto page = ReadPage(ps_->address(), "/metrics", DeadlineAfter(seconds(30)));
  ASSERT_TRUE(page.ok()) << page.status();
  const auto ps = ParseOpenMetrics(page->body);
  ASSERT_TRUE(ps.ok()) << ps.status();
  EXPECT_EQ(Value(*ps, "millrace_rpc_calls_total", "method", "/tensorflow.WorkerService/RunGraph"),
            5);
}

TEST_F(TaskPagesTest, CallsAndMemoryArePagesToo) {
  RunSteps(1);
  EXPECT_THAT(Get(http_->port(), "/healthz").body, "ok\n");
  EXPECT_THAT(Page("/memz"), HasSubstr("resident"));
  Get(http_->port(), "/rpcz");
  const auto page = ReadPage(worker_->address(), "/rpcz", DeadlineAfter(seconds(30)));
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(page->body, HasSubstr("/tensorflow.WorkerService/"));
  EXPECT_THAT(page->body, Not(HasSubstr("RecvBuf"))) << "nobody has called it";
  EXPECT_THAT(Page("/rpcz?all=1"), HasSubstr("<td>/tensorflow.WorkerService/RecvBuf</td>"));
  EXPECT_THAT(Page("/"), HasSubstr("<a href=\"/stepz\">"));
}

TEST_F(TaskPagesTest, PrometheusOwnCheckFindsNothingToSay) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) {
    ASSERT_EQ(std::getenv("MILLRACE_REQUIRE_PROMETHEUS"), nullptr) << "there is no promtool";
    GTEST_SKIP() << "there is no promtool: install prometheus";
  }
  RunSteps(1);
  const std::string file = StrCat(::testing::TempDir(), "/metrics.txt");
  std::ofstream(file) << Get(http_->port(), "/metrics").body;
  EXPECT_EQ(std::system(StrCat("promtool check metrics < ", file, " 2>&1").c_str()), 0);
}

TEST_F(TaskPagesTest, ATraceHasThePartsOfAllTasksAndTheClientSeesNothingOfIt) {
  StatusOr<pb::TraceResponse> trace = errors::Internal("no answer");
  std::thread tracing([&] { trace = TraceSteps(worker_->address(), 2, std::chrono::seconds(30)); });
  std::atomic<bool> over{false};
  std::thread client([&] {
    while (!over.load()) {
      ClientSession::RunRequest request;
      request.feeds = {{"x", Tensor::Scalar(1.0f)}};
      request.fetches = {"sum"};
      pb::RunMetadata metadata;
      EXPECT_TRUE(session_->Run(request, &metadata).ok());
      EXPECT_EQ(metadata.step_stats().dev_stats_size(), 0);
    }
  });
  tracing.join();
  over.store(true);
  client.join();
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->task(), kWorker);
  ASSERT_EQ(trace->step_size(), 2);
  for (const pb::TracedStep& step : trace->step()) {
    std::set<std::string> tasks;
    for (const pb::TracedPart& part : step.part()) {
      tasks.insert(part.task());
      EXPECT_LE(part.sent_nanos(), part.answered_nanos());
      EXPECT_GT(part.stats().dev_stats_size(), 0) << part.task();
    }
    EXPECT_EQ(tasks, (std::set<std::string>{kPs, kWorker}));
  }
}

// Of what the test itself sees of a trace: how long its longest step was.
int64_t LongestStep(const pb::TraceResponse& trace) {
  int64_t longest = 0;
  for (const pb::TracedStep& step : trace.step()) {
    int64_t begin = INT64_MAX, end = 0;
    for (const pb::TracedPart& part : step.part()) {
      begin = std::min(begin, part.sent_nanos());
      end = std::max(end, part.answered_nanos());
    }
    longest = std::max(longest, end - begin);
  }
  return longest;
}

TEST_F(TaskPagesTest, ASkewOfFiveSecondsIsFoundInATraceOfRealSteps) {
  StatusOr<pb::TraceResponse> trace = errors::Internal("no answer");
  std::thread tracing([&] { trace = TraceSteps(worker_->address(), 5, std::chrono::seconds(30)); });
  std::atomic<bool> over{false};
  std::thread client([&] {
    while (!over.load()) RunSteps(1);
  });
  tracing.join();
  over.store(true);
  client.join();
  ASSERT_TRUE(trace.ok() && trace->step_size() == 5) << trace.status();
  const int64_t longest = LongestStep(*trace);
  // Both tasks are in this process, and so is their clock.
  for (const int64_t skew : {int64_t{0}, int64_t{5'000'000'000}, int64_t{-5'000'000'000}}) {
    std::vector<pb::TraceResponse> traces = {*trace};
    int shifted = 0;
    for (pb::TracedStep& step : *traces[0].mutable_step()) {
      for (pb::TracedPart& part : *step.mutable_part()) {
        if (part.task() != kPs) continue;
        for (pb::DeviceStepStats& device : *part.mutable_stats()->mutable_dev_stats()) {
          for (pb::NodeExecStats& node : *device.mutable_node_stats()) {
            node.set_all_start_nanos(node.all_start_nanos() + skew);
            ++shifted;
          }
        }
      }
    }
    ASSERT_GT(shifted, 0);
    const auto ahead = AlignClocks(traces);
    EXPECT_EQ(ahead.at(kWorker), 0);
    EXPECT_LE(std::abs(ahead.at(kPs) - skew), longest);
    SetClocks(ahead, &traces);
    int transfers = 0;
    for (const pb::TracedStep& step : traces[0].step()) {
      for (const TracedTransfer& transfer : FindTransfers(step)) {
        ++transfers;
        EXPECT_LE(transfer.send->all_start_nanos(),
                  transfer.receive->all_start_nanos() + transfer.receive->all_end_rel_nanos());
      }
    }
    EXPECT_GE(transfers, 5) << "one in each step";
  }
}

TEST_F(TaskPagesTest, AStepThatTheMasterRunsByItselfIsTracedAsWell) {
  StatusOr<pb::TraceResponse> trace = errors::Internal("no answer");
  std::thread tracing([&] { trace = TraceSteps(worker_->address(), 1, std::chrono::seconds(30)); });
  std::atomic<bool> over{false};
  std::thread client([&] {
    while (!over.load()) EXPECT_TRUE(session_->Run({}, {"near"}).ok());
  });
  tracing.join();
  over.store(true);
  client.join();
  ASSERT_TRUE(trace.ok() && trace->step_size() == 1) << trace.status();
  EXPECT_EQ(trace->step(0).part(0).task(), kWorker);
}

TEST_F(TaskPagesTest, ACallableOfOneTaskIsTracedAndItsCallerSeesNothingOfIt) {
  pb::CallableOptions options;
  options.add_fetch("near");
  const StatusOr<int64_t> callable = session_->MakeCallable(options);
  ASSERT_TRUE(callable.ok()) << callable.status();
  StatusOr<pb::TraceResponse> trace = errors::Internal("no answer");
  std::thread tracing([&] { trace = TraceSteps(worker_->address(), 2, std::chrono::seconds(30)); });
  std::atomic<bool> over{false};
  std::thread client([&] {
    while (!over.load()) {
      pb::RunMetadata metadata;
      EXPECT_TRUE(session_->RunCallable(*callable, {}, &metadata).ok());
      EXPECT_EQ(metadata.step_stats().dev_stats_size(), 0);
    }
  });
  tracing.join();
  over.store(true);
  client.join();
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->step_size(), 2);
  for (const pb::TracedStep& step : trace->step()) {
    ASSERT_EQ(step.part_size(), 1);
    EXPECT_EQ(step.part(0).task(), kWorker);
    EXPECT_GT(step.part(0).stats().dev_stats_size(), 0);
  }
}

TEST_F(TaskPagesTest, GrpcsHealthServiceSaysThatItServesUntilItStops) {
  // Without a service in the request; field 1 of the answer is a number, as that of a page: SERVING
  // is 1.
  const auto check = [](const std::string& address, pb::PageResponse* answer) {
    return CallAndWait(address, "/grpc.health.v1.Health/Check", pb::PageRequest(),
                       DeadlineAfter(seconds(20)), nullptr, answer);
  };
  pb::PageResponse answer;
  const Status checked = check(ps_->address(), &answer);
  ASSERT_TRUE(checked.ok()) << checked;
  EXPECT_EQ(answer.status(), 1);
  pb::PageRequest named;
  named.set_target("tensorflow.WorkerService");  // field 1: the service
  EXPECT_TRUE(CallAndWait(ps_->address(), "/grpc.health.v1.Health/Check", named,
                          DeadlineAfter(seconds(20)), nullptr, &answer)
                  .ok());
  named.set_target("no.such.Service");
  EXPECT_EQ(CallAndWait(ps_->address(), "/grpc.health.v1.Health/Check", named,
                        DeadlineAfter(seconds(20)), nullptr, &answer)
                .code(),
            StatusCode::kNotFound);
  const std::string address = ps_->address();
  testing::HealthWatch watch(testing::ChannelTo(address), "tensorflow.WorkerService");
  EXPECT_EQ(watch.Next(), testing::kServing);
  session_ = nullptr;
  EXPECT_TRUE(ps_->Stop(DeadlineAfter(seconds(1))).ok());
  EXPECT_FALSE(check(address, &answer).ok());
  EXPECT_EQ(watch.Next(), testing::kNotServing);
  EXPECT_EQ(watch.Next(), testing::kEnded);
}

TEST_F(TaskPagesTest, PagesOutliveTheirTaskAndSaySo) {
  session_ = nullptr;
  EXPECT_TRUE(worker_->Stop(SteadyClock::now()).ok());
  EXPECT_EQ(Get(http_->port(), "/statusz").status, 503);
  EXPECT_EQ(ServePublishedPages(worker_->address(), "127.0.0.1:0").status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(TaskPagesTokenTest, ATaskWithATokenAsksItsVisitorsForIt) {
  const std::string file = StrCat(::testing::TempDir(), "/token");
  std::ofstream(file) << "correct-horse-battery\n";
  std::filesystem::permissions(
      file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  Credentials token;
  token.token_file = file;
  const auto server = MakePagesServer(*ClusterSpec::Parse("worker|127.0.0.1:0"), "worker", token);
  ASSERT_TRUE(server->Start().ok());
  const auto http = *ServePublishedPages(server->address(), "127.0.0.1:0");
  EXPECT_EQ(Get(http->port(), "/statusz").status, 401);
  EXPECT_EQ(Get(http->port(), "/metrics").status, 401);
  EXPECT_EQ(Get(http->port(), "/healthz").status, 200);
  EXPECT_EQ(Get(http->port(), "/statusz", "Authorization: Bearer correct-horse-battery\r\n").status,
            200);
}

TEST(TaskPagesHealthTest, ATaskWhoseCertificateHasExpiredIsNotHealthyAndSaysWhy) {
  testing::CertificateFiles files;
  Credentials credentials =
      files.Issue(files.Task("worker", 0), {.from = -std::chrono::hours(1), .until = seconds(10)});
  credentials.token_file = files.Token("correct-horse-battery");  // pages over HTTP need one
  const auto server =
      MakePagesServer(*ClusterSpec::Parse("worker|127.0.0.1:0"), "worker", credentials);
  ASSERT_TRUE(server->Start().ok());
  const auto http = *ServePublishedPages(server->address(), "127.0.0.1:0");
  auto answer = Get(http->port(), "/healthz");  // well, unless it has taken ten seconds to get here
  const auto limit = std::chrono::steady_clock::now() + seconds(60);
  while (answer.status == 200 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    answer = Get(http->port(), "/healthz");
  }
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("not serving: the certificate " + credentials.tls_cert));
  EXPECT_THAT(answer.body, HasSubstr("has expired"));
}

TEST(ResourceLineTest, NumbersAreFoundBeforeTheirWord) {
  const ResourceLine queue{"c/q", "FIFOQueue 'q' capacity 32, 3 elements, closed"};
  EXPECT_EQ(queue.NumberBefore("elements"), 3);
  EXPECT_EQ(queue.NumberBefore("gradients"), -1);
  EXPECT_EQ((ResourceLine{"c/b", "staleness bound 'b' of 4, 2 steps, 9 updates, at most 3 old"}
                 .NumberBefore("old")),
            3);
  EXPECT_EQ((ResourceLine{"c/s", "StagingArea, 2 tuples"}.NumberBefore("tuples")), 2);
  const ResourceLine barrier{"c/b", "Barrier b, 4 ready, 1 incomplete"};
  EXPECT_EQ(barrier.NumberBefore("ready"), 4);
  EXPECT_EQ(barrier.NumberBefore("elements"), -1);
}

}  // namespace
}  // namespace millrace
