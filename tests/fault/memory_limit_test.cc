// SPDX-License-Identifier: Apache-2.0
// The limit of a step's memory as users set it: by the flag of a server, by the configuration of
// a session.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "tests/cluster/server_processes.h"

namespace millrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// "large" takes 4 MiB at the ps, "small" 64 bytes at the worker; each is summed up there.
const pb::GraphDef& Graph() {
  static const auto* const graph = [] {
    auto* def = new pb::GraphDef;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        R"(versions { producer: 1395 }
           node { name: "axes" op: "Const" device: "/job:ps/task:0"
                  attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value {
                    tensor { dtype: DT_INT32 tensor_shape { dim { size: 1 } } int_val: 0 } } } }
           node { name: "axes1" op: "Const" device: "/job:worker/task:0"
                  attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value {
                    tensor { dtype: DT_INT32 tensor_shape { dim { size: 1 } } int_val: 0 } } } }
           node { name: "n" op: "Placeholder" device: "/job:ps/task:0"
                  attr { key: "dtype" value { type: DT_INT32 } } }
           node { name: "m" op: "Placeholder" device: "/job:worker/task:0"
                  attr { key: "dtype" value { type: DT_INT32 } } }
           node { name: "one" op: "Const" device: "/job:ps/task:0"
                  attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value {
                    tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1 } } } }
           node { name: "two" op: "Const" device: "/job:worker/task:0"
                  attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value {
                    tensor { dtype: DT_FLOAT tensor_shape {} float_val: 2 } } } }
           node { name: "large" op: "Fill" input: "n" input: "one" device: "/job:ps/task:0"
                  attr { key: "T" value { type: DT_FLOAT } } }
           node { name: "small" op: "Fill" input: "m" input: "two" device: "/job:worker/task:0"
                  attr { key: "T" value { type: DT_FLOAT } } }
           node { name: "sum" op: "Sum" input: "large" input: "axes" device: "/job:ps/task:0"
                  attr { key: "T" value { type: DT_FLOAT } } }
           node { name: "less" op: "Sum" input: "small" input: "axes1" device: "/job:worker/task:0"
                  attr { key: "T" value { type: DT_FLOAT } } })",
        def));
    return def;
  }();
  return *graph;
}

Tensor Count(int32_t n) { return Tensor::FromValues<int32_t>({n}); }

// Of a step that fills n floats at the ps, and of one that fills n at the worker.
Status Fill(MasterInterface& master, const std::string& session, bool at_ps, int32_t n) {
  RunStepArgs args;
  args.session_handle = session;
  args.feeds = {{at_ps ? "n:0" : "m:0", Count(n)}};
  args.fetches = {at_ps ? "sum:0" : "less:0"};
  const auto values = RunStep(master, std::move(args));
  if (values.ok()) {
    EXPECT_EQ((*values)[0].scalar<float>(), at_ps ? n : 2 * n);
  }
  return values.status();
}

void ExpectBeyondLimit(const Status& status, const std::string& device, const std::string& limit) {
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(
      std::string(Message(status)),
      AllOf(HasSubstr("OOM when allocating tensor with shape[1048576] and type float on " + device),
            HasSubstr("of their limit of " + limit + " bytes")));
}

constexpr char kPs[] = "/job:ps/replica:0/task:0/device:CPU:0";
constexpr char kWorker[] = "/job:worker/replica:0/task:0/device:CPU:0";

TEST(MemoryLimit, OfAServerHoldsForEveryStepInItsTask) {
  const ServerProcesses servers({"--step_memory_limit=1MB"});
  const auto master = servers.Connect();
  ASSERT_NE(master, nullptr);
  for (int i = 0; i < 2; ++i) {
    const StatusOr<std::string> session = OpenSession(*master, Graph());
    ASSERT_TRUE(session.ok()) << session.status();
    for (int step = 0; step < 3; ++step) {
      ExpectBeyondLimit(Fill(*master, *session, true, 1 << 20), kPs, "1048576");
      ExpectBeyondLimit(Fill(*master, *session, false, 1 << 20), kWorker, "1048576");
      EXPECT_TRUE(Fill(*master, *session, true, 1 << 17).ok());
      EXPECT_TRUE(Fill(*master, *session, false, 1 << 17).ok());
    }
  }
}

TEST(MemoryLimit, OfASessionHoldsForItsStepsInAllTasksAlone) {
  const ServerProcesses servers;
  const auto master = servers.Connect();
  ASSERT_NE(master, nullptr);
  pb::ConfigProto config;
  config.mutable_gpu_options()->mutable_experimental()->set_gpu_host_mem_limit_in_mb(2);
  const StatusOr<std::string> limited = OpenSession(*master, Graph(), config);
  const StatusOr<std::string> other = OpenSession(*master, Graph());
  ASSERT_TRUE(limited.ok() && other.ok()) << limited.status() << other.status();
  for (int step = 0; step < 3; ++step) {
    ExpectBeyondLimit(Fill(*master, *limited, true, 1 << 20), kPs, "2097152");
    ExpectBeyondLimit(Fill(*master, *limited, false, 1 << 20), kWorker, "2097152");
    EXPECT_TRUE(Fill(*master, *limited, true, 1 << 18).ok());
    EXPECT_TRUE(Fill(*master, *other, true, 1 << 20).ok());
    EXPECT_TRUE(Fill(*master, *other, false, 1 << 20).ok());
  }
}

TEST(MemoryLimit, TheSmallerOneCounts) {
  const ServerProcesses servers({"--step_memory_limit=1MB"});
  const auto master = servers.Connect();
  ASSERT_NE(master, nullptr);
  pb::ConfigProto config;
  auto* options = config.mutable_gpu_options()->mutable_experimental();
  options->set_gpu_host_mem_limit_in_mb(2);
  const StatusOr<std::string> larger = OpenSession(*master, Graph(), config);
  options->set_gpu_host_mem_limit_in_mb(0.5);
  const StatusOr<std::string> smaller = OpenSession(*master, Graph(), config);
  ASSERT_TRUE(larger.ok() && smaller.ok()) << larger.status() << smaller.status();
  ExpectBeyondLimit(Fill(*master, *larger, true, 1 << 20), kPs, "1048576");
  ExpectBeyondLimit(Fill(*master, *smaller, true, 1 << 20), kPs, "524288");
}

TEST(MemoryLimit, ThatIsNegativeIsRefused) {
  const ServerProcesses servers;
  const auto master = servers.Connect();
  ASSERT_NE(master, nullptr);
  pb::ConfigProto config;
  config.mutable_gpu_options()->mutable_experimental()->set_gpu_host_mem_limit_in_mb(-1);
  StatusOr<std::string> session = OpenSession(*master, Graph(), config);
  const Status status = session.ok() ? Fill(*master, *session, true, 1) : session.status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("gpu_host_mem_limit_in_mb is -1"));
}

}  // namespace
}  // namespace millrace::testing
