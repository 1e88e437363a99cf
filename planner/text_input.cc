// SPDX-License-Identifier: Apache-2.0
#include "planner/text_input.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <fstream>
#include <iostream>
#include <iterator>

#include "base/errors.h"

namespace millrace {
namespace {

// Keeps the first error only.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (text_.empty()) text_ = StrCat("line ", line + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

StatusOr<std::string> ReadInput(const std::string& path) {
  if (path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return errors::NotFound("cannot read ", path);
  // A directory opens, and fails when it is read.
  if (file.peek() == std::ifstream::traits_type::eof() && !file.eof()) {
    return errors::NotFound("cannot read ", path);
  }
  file.clear();
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return errors::NotFound("cannot read ", path);
  return bytes;
}

Status WriteOutput(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  return file ? OkStatus() : errors::InvalidArgument("cannot write ", path);
}

bool LooksLikeText(const std::string& bytes) {
  for (const char c : bytes.substr(0, 4096)) {
    if (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t' && c != '\r') return false;
  }
  return true;
}

bool ParseTextMessage(const std::string& text, google::protobuf::Message* message,
                      std::string* error) {
  FirstError first;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&first);
  parser.SetRecursionLimit(100);
  const bool ok = parser.ParseFromString(text, message);
  if (error->empty()) *error = first.text();
  return ok;
}

}  // namespace millrace
