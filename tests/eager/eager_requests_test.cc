// SPDX-License-Identifier: Apache-2.0
// The way from the error of an op, or of a function, to the logs of the tasks that ran it.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "base/strings.h"
#include "distributed_runtime/service/observe_service.h"
#include "tests/eager/eager_client.h"

namespace millrace {
namespace {

// " [request 0123456789abcdef]" of an error; "" without one.
std::string NameIn(const Status& status) {
  const std::string text(Message(status));
  const std::size_t at = text.rfind(" [request ");
  if (at == std::string::npos) return "";
  return text.substr(at, text.find(']', at) + 1 - at);
}

// Fails, and what both servers, which are of this process, say meanwhile.
struct Failing {
  explicit Failing(const std::function<Status()>& call) {
    ::testing::internal::CaptureStderr();
    status = call();
    log = ::testing::internal::GetCapturedStderr();
    name = NameIn(status);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(name.size(), std::string(" [request 0123456789abcdef]").size()) << status;
  }
  // What the log says of this request at first: "" if nothing, for that method and op.
  bool Logged(const std::string& method, const std::string& of) const {
    for (const std::string_view line : StrSplit(log, '\n')) {
      const std::string begin = StrCat(" ", method, " of eager context fedcba9876543210", of);
      if (line.find(begin) != std::string_view::npos &&
          line.find(StrCat(" failed", name, ": ")) != std::string_view::npos) {
        return true;
      }
    }
    return false;
  }

