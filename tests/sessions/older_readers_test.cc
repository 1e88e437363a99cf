// SPDX-License-Identifier: Apache-2.0
// Readers whose handles are references, as graphs from before version 26 have them: each reads the
// file that a queue names, counts, and begins anew.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "io/crc32c.h"
#include "master/session_test_util.h"
#include "runtime/local_cluster.h"
#include "session/client_session.h"

namespace millrace {
namespace {

template <typename T>
std::string Raw(T value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

std::string RecordOf(const std::string& content) {
  const std::string length = Raw(static_cast<uint64_t>(content.size()));
  return length + Raw(MaskCrc(Crc32c(length))) + content + Raw(MaskCrc(Crc32c(content)));
}

struct Case {
  const char* op;
  std::string file;                 // its content
  std::vector<std::string> values;  // empty: the name of the file
};

std::vector<Case> Cases() {
  return {{"TFRecordReader", RecordOf("one") + RecordOf("two"), {"one", "two"}},
          {"TextLineReader", "one\ntwo\n", {"one", "two"}},
          {"FixedLengthRecordReader", "onetwo", {"one", "two"}},
          {"WholeFileReader", "one\ntwo\n", {"one\ntwo\n"}},
          {"IdentityReader", "", {}}};
}

class OlderReaders : public ::testing::TestWithParam<int> {
 protected:
  const Case case_ = Cases()[static_cast<std::size_t>(GetParam())];
  const std::string path_ = ::testing::TempDir() + "/older_reader_" + case_.op;

  pb::GraphDef GraphOf(int producer) const {
    TestGraph graph;
    const auto strings = [](pb::NodeDef* node, const char* attr) {
      (*node->mutable_attr())[attr].mutable_list()->add_type(pb::DT_STRING);
    };
    pb::NodeDef* const path = graph.Add("path", "Const");
    (*path->mutable_attr())["dtype"].set_type(pb::DT_STRING);
    pb::TensorProto& text = *(*path->mutable_attr())["value"].mutable_tensor();
    text.set_dtype(pb::DT_STRING);
    text.mutable_tensor_shape();
    text.add_string_val(path_);
    pb::NodeDef* const many = graph.Add("many", "Const");
    (*many->mutable_attr())["dtype"].set_type(pb::DT_INT64);
    pb::TensorProto& number = *(*many->mutable_attr())["value"].mutable_tensor();
    number.set_dtype(pb::DT_INT64);
    number.mutable_tensor_shape();
    number.add_int64_val(10);
    strings(graph.Add("queue", "FIFOQueue"), "component_types");
    strings(graph.Add("put", "QueueEnqueue", {"queue", "path"}), "Tcomponents");
    graph.Add("close", "QueueClose", {"queue"});
    pb::NodeDef* const reader = graph.Add("reader", case_.op);
    if (std::string_view(case_.op) == "FixedLengthRecordReader") {
      (*reader->mutable_attr())["record_bytes"].set_i(3);
    }
    graph.Add("read", "ReaderRead", {"reader", "queue"});
    graph.Add("rest", "ReaderReadUpTo", {"reader", "queue", "many"});
    graph.Add("produced", "ReaderNumRecordsProduced", {"reader"});
    graph.Add("completed", "ReaderNumWorkUnitsCompleted", {"reader"});
    graph.Add("reset", "ReaderReset", {"reader"});
    pb::GraphDef def = graph.def();
    def.mutable_versions()->set_producer(producer);
    def.mutable_versions()->set_min_consumer(0);
    return def;
  }
  StatusOr<std::unique_ptr<ClientSession>> Open(int producer) const {
    const auto master = NewLocalCluster({});
    if (!master.ok()) return master.status();
    return ClientSession::Create(*master, GraphOf(producer), {});
  }
  static int64_t Number(ClientSession& session, const std::string& name) {
    const auto got = session.Run({}, {name}, {});
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? got->at(0).scalar<int64_t>() : -1;
  }
};

TEST_P(OlderReaders, ReadCountAndBeginAnew) {
  std::ofstream(path_, std::ios::binary) << case_.file;
  const std::vector<std::string> want =
      case_.values.empty() ? std::vector<std::string>{path_} : case_.values;
  const auto records = static_cast<int64_t>(want.size());
  auto session = Open(20);
  ASSERT_TRUE(session.ok()) << session.status();
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE((*session)->Run({}, {}, {"put"}).ok());
    for (const std::string& value : want) {
      const auto got = (*session)->Run({}, {"read:1"}, {});
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->at(0).scalar<std::string>(), value);
    }
    EXPECT_EQ(Number(**session, "produced:0"), records);
    EXPECT_TRUE((*session)->Run({}, {}, {"reset"}).ok());
    EXPECT_EQ(Number(**session, "produced:0"), 0);
    EXPECT_EQ(Number(**session, "completed:0"), 0);
  }
  ASSERT_TRUE((*session)->Run({}, {}, {"put"}).ok());
  ASSERT_TRUE((*session)->Run({}, {}, {"close"}).ok());
  const auto rest = (*session)->Run({}, {"rest:1"}, {});
  ASSERT_TRUE(rest.ok()) << rest.status();
  const auto values = rest->at(0).flat<std::string>();
  EXPECT_EQ(std::vector<std::string>(values.begin(), values.end()), want);
  EXPECT_EQ((*session)->Run({}, {"read:1"}, {}).status().code(), StatusCode::kOutOfRange);
}

// WholeFileReader alone was never taken out.
TEST_P(OlderReaders, AreNotForGraphsOfToday) {
  const Status status = Open(1882).status();
  if (std::string_view(case_.op) == "WholeFileReader") {
    EXPECT_TRUE(status.ok()) << status;
    return;
  }
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status;
  EXPECT_NE(status.message().find(std::string("Use ") + case_.op + "V2"), std::string_view::npos)
      << status;
}

INSTANTIATE_TEST_SUITE_P(All, OlderReaders, ::testing::Range(0, static_cast<int>(Cases().size())),
                         [](const auto& info) {
                           return std::string(Cases()[static_cast<std::size_t>(info.param)].op);
                         });

}  // namespace
}  // namespace millrace
