// SPDX-License-Identifier: Apache-2.0
// Elements of data sets as texts: "int64[2] 3 4 | string[] a".
#ifndef TESTS_DATA_ELEMENT_TEXT_H_
#define TESTS_DATA_ELEMENT_TEXT_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/strings.h"
#include "millrace/data.h"

namespace millrace::testing {

inline std::string Number(const Tensor& t, int64_t i) {
  char text[32];
  switch (t.dtype()) {
    case kFloat:
      std::snprintf(text, sizeof(text), "%.9g", static_cast<double>(t.data<float>()[i]));
      return text;
    case kDouble:
      std::snprintf(text, sizeof(text), "%.9g", t.data<double>()[i]);
      return text;
    case kInt32:
      return std::to_string(t.data<int32_t>()[i]);
    case kInt64:
      return std::to_string(t.data<int64_t>()[i]);
    case kUint8:
      return std::to_string(t.data<uint8_t>()[i]);
    case kBool:
      return t.data<bool>()[i] ? "1" : "0";
    case kString:
      return t.data<std::string>()[i];
    default:
      return "?";
  }
}

inline std::string TextOf(const Tensor& t) {
  std::string text = StrCat(DataTypeName(t.dtype()), "[");
  for (int i = 0; i < t.rank(); ++i) StrAppend(&text, i == 0 ? "" : ",", t.dim(i));
  StrAppend(&text, "] ");
  for (int64_t i = 0; i < t.num_elements(); ++i) StrAppend(&text, i == 0 ? "" : " ", Number(t, i));
  return text;
}

inline std::string TextOf(const std::vector<Tensor>& element) {
  std::string text;
  for (const Tensor& t : element) StrAppend(&text, text.empty() ? "" : " | ", TextOf(t));
  return text;
}

// What is left in the reader; an error as the last text.
inline std::vector<std::string> TextsOf(DatasetReader& reader) {
  std::vector<std::string> texts;
  for (;;) {
    std::vector<Tensor> element;
    const StatusOr<bool> more = reader.Next(&element);
    if (!more.ok()) {
      texts.emplace_back(more.status().message());
      return texts;
    }
    if (!*more) return texts;
    texts.push_back(TextOf(element));
  }
}

inline std::vector<std::string> TextsOf(const Dataset& dataset) {
  StatusOr<DatasetReader> reader = DatasetReader::Create(dataset);
  if (!reader.ok()) return {std::string(reader.status().message())};
  return TextsOf(*reader);
}

}  // namespace millrace::testing

#endif  // TESTS_DATA_ELEMENT_TEXT_H_
