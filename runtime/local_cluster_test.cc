// SPDX-License-Identifier: Apache-2.0
#include "runtime/local_cluster.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "session/client_session.h"

namespace millrace {
namespace {

// A float variable "v", "set" from the placeholder "x", and "is_set" that tells if it was.
pb::GraphDef VariableGraph() {
  pb::GraphDef graph;
  graph.mutable_versions()->set_producer(1000);
  const auto add = [&graph](const char* name, const char* op, std::vector<const char*> inputs) {
    pb::NodeDef* node = graph.add_node();
    node->set_name(name);
    node->set_op(op);
    for (const char* input : inputs) node->add_input(input);
    return node->mutable_attr();
  };
  auto* v = add("v", "VariableV2", {});
  (*v)["dtype"].set_type(pb::DT_FLOAT);
  (*v)["shape"].mutable_shape();
  auto* w = add("w", "VariableV2", {});
  *w = *v;
  (*add("set", "Assign", {"v", "w"}))["T"].set_type(pb::DT_FLOAT);
  (*add("is_set", "IsVariableInitialized", {"v"}))["dtype"].set_type(pb::DT_FLOAT);
  return graph;
}

std::unique_ptr<ClientSession> NewSession(const std::shared_ptr<MasterInterface>& master) {
  auto session = ClientSession::Create(master, VariableGraph(), {});
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

bool IsSet(ClientSession& session) {
  const auto result = session.Run({}, {"is_set"});
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() && (*result)[0].scalar<bool>();
}

TEST(LocalCluster, RunsAGraphOfRealKernels) {
  const auto master = NewLocalCluster({});
  ASSERT_TRUE(master.ok()) << master.status();
  auto session = NewSession(*master);
  ASSERT_NE(session, nullptr);
  EXPECT_FALSE(IsSet(*session));
  const auto set = session->Run({{"w", Tensor::Scalar<float>(3)}}, {"set"});
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ((*set)[0].scalar<float>(), 3);
  EXPECT_TRUE(IsSet(*session));
  const auto value = session->Run({}, {"v"});
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ((*value)[0].scalar<float>(), 3);
}

TEST(LocalCluster, AnUnsetVariableSaysItsName) {
  const auto master = NewLocalCluster({});
  ASSERT_TRUE(master.ok()) << master.status();
  auto session = NewSession(*master);
  ASSERT_NE(session, nullptr);
  const auto value = session->Run({}, {"v"});
  EXPECT_TRUE(errors::IsFailedPrecondition(value.status())) << value.status();
  EXPECT_THAT(std::string(Message(value.status())),
              ::testing::HasSubstr("Attempting to use uninitialized value v"));
}

TEST(LocalCluster, HasStateOfItsOwn) {
  const auto first = NewLocalCluster({}), second = NewLocalCluster({});
  ASSERT_TRUE(first.ok() && second.ok());
  auto one = NewSession(*first), same = NewSession(*first), other = NewSession(*second);
  ASSERT_TRUE(one->Run({{"w", Tensor::Scalar<float>(3)}}, {}, {"set"}).ok());
  EXPECT_TRUE(IsSet(*same));
  EXPECT_FALSE(IsSet(*other));
}

TEST(LocalCluster, HasAsManyDevicesAsAskedFor) {
  pb::ConfigProto config;
  (*config.mutable_device_count())["CPU"] = 3;
  const auto master = NewLocalCluster(config);
  ASSERT_TRUE(master.ok()) << master.status();
  auto session = NewSession(*master);
  ASSERT_NE(session, nullptr);
  const auto devices = session->ListDevices();
  ASSERT_TRUE(devices.ok());
  std::vector<std::string> names;
  for (const auto& device : devices->local_devices) names.push_back(device.name());
  EXPECT_THAT(names, ::testing::ElementsAre("/job:localhost/replica:0/task:0/device:CPU:0",
                                            "/job:localhost/replica:0/task:0/device:CPU:1",
                                            "/job:localhost/replica:0/task:0/device:CPU:2"));
}

TEST(LocalCluster, RefusesNumbersThatMakeNoSense) {
  pb::ConfigProto no_devices, many_threads;
  (*no_devices.mutable_device_count())["CPU"] = 0;
  EXPECT_TRUE(errors::IsInvalidArgument(NewLocalCluster(no_devices).status()));
  many_threads.set_inter_op_parallelism_threads(1'000'000);
  EXPECT_TRUE(errors::IsInvalidArgument(NewLocalCluster(many_threads).status()));
}

TEST(LocalCluster, RunsInTheCallersThreadIfAskedTo) {
  pb::ConfigProto config;
  config.set_inter_op_parallelism_threads(-1);
  config.set_intra_op_parallelism_threads(-1);
  const auto master = NewLocalCluster(config);
  ASSERT_TRUE(master.ok()) << master.status();
  auto session = NewSession(*master);
  ASSERT_NE(session, nullptr);
  EXPECT_FALSE(IsSet(*session));
}

TEST(ConnectTarget, RefusesTextThatIsNoTarget) {
  EXPECT_TRUE(ConnectTarget("", {}).ok());
  EXPECT_TRUE(errors::IsInvalidArgument(ConnectTarget("carrier-pigeon", {}).status()));
}

}  // namespace
}  // namespace millrace
