// SPDX-License-Identifier: Apache-2.0
// What the fields of SessionOptions and ServerOptions say of GPUs, on a machine that has three of
// them, as far as anybody asks.
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "device/fake/fake_device.h"
#include "millrace/ops.h"
#include "millrace/server.h"
#include "millrace/session.h"
#include "runtime/gpu.h"

namespace millrace {
namespace {

// What a build is asked, instead of a driver. No device is made: `there` is 0 while tasks are.
struct Asked {
  int there = 0;
  std::vector<AcceleratorOptions> options;
} asked;

const GpuSupport kSupport = {
    .count = [](const AcceleratorOptions& options) -> StatusOr<int> {
      asked.options.push_back(options);
      return asked.there;
    },
    .factory = [](const AcceleratorOptions&) { return FakeDeviceFactory(); },
    .register_kernels = [](const OpRegistry&, KernelRegistry&) {},
};

class GpuFieldsTest : public ::testing::Test {
 protected:
  GpuFieldsTest() {
    asked = Asked();
    SetGpuSupportForTest(&kSupport);
  }
  ~GpuFieldsTest() override {
    EXPECT_TRUE(SetGpuOptions({}).ok());
    SetGpuSupportForTest(nullptr);
  }

  static Status OpenSession(const SessionOptions& options) {
    Graph graph;
    ops::NoOp(graph.root());
    return Session::Create(graph, options).status();
  }
  static Status MakeServer(ServerOptions options) {
    EXPECT_TRUE(options.cluster.AddTask("worker", 0, "127.0.0.1:0").ok());
    options.job_name = "worker";
    return Server::Create(options).status();
  }
  // How many a task gets of three, with these fields.
  static int CountOf(const GpuFields& fields) {
    pb::ConfigProto config;
    EXPECT_TRUE(ToConfig(fields, &config).ok());
    std::map<std::string, int> counts(config.device_count().begin(), config.device_count().end());
    DeviceFactories factories;
    asked.there = 3;
    EXPECT_TRUE(AddGpus(config, &factories, &counts).ok());
    EXPECT_EQ(factories.empty(), counts["GPU"] == 0);
    return counts["GPU"];
  }
};

// Both kinds of options, each of which sets the fields by itself.
template <typename Options>
Options Chosen() {
  Options options;
  options.num_gpu_devices = 2;
  options.gpu_memory_fraction = 0.25;
  options.gpu_allow_growth = true;
  options.visible_gpus = "2,0";
  return options;
}
const AcceleratorOptions kChosen = {
    .memory_fraction = 0.25, .allow_growth = true, .visible_devices = "2,0"};

TEST_F(GpuFieldsTest, ASessionTakesItsGpusAsItsFieldsSay) {
  const Status status = OpenSession(Chosen<SessionOptions>());
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(asked.options.size(), 1u);
  EXPECT_EQ(asked.options[0], kChosen);
}

TEST_F(GpuFieldsTest, AServerTakesItsGpusAsItsFieldsSay) {
  const Status status = MakeServer(Chosen<ServerOptions>());
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(asked.options.size(), 1u);
  EXPECT_EQ(asked.options[0], kChosen);
}

TEST_F(GpuFieldsTest, FieldsThatSayNothingLeaveItToTheProcess) {
  ASSERT_TRUE(SetGpuOptions({.memory_fraction = 0.5, .visible = "1"}).ok());
  ASSERT_TRUE(OpenSession({.num_gpu_devices = 1}).ok());
  ASSERT_TRUE(MakeServer({}).ok());
  const AcceleratorOptions process = {.memory_fraction = 0.5, .visible_devices = "1"};
  EXPECT_EQ(asked.options, std::vector({process, process}));
  // One field that says something is taken with the other ones.
  ASSERT_TRUE(OpenSession({.gpu_allow_growth = true}).ok());
  EXPECT_EQ(asked.options.back(), AcceleratorOptions{.allow_growth = true});
}

TEST_F(GpuFieldsTest, ANumberOfGpusIsTheMostThatATaskGets) {
  EXPECT_EQ(CountOf({}), 3);
  EXPECT_EQ(CountOf({.num_gpu_devices = 0}), 0);
  EXPECT_EQ(CountOf({.num_gpu_devices = 2}), 2);
  EXPECT_EQ(CountOf({.num_gpu_devices = 5}), 3);
}

TEST_F(GpuFieldsTest, ATaskWithoutGpusAsksNobody) {
  ASSERT_TRUE(OpenSession({.num_gpu_devices = 0}).ok());
  ServerOptions none;
  none.num_gpu_devices = 0;
  ASSERT_TRUE(MakeServer(none).ok());
  EXPECT_TRUE(asked.options.empty());
}

TEST_F(GpuFieldsTest, WhatCannotBeIsRefusedByTheNameOfItsField) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::pair<GpuFields, std::string> cases[] = {
      {{.num_gpu_devices = -2}, "num_gpu_devices must be from 0 to 1024"},
      {{.num_gpu_devices = 1025}, "not 1025"},
      {{.gpu_memory_fraction = 1.5}, "gpu_memory_fraction must be from 0 to 1"},
      {{.gpu_memory_fraction = -0.1}, "gpu_memory_fraction"},
      {{.gpu_memory_fraction = nan}, "gpu_memory_fraction"},
      {{.visible_gpus = "0,one"}, "is \"one\""},
      {{.visible_gpus = "0,"}, "is \"\""},
      {{.visible_gpus = "-1"}, "visible_gpus must be numbers of GPUs"},
      {{.visible_gpus = "1,0,1"}, "visible_gpus names GPU 1 twice"},
  };
  for (const auto& [fields, phrase] : cases) {
    SessionOptions session;
    ServerOptions server;
    const auto set = [&fields = fields](auto& options) {
      options.num_gpu_devices = fields.num_gpu_devices;
      options.gpu_memory_fraction = fields.gpu_memory_fraction;
      options.visible_gpus = fields.visible_gpus;
    };
    set(session);
    set(server);
    for (const Status& status : {OpenSession(session), MakeServer(server)}) {
      EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
      EXPECT_NE(Message(status).find(phrase), std::string::npos) << status << " without " << phrase;
    }
  }
  EXPECT_TRUE(asked.options.empty());
  const Status process = SetGpuOptions({.visible = "0;1"});
  EXPECT_TRUE(errors::IsInvalidArgument(process)) << process;
  EXPECT_NE(Message(process).find("GpuOptions.visible"), std::string::npos) << process;
}

TEST_F(GpuFieldsTest, AServersGpusAreNotForItsClientsToChoose) {
  const std::string target = "grpc://127.0.0.1:1";
  for (const SessionOptions& options : {SessionOptions{.target = target, .num_gpu_devices = 1},
                                        SessionOptions{.target = target, .gpu_allow_growth = true},
                                        SessionOptions{.target = target, .visible_gpus = "0"}}) {
    const Status status = OpenSession(options);
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
    EXPECT_NE(Message(status).find(target), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace millrace
