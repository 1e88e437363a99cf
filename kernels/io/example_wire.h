// SPDX-License-Identifier: Apache-2.0
// Example messages as bytes: where the features of one lie, and the values of a feature, without
// the messages that the protobuf library would make of them. Views point into what was given. All
// calls are pure but for what they write; false: the bytes are no such message.
#ifndef KERNELS_IO_EXAMPLE_WIRE_H_
#define KERNELS_IO_EXAMPLE_WIRE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "google/protobuf/io/coded_stream.h"
#include "millrace/dtype.h"

namespace millrace {

// Reads a message, of less than 2 GiB, field by field.
class ExampleReader {
 public:
  explicit ExampleReader(std::string_view bytes)
      : size_(static_cast<int>(bytes.size())),
        in_(reinterpret_cast<const uint8_t*>(bytes.data()), size_) {}

  bool done() const { return in_.CurrentPosition() == size_; }
  // The next field's number and wire type; its value must be read or skipped next.
  bool ReadTag(uint32_t* field, uint32_t* type);
  bool ReadVarint(uint64_t* value) { return in_.ReadVarint64(value); }
  bool ReadBytes(std::string_view* value);  // wire type 2
  bool ReadFixed32(std::string_view* value) { return Take(sizeof(uint32_t), value); }
  // A value of any wire type of field `field`; groups may be nested.
  bool Skip(uint32_t field, uint32_t type);

 private:
  bool Take(int size, std::string_view* value);

  const int size_;
  google::protobuf::io::CodedInputStream in_;
};

// Calls `use` for each feature of an Example, by key, in the order of the bytes; of features of one
// key the last counts. A feature given in several parts is `joined`, a string that must be kept as
// long as the view is used.
bool ForEachFeature(
    std::string_view example,
    absl::FunctionRef<void(std::string_view key, std::string_view feature, std::string* joined)>
        use);

// The values of one feature.
struct FeatureValues {
  DataType type = DataType::kInvalid;  // kString, kFloat, kInt64, or kInvalid: it has no list
  int64_t count = 0;
  // The lists that hold them, mostly one.
  absl::InlinedVector<std::string_view, 1> lists;

  void Clear() {
    type = DataType::kInvalid;
    count = 0;
    lists.clear();
  }
};
bool ReadFeature(std::string_view feature, FeatureValues* values);
// Writes all `count` values of a feature that ReadFeature read; `to` is of its type.
void CopyValues(const FeatureValues& values, float* to);
void CopyValues(const FeatureValues& values, int64_t* to);
void CopyValues(const FeatureValues& values, std::string* to);

}  // namespace millrace

#endif  // KERNELS_IO_EXAMPLE_WIRE_H_
