// SPDX-License-Identifier: Apache-2.0
// A client of TensorFlow 2 with a client's certificate, as one that comes through `millrace proxy`.
#include <gtest/gtest.h>

#include <memory>

#include "millrace/server.h"
#include "tests/cluster/certificate_files.h"
#include "tests/eager/eager_client.h"

namespace millrace {
namespace {

testing::CertificateFiles& Files() {
  static auto* const files = new testing::CertificateFiles;
  return *files;
}

class EagerAccessTest : public EagerServiceTest {
 protected:
  EagerAccessTest()
      : EagerServiceTest(
            [](ServerOptions* options) {
              options->credentials = Files().Issue(Files().Task(options->job_name, 0));
            },
            *LoadedCredentials::Load(Files().Issue(Files().Client()))) {}
};

TEST_F(EagerAccessTest, AFunctionOfTwoTasksRunsAndItsResultIsRead) {
  // The client knows the tasks by the addresses of its proxies, where no task answers another one.
  ps_.told_address_ = worker_.told_address_ = "127.0.0.1:1";
  Connect();
  MakeVariable(1, Floats({10, 20}));
  ASSERT_TRUE(worker_.Send(5, Floats({1, 2})).ok());
  ASSERT_TRUE(worker_.Enqueue(AddToVariable()).ok());
  pb::QueueItem call = worker_.Op(6, "add_to", {5, 1}, {});
  call.mutable_operation()->set_is_function(true);
  call.mutable_operation()->mutable_op_inputs(1)->mutable_remote_handle()->set_device(kPs);
  const Status ran = worker_.Enqueue(call);
  ASSERT_TRUE(ran.ok()) << ran;
  ExpectFloats(worker_.Read(6), {12, 24});
}

}  // namespace
}  // namespace millrace
