// SPDX-License-Identifier: Apache-2.0
// Event files, as tests read them.
#ifndef TESTS_SUMMARY_READ_EVENTS_H_
#define TESTS_SUMMARY_READ_EVENTS_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "io/filesystem.h"
#include "io/input_stream.h"
#include "proto/event.pb.h"
#include "tensor/tensor_proto.h"

namespace millrace::testing {

// A new directory.
inline std::string TestDirectory() {
  static int last = 0;
  return StrCat(::testing::TempDir(), "/",
                ::testing::UnitTest::GetInstance()->current_test_info()->name(), ++last);
}

// What can be read: whole events up to the end or to one that is cut off.
inline std::vector<pb::Event> ReadEvents(const std::string& path) {
  std::vector<pb::Event> events;
  auto stream = OpenInputStream(PosixFileSystem(), path, "");
  if (!stream.ok()) {
    ADD_FAILURE() << stream.status();
    return events;
  }
  RecordReader reader(*std::move(stream), path);
  std::string record;
  Status status = reader.ReadRecord(&record);
  for (; status.ok(); status = reader.ReadRecord(&record)) {
    EXPECT_TRUE(events.emplace_back().ParseFromString(record));
  }
  EXPECT_TRUE(errors::IsOutOfRange(status) ||
              Message(status).find("truncated record") != std::string_view::npos)
      << status;
  return events;
}

// The tensor of the only value of an event.
inline Tensor TensorOf(const pb::Event& event) {
  EXPECT_EQ(event.summary().value_size(), 1);
  if (event.summary().value_size() != 1) return Tensor();
  StatusOr<Tensor> tensor = TensorFromProto(event.summary().value(0).tensor());
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  return tensor.ok() ? *tensor : Tensor();
}

}  // namespace millrace::testing

#endif  // TESTS_SUMMARY_READ_EVENTS_H_
