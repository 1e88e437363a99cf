// SPDX-License-Identifier: Apache-2.0
// Writing TFRecord files: length, its checksum, data, its checksum. io/input_stream.h reads them.
#ifndef IO_RECORD_WRITER_H_
#define IO_RECORD_WRITER_H_

#include <string>
#include <string_view>

namespace millrace {

// Appends `record` as it lies in a file: 16 bytes more than its own.
void AppendRecord(std::string_view record, std::string* out);

}  // namespace millrace

#endif  // IO_RECORD_WRITER_H_
