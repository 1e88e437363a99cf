// SPDX-License-Identifier: Apache-2.0
// Features found in bytes, against what the protobuf library makes of the same bytes.
#include "kernels/io/example_wire.h"

#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "proto/example.pb.h"

namespace millrace {
namespace {

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7f));
  return out + static_cast<char>(value);
}
std::string Field(uint32_t number, const std::string& bytes) {
  return Varint(number << 3 | 2) + Varint(bytes.size()) + bytes;
}
std::string Entry(const std::string& key, const std::string& feature) {
  return Field(1, Field(1, key) + Field(2, feature));
}
std::string Floats(std::initializer_list<float> values) {
  std::string packed;
  for (const float v : values) packed.append(reinterpret_cast<const char*>(&v), sizeof(v));
  return packed;
}

struct Found {
  DataType type = DataType::kInvalid;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string> strings;
  friend bool operator==(const Found& a, const Found& b) {
    return a.type == b.type && a.ints == b.ints && a.strings == b.strings &&
           std::string(reinterpret_cast<const char*>(a.floats.data()), a.floats.size() * 4) ==
               std::string(reinterpret_cast<const char*>(b.floats.data()), b.floats.size() * 4);
  }
};
using All = std::map<std::string, Found>;

// False if the bytes, or those of a feature that counts, are no message.
bool ReadWire(const std::string& bytes, All* all) {
  std::map<std::string, std::string_view> views;
  std::deque<std::string> kept;
  if (!ForEachFeature(bytes, [&](std::string_view key, std::string_view feature, std::string* s) {
        if (s != nullptr) feature = kept.emplace_back(std::move(*s));
        views[std::string(key)] = feature;
      })) {
    return false;
  }
  for (const auto& [key, view] : views) {
    FeatureValues values;
    if (!ReadFeature(view, &values)) return false;
    Found& found = (*all)[key];
    found.type = values.type;
    const auto n = static_cast<std::size_t>(values.count);
    if (values.type == kFloat) CopyValues(values, (found.floats.resize(n), found.floats.data()));
    if (values.type == kInt64) CopyValues(values, (found.ints.resize(n), found.ints.data()));
    if (values.type == kString) CopyValues(values, (found.strings.resize(n), found.strings.data()));
  }
  return true;
}

bool ReadMessage(const std::string& bytes, All* all) {
  pb::Example example;
  if (!example.ParseFromString(bytes)) return false;
  for (const auto& [key, feature] : example.features().feature()) {
    Found& found = (*all)[key];
    if (feature.kind_case() == pb::Feature::kFloatList) {
      found.type = kFloat;
      found.floats.assign(feature.float_list().value().begin(), feature.float_list().value().end());
    } else if (feature.kind_case() == pb::Feature::kInt64List) {
      found.type = kInt64;
      found.ints.assign(feature.int64_list().value().begin(), feature.int64_list().value().end());
    } else if (feature.kind_case() == pb::Feature::kBytesList) {
      found.type = kString;
      found.strings.assign(feature.bytes_list().value().begin(),
                           feature.bytes_list().value().end());
    }
  }
  return true;
}

void ExpectSame(const std::string& bytes) {
  All wire, message;
  ASSERT_TRUE(ReadWire(bytes, &wire));
  ASSERT_TRUE(ReadMessage(bytes, &message));
  EXPECT_TRUE(wire == message);
}

std::string Usual() {
  pb::Example example;
  auto& features = *example.mutable_features()->mutable_feature();
  for (const float v : {1.5f, -2.0f}) features["floats"].mutable_float_list()->add_value(v);
  for (const int64_t v : {int64_t{-1}, int64_t{300}, INT64_MIN}) {
    features["ints"].mutable_int64_list()->add_value(v);
  }
  features["text"].mutable_bytes_list()->add_value("");
  features["text"].mutable_bytes_list()->add_value(std::string(200, 'x'));
  features["none"].mutable_float_list();
  features["unset"];
  return example.SerializeAsString();
}

TEST(ExampleWireTest, ReadsWhatWasSerialized) { ExpectSame(Usual()); }

TEST(ExampleWireTest, ReadsWhatOtherWritersMayWrite) {
  const std::string one = Varint(1 << 3 | 5) + Floats({4});  // a value that is not packed
  const std::string packed = Field(1, Floats({5, 6}));
  const std::string floats = Field(2, one + packed + one);
  const std::string ints =
      Field(3, Varint(1 << 3) + Varint(7) + Field(1, Varint(8) + Varint(~0ull)));
  const std::string unknown = Varint(9 << 3) + Varint(1) + Varint(10 << 3 | 1) +
                              std::string(8, '\1') + Varint(11 << 3 | 3) + Varint(2 << 3) +
                              Varint(3) + Varint(11 << 3 | 4) + Field(12, "abc");
  const std::vector<std::string> examples = {
      Field(1, Entry("f", floats)),
      Field(1, Entry("i", ints)),
      // The last of one key counts, also of a later message.
      Field(1, Entry("f", floats) + Entry("f", Field(2, packed))) + Field(1, Entry("i", ints)),
      Field(1, Entry("f", floats)) + Field(1, Entry("f", ints)),
      // Lists of one type are joined, others replaced.
      Field(1, Entry("f", floats + floats)),
      Field(1, Entry("f", floats + ints + floats)),
      Field(1, Entry("f", floats + Field(1, Field(1, "a")))),
      // A value in two parts, and the key last.
      Field(1, Field(1, Field(2, floats) + Field(2, floats) + Field(1, "f"))),
      Field(1, Field(1, Field(2, floats))),
      Field(1, Field(1, Field(1, "f"))),
      // What nobody knows is skipped.
      unknown + Field(1, unknown + Entry("f", unknown + floats + unknown) + unknown),
      Field(1, Entry("f", Field(2, unknown + packed))),
      "",
  };
  for (std::size_t i = 0; i < examples.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSame(examples[i]);
  }
}

TEST(ExampleWireTest, RefusesWhatIsNoMessage) {
  const std::vector<std::string> broken = {
      "\x0a",  // no length
      "\x0a\x05"
      "ab",                                              // too short
      std::string("\x00\x01", 2),                        // field 0
      "\x0e",                                            // wire type 6
      "\x0c",                                            // the end of a group that was not begun
      Varint(2 << 3 | 3),                                // a group without end
      std::string(11, '\xff'),                           // a number of more than ten bytes
      Field(1, Entry("f", Field(2, Field(1, "abc")))),   // a third of a float
      Field(1, Entry("i", Field(3, Field(1, "\x80")))),  // half an integer
  };
  for (std::size_t i = 0; i < broken.size(); ++i) {
    All all;
    EXPECT_FALSE(ReadWire(broken[i], &all)) << i;
    EXPECT_FALSE(ReadMessage(broken[i], &all)) << i;
  }
}

TEST(ExampleWireTest, AgreesOnBytesThatWereChanged) {
  const google::protobuf::LogSilencer silencer;  // about keys that are no UTF-8
  std::mt19937 random(7);
  const std::string usual = Usual();
  int both = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = usual;
    for (int k = 0; k < 1 + i % 3; ++k) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (i % 7 == 0) bytes.resize(random() % bytes.size());
    All wire, message;
    const bool read = ReadWire(bytes, &wire);
    // The library also refuses keys that are no UTF-8.
    if (!ReadMessage(bytes, &message)) continue;
    ASSERT_TRUE(read) << i;
    ASSERT_TRUE(wire == message) << i;
    ++both;
  }
  EXPECT_GT(both, 2000);
}

}  // namespace
}  // namespace millrace