  Status status;
  std::string log, name;
};

class EagerRequestsTest : public EagerServiceTest {
 protected:
  EagerRequestsTest() {
    Connect();
    EXPECT_TRUE(worker_.Send(1, Floats({1, 2})).ok());
    EXPECT_TRUE(worker_.Send(2, Floats({1, 2, 3})).ok());
  }
};

TEST_F(EagerRequestsTest, TheErrorOfAnOpIsFoundInTheLogAndOnThePageOfSteps) {
  std::set<std::string> names;
  for (const int64_t id : {3, 4}) {
    const Failing add([&] { return worker_.Enqueue(worker_.Op(id, "AddV2", {1, 2})); });
    EXPECT_EQ(add.status.code(), StatusCode::kInvalidArgument) << add.status;
    EXPECT_TRUE(add.Logged("Enqueue", ", AddV2")) << add.name << "\n" << add.log;
    names.insert(add.name);
    const StatusOr<Page> page = ReadPage(worker_.address_, "/stepz", DeadlineAfter(seconds(60)));
    ASSERT_TRUE(page.ok()) << page.status();
    const std::string number = add.name.substr(std::string(" [request ").size(), 16);
    EXPECT_NE(page->body.find(number), std::string::npos) << number << "\n" << page->body;
  }
  EXPECT_EQ(names.size(), 2u);
}

// A client gives back the handles of an op that failed as it does all others.
TEST_F(EagerRequestsTest, GivingBackWhatAFailedOpNeverMadeIsNoLineOfItsOwn) {
  pb::EnqueueRequest request;
  request.set_context_id(kContext);
  *request.add_queue() = worker_.Op(3, "AddV2", {1, 2});
  *request.add_queue() = worker_.Op(4, "Neg", {3});
  const Failing add([&] {
    pb::EnqueueResponse response;
    return worker_.Call(methods::kEagerEnqueue, request, &response);
  });
  EXPECT_TRUE(add.Logged("Enqueue", ", AddV2")) << add.log;
  for (const int64_t id : {3, 4}) {
    const Failing drop([&] { return worker_.Drop(id); });
    EXPECT_EQ(drop.log.find("handle dropped"), std::string::npos) << drop.log;
  }
  // What nobody has heard of is another matter.
  const Failing unknown([&] { return worker_.Drop(5); });
  EXPECT_TRUE(unknown.Logged("Enqueue", ", a handle dropped of op 5")) << unknown.log;
}

TEST_F(EagerRequestsTest, AStreamSaysWhichOfItsOpsFailed) {
  pb::EnqueueRequest request;
  request.set_context_id(kContext);
  *request.add_queue() = worker_.Op(3, "Neg", {1});
  *request.add_queue() = worker_.Op(4, "AddV2", {1, 2});
  *request.add_queue() = worker_.Op(5, "Neg", {2});
  const Failing stream([&] {
    pb::EnqueueResponse response;
    return worker_.Call(methods::kEagerStreamingEnqueue, request, &response);
  });
  EXPECT_TRUE(stream.Logged("StreamingEnqueue", ", AddV2")) << stream.name << "\n" << stream.log;
  // The same op by another way would have the same name.
  const Failing add([&] { return worker_.Enqueue(worker_.Op(4, "AddV2", {1, 2})); });
  EXPECT_EQ(add.name, stream.name);
}

TEST_F(EagerRequestsTest, AllTasksOfAFunctionLogItUnderOneName) {
  MakeVariable(1, Floats({10, 20}));
  ASSERT_TRUE(worker_.Enqueue(AddToVariable()).ok());
  const Failing call([&] {
    // Of three numbers, and the variable has two: it fails at the ps.
    pb::QueueItem item = worker_.Op(6, "add_to", {2, 1}, {});
    item.mutable_operation()->set_is_function(true);
    item.mutable_operation()->mutable_op_inputs(1)->mutable_remote_handle()->set_device(kPs);
    return worker_.Enqueue(item);
  });
  EXPECT_EQ(call.status.code(), StatusCode::kInvalidArgument) << call.status;
  EXPECT_EQ(Message(call.status).find(call.name), Message(call.status).rfind(call.name));
  EXPECT_TRUE(call.Logged("Enqueue", ", add_to failed")) << call.name << "\n" << call.log;
  EXPECT_TRUE(call.Logged("RunComponentFunction", ", add_to_millrace_")) << call.name << "\n"
                                                                         << call.log;
}

TEST_F(EagerRequestsTest, APartThatTheClientHasCutHasTheNameOfItsCall) {
  pb::RunComponentFunctionRequest request;
  request.set_context_id(kContext);
  request.mutable_operation()->set_name("nothing");
  request.mutable_operation()->set_device(kWorker);
  request.mutable_operation()->set_func_step_id(-5);
  const auto run = [&](int64_t id) {
    request.mutable_operation()->set_id(id);
    pb::RunComponentFunctionResponse response;
    return worker_.Call(methods::kEagerRunComponentFunction, request, &response);
  };
  const Failing numbered([&] { return run(7); });
  EXPECT_TRUE(numbered.Logged("RunComponentFunction", ", nothing")) << numbered.log;
  const Failing add([&] { return worker_.Enqueue(worker_.Op(7, "AddV2", {1, 2})); });
  EXPECT_EQ(numbered.name, add.name);
  // Without a number all parts have the step.
  const Failing part([&] { return run(-1); }), other([&] { return run(-1); });
  EXPECT_EQ(part.name, other.name);
  EXPECT_NE(part.name, numbered.name);
}

TEST_F(EagerRequestsTest, WhatRunsNothingIsNamedToo) {
  const Failing drop([&] { return worker_.Drop(77); });
  EXPECT_TRUE(drop.Logged("Enqueue", ", a handle dropped of op 77")) << drop.log;
  const Failing send([&] { return worker_.Send(1, Floats({1})); });
  EXPECT_TRUE(send.Logged("Enqueue", ", a tensor sent as op 1")) << send.log;
  pb::KeepAliveRequest request;
  request.set_context_id(1);
  const Failing unknown([&] {
    pb::KeepAliveResponse response;
    return worker_.Call(methods::kEagerKeepAlive, request, &response);
  });
  EXPECT_NE(Message(unknown.status).find("Unable to find a context_id"), std::string_view::npos);
  EXPECT_NE(
      unknown.log.find(StrCat("KeepAlive of eager context 0000000000000001 failed", unknown.name)),
      std::string::npos)
      << unknown.log;
}

}  // namespace
}  // namespace millrace
