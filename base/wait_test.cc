// SPDX-License-Identifier: Apache-2.0
#include "base/wait.h"

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(Wait, KeepsItsFieldsWithinADescription) {
  Wait wait;
  wait.kind = Wait::Kind::kQueue;
  wait.node = "take";
  wait.op = "QueueDequeueV2";
  wait.device = "/job:ps/replica:0/task:0/device:CPU:0";
  wait.origin = "model.cc:12";
  wait.name = "tokens";
  wait.peer = "/job:worker/replica:0/task:1";
  wait.text = "a dequeue: FIFOQueue 'tokens' has 0 of 1 element";
  wait.since_nanos = 812;
  const Wait read = DecodeWait(EncodeWait(wait));
  EXPECT_EQ(read.kind, wait.kind);
  EXPECT_EQ(read.node, wait.node);
  EXPECT_EQ(read.op, wait.op);
  EXPECT_EQ(read.device, wait.device);
  EXPECT_EQ(read.origin, wait.origin);
  EXPECT_EQ(read.name, wait.name);
  EXPECT_EQ(read.peer, wait.peer);
  EXPECT_EQ(read.text, wait.text);
  EXPECT_EQ(read.since_nanos, 812);
}

TEST(Wait, IsATextWhereNothingElseIsKnown) {
  const Wait read = DecodeWait("a barrier");
  EXPECT_EQ(read.kind, Wait::Kind::kOther);
  EXPECT_EQ(read.text, "a barrier");
  EXPECT_EQ(read.node, "");
}

// A name may be anything that a client has sent.
TEST(Wait, IsNotForgedByANameWithSeparators) {
  Wait wait;
  wait.kind = Wait::Kind::kLock;
  wait.node = "n\x1f\x1f\x1eX";
  wait.text = "a turn";
  const Wait read = DecodeWait(EncodeWait(wait));
  EXPECT_EQ(read.node, "n???X");
  EXPECT_EQ(read.text, "a turn");
}

TEST(Wait, IsReadFromWhatIsCutOff) {
  const std::string code = EncodeWait({.kind = Wait::Kind::kLoop, .node = "while", .text = "t"});
  for (std::size_t n = 0; n <= code.size(); ++n) {
    const Wait read = DecodeWait(code.substr(0, n));
    EXPECT_TRUE(read.text.empty() || read.text == "t") << n;
  }
}

}  // namespace
}  // namespace millrace
