// SPDX-License-Identifier: Apache-2.0
#include "millrace/dtype.h"

#include "millrace/tensor.h"

namespace millrace {
namespace {

// How the elements of a type lie in memory.
enum class Kind : uint8_t {
  kNone,
  kFloating,
  kInteger,
  kQuantized,
  kComplex,
  kBool,
  kFloat8,
  kObject
};

struct TypeInfo {
  std::string_view name;
  std::size_t size;
  Kind kind;
};

// By number. Types without a size are known by name only: they may occur in the lists of
// allowed types that clients send, and no kernel takes them.
constexpr TypeInfo kTypes[] = {
    {"INVALID", 0, Kind::kNone},
    {"float", 4, Kind::kFloating},
    {"double", 8, Kind::kFloating},
    {"int32", 4, Kind::kInteger},
    {"uint8", 1, Kind::kInteger},
    {"int16", 2, Kind::kInteger},
    {"int8", 1, Kind::kInteger},
    {"string", sizeof(std::string), Kind::kObject},
    {"complex64", 8, Kind::kComplex},
    {"int64", 8, Kind::kInteger},
    {"bool", 1, Kind::kBool},
    {"qint8", 1, Kind::kQuantized},
    {"quint8", 1, Kind::kQuantized},
    {"qint32", 4, Kind::kQuantized},
    {"bfloat16", 2, Kind::kFloating},
    {"qint16", 2, Kind::kQuantized},
    {"quint16", 2, Kind::kQuantized},
    {"uint16", 2, Kind::kInteger},
    {"complex128", 16, Kind::kComplex},
    {"half", 2, Kind::kFloating},
    {"resource", sizeof(ResourceHandle), Kind::kObject},
    {"variant", sizeof(RefPtr<RefCounted>), Kind::kObject},
    {"uint32", 4, Kind::kInteger},
    {"uint64", 8, Kind::kInteger},
    {"float8_e5m2", 1, Kind::kFloat8},
    {"float8_e4m3fn", 1, Kind::kFloat8},
    {"float8_e4m3fnuz", 1, Kind::kFloat8},
    {"float8_e4m3b11fnuz", 1, Kind::kFloat8},
    {"float8_e5m2fnuz", 1, Kind::kFloat8},
    // A byte each, of which the lower half counts: only moved, and cast.
    {"int4", 1, Kind::kQuantized},
    {"uint4", 1, Kind::kQuantized},
    {"int2", 0, Kind::kNone},
    {"uint2", 0, Kind::kNone},
    {"float4_e2m1fn", 0, Kind::kNone},
};
constexpr int kNumTypes = static_cast<int>(std::size(kTypes));

const TypeInfo& InfoOf(DataType dtype) {
  const int number = static_cast<int>(BaseType(dtype));
  return kTypes[number > 0 && number < kNumTypes ? number : 0];
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool ConsumeSuffix(std::string_view suffix, std::string_view* text) {
  if (text->size() < suffix.size() || text->substr(text->size() - suffix.size()) != suffix) {
    return false;
  }
  text->remove_suffix(suffix.size());
  return true;
}

}  // namespace

std::string DataTypeName(DataType dtype) {
  std::string name(InfoOf(dtype).name);
  if (IsRefType(dtype) && name != kTypes[0].name) name += "_ref";
  return name;
}

bool DataTypeFromName(std::string_view name, DataType* dtype) {
  const bool as_enumerator = name.substr(0, 3) == "DT_";
  bool is_ref = false;
  std::string base;
  if (as_enumerator) {
    name.remove_prefix(3);
    is_ref = ConsumeSuffix("_REF", &name);
    for (const char c : name) {
      if (c != Lower(c) || (c >= '0' && c <= '9') || c == '_') {
        base += Lower(c);
      } else {
        return false;
      }
    }
  } else {
    is_ref = ConsumeSuffix("_ref", &name);
    base = name;
  }
  for (int i = 1; i < kNumTypes; ++i) {
    if (kTypes[i].name == base) {
      const auto found = static_cast<DataType>(i);
      *dtype = is_ref ? MakeRefType(found) : found;
      return true;
    }
  }
  return false;
}

std::size_t DataTypeSize(DataType dtype) { return InfoOf(dtype).size; }

bool IsMemcpyable(DataType dtype) {
  const Kind kind = InfoOf(dtype).kind;
  return kind != Kind::kNone && kind != Kind::kObject;
}

bool IsFloating(DataType dtype) { return InfoOf(dtype).kind == Kind::kFloating; }
bool IsInteger(DataType dtype) { return InfoOf(dtype).kind == Kind::kInteger; }
bool IsFloat8(DataType dtype) { return InfoOf(dtype).kind == Kind::kFloat8; }
bool IsComplex(DataType dtype) { return InfoOf(dtype).kind == Kind::kComplex; }

}  // namespace millrace
