// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/limited_master.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "session/forwarding_master.h"

namespace millrace {
namespace {

// Opens sessions "0", "1", ...; adds whatever it is told to, or fails.
class SomeMaster final : public ForwardingMaster {
 public:
  SomeMaster() : ForwardingMaster(nullptr) {}
  void CreateSessionAsync(const CallOptions&, CreateSessionArgs, CreateSessionResult* result,
                          Done done) override {
    result->session_handle = StrCat(count_++);
    open_.push_back(result->session_handle);
    // A master lists a session before its client hears of it.
    if (when_listed) when_listed();
    done(next);
  }
  void ExtendSessionAsync(const CallOptions&, ExtendSessionArgs, int64_t*, Done done) override {
    done(next);
  }
  std::vector<std::string> open() const { return open_; }
  void Close(const std::string& handle) { std::erase(open_, handle); }

  Status next;
  std::function<void()> when_listed;

 private:
  int count_ = 0;
  std::vector<std::string> open_;
};

pb::GraphDef GraphOf(int nodes, int nodes_of_function = 0) {
  pb::GraphDef graph;
  for (int i = 0; i < nodes; ++i) graph.add_node()->set_name(StrCat("n", i));
  if (nodes_of_function == 0) return graph;
  pb::FunctionDef& function = *graph.mutable_library()->add_function();
  function.mutable_signature()->set_name("f");
  for (int i = 0; i < nodes_of_function; ++i) function.add_node_def()->set_name(StrCat("b", i));
  return graph;
}

class LimitedMasterTest : public ::testing::Test {
 protected:
  void Limit(const SessionQuotas& quotas) {
    limited_ = NewLimitedMaster(&master_, "/job:j/replica:0/task:0", quotas,
                                [this] { return master_.open(); });
  }
  Status Create(const pb::GraphDef& graph, std::string* handle = nullptr) {
    CreateSessionResult result;
    Status status;
    CreateSessionArgs args;
    args.graph = graph;
    limited_->CreateSessionAsync({}, std::move(args), &result,
                                 [&](Status s) { status = std::move(s); });
    if (handle != nullptr) *handle = result.session_handle;
    return status;
  }
  Status Extend(const std::string& handle, const pb::GraphDef& graph) {
    int64_t version = 0;
    Status status;
    ExtendSessionArgs args;
    args.session_handle = handle;
    args.graph = graph;
    limited_->ExtendSessionAsync({}, std::move(args), &version,
                                 [&](Status s) { status = std::move(s); });
    return status;
  }

  SomeMaster master_;
  std::unique_ptr<MasterInterface> limited_;
};

TEST_F(LimitedMasterTest, FunctionsThatAreSentAgainCountOnce) {
  const pb::GraphDef graph = GraphOf(2, 100);
  for (const bool nodes : {true, false}) {
    SessionQuotas quotas;
    (nodes ? quotas.max_graph_nodes : quotas.max_graph_size) =
        nodes ? 110 : static_cast<int64_t>(graph.ByteSizeLong()) + 200;
    Limit(quotas);
    std::string handle;
    ASSERT_TRUE(Create(graph, &handle).ok());
    for (int i = 0; i < 4; ++i) {
      const Status extended = Extend(handle, graph);
      EXPECT_TRUE(extended.ok()) << extended;
    }
    Status status;
    for (int i = 0; i < 20 && status.ok(); ++i) status = Extend(handle, graph);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  }
}

TEST_F(LimitedMasterTest, WhatAMasterRefusedDoesNotCount) {
  Limit({.max_graph_nodes = 110});
  std::string handle;
  ASSERT_TRUE(Create(GraphOf(2), &handle).ok());
  master_.next = errors::InvalidArgument("no");
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(Extend(handle, GraphOf(2, 100)).ok());
  master_.next = OkStatus();
  EXPECT_TRUE(Extend(handle, GraphOf(2, 100)).ok());
  EXPECT_EQ(Extend(handle, GraphOf(7)).code(), StatusCode::kResourceExhausted);
}

TEST_F(LimitedMasterTest, ASessionThatIsBeingOpenedCountsOnce) {
  Limit({.max_sessions = 2});
  Status other;
  master_.when_listed = [&] {
    master_.when_listed = nullptr;
    other = Create(GraphOf(1));
  };
  EXPECT_TRUE(Create(GraphOf(1)).ok());
  EXPECT_TRUE(other.ok()) << other;
  EXPECT_EQ(Create(GraphOf(1)).code(), StatusCode::kResourceExhausted);
  master_.Close("0");
  EXPECT_TRUE(Create(GraphOf(1)).ok());
}

TEST_F(LimitedMasterTest, SessionsThatItDoesNotKnowAreTheMastersToJudge) {
  Limit({.max_graph_nodes = 1, .max_steps = 1});
  EXPECT_TRUE(Extend("nobody", GraphOf(100)).ok());
}

TEST(SessionQuotasTest, LimitTheMasterOnlyWhereOneOfItsOwnIsSet) {
  EXPECT_FALSE(LimitsSessions({}));
  EXPECT_FALSE(LimitsSessions({.session_memory_limit = 1}));
  EXPECT_TRUE(LimitsSessions({.max_sessions = 1}));
  EXPECT_TRUE(LimitsSessions({.max_steps = 1}));
}

}  // namespace
}  // namespace millrace
