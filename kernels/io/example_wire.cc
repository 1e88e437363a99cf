// SPDX-License-Identifier: Apache-2.0
#include "kernels/io/example_wire.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cstring>
#include <utility>

namespace millrace {
namespace {

constexpr uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2, kGroup = 3, kEndOfGroup = 4, kFixed32 = 5;

// Field 1 of a list, packed or one by one; what else there is, is skipped.
// `one` takes the bytes of one value, `packed` those of many.
template <typename One, typename Packed>
bool ForEachValue(std::string_view list, uint32_t type_of_one, One&& one, Packed&& packed) {
  ExampleReader reader(list);
  while (!reader.done()) {
    uint32_t field, type;
    if (!reader.ReadTag(&field, &type)) return false;
    if (field == 1 && type == kBytes) {
      std::string_view bytes;
      if (!reader.ReadBytes(&bytes) || !packed(bytes)) return false;
    } else if (field == 1 && type == type_of_one) {
      if (!one(&reader)) return false;
    } else if (!reader.Skip(field, type)) {
      return false;
    }
  }
  return true;
}

bool CountValues(std::string_view list, DataType type, int64_t* count) {
  if (type == kFloat) {
    return ForEachValue(
        list, kFixed32,
        [&](ExampleReader* reader) {
          std::string_view bytes;
          ++*count;
          return reader->ReadFixed32(&bytes);
        },
        [&](std::string_view bytes) {
          *count += static_cast<int64_t>(bytes.size() / sizeof(float));
          return bytes.size() % sizeof(float) == 0;
        });
  }
  if (type == kInt64) {
    return ForEachValue(
        list, kVarint,
        [&](ExampleReader* reader) {
          uint64_t value;
          ++*count;
          return reader->ReadVarint(&value);
        },
        [&](std::string_view bytes) {
          ExampleReader packed(bytes);
          uint64_t value;
          while (!packed.done()) {
            if (!packed.ReadVarint(&value)) return false;
            ++*count;
          }
          return true;
        });
  }
  // Strings are no numbers: each is a field of its own.
  return ForEachValue(
      list, kBytes, [](ExampleReader*) { return false; },
      [&](std::string_view) { return ++*count, true; });
}

}  // namespace

bool ExampleReader::ReadTag(uint32_t* field, uint32_t* type) {
  const uint32_t tag = in_.ReadTag();  // 0 is none
  *field = tag >> 3;
  *type = tag & 7;
  return *field != 0 && *type <= kFixed32;
}

bool ExampleReader::ReadBytes(std::string_view* value) {
  int size;
  return in_.ReadVarintSizeAsInt(&size) && Take(size, value);
}

// What is read lies in one piece.
bool ExampleReader::Take(int size, std::string_view* value) {
  const void* at = nullptr;
  int left = 0;
  in_.GetDirectBufferPointerInline(&at, &left);
  if (left < size) return false;
  *value = std::string_view(static_cast<const char*>(at), static_cast<std::size_t>(size));
  return in_.Skip(size);
}

bool ExampleReader::Skip(uint32_t field, uint32_t type) {
  // The groups that are open, innermost last.
  absl::InlinedVector<uint32_t, 4> open;
  constexpr std::size_t kDeepest = 100;
  while (true) {
    uint64_t number;
    std::string_view bytes;
    bool good = true;
    switch (type) {
      case kVarint:
        good = ReadVarint(&number);
        break;
      case kFixed64:
        good = in_.Skip(sizeof(uint64_t));
        break;
      case kBytes:
        good = ReadBytes(&bytes);
        break;
      case kFixed32:
        good = in_.Skip(sizeof(uint32_t));
        break;
      case kGroup:
        good = open.size() < kDeepest;
        open.push_back(field);
        break;
      default:  // the end of the group that was opened last
        good = type == kEndOfGroup && !open.empty() && open.back() == field;
        if (good) open.pop_back();
    }
    if (!good) return false;
    if (open.empty()) return true;
    if (!ReadTag(&field, &type)) return false;
  }
}

bool ForEachFeature(
    std::string_view example,
    absl::FunctionRef<void(std::string_view key, std::string_view feature, std::string* joined)>
        use) {
  // An entry of the map `feature`: its key, and its value. Parts of a value are one after another,
  // which is how messages are merged.
  const auto read_entry = [&](std::string_view entry) {
    ExampleReader reader(entry);
    std::string_view key, value;
    std::string joined;
    int parts = 0;
    while (!reader.done()) {
      uint32_t field, type;
      if (!reader.ReadTag(&field, &type)) return false;
      std::string_view bytes;
      if (field <= 2 && type == kBytes) {
        if (!reader.ReadBytes(&bytes)) return false;
        if (field == 1) {
          key = bytes;
          continue;
        }
        if (++parts == 2) joined = value;
        if (parts >= 2) joined += bytes;
        value = bytes;
      } else if (!reader.Skip(field, type)) {
        return false;
      }
    }
    use(key, parts >= 2 ? std::string_view(joined) : value, parts >= 2 ? &joined : nullptr);
    return true;
  };
  const auto read_features = [&](std::string_view features) {
    ExampleReader reader(features);
    while (!reader.done()) {
      uint32_t field, type;
      if (!reader.ReadTag(&field, &type)) return false;
      std::string_view entry;
      if (field == 1 && type == kBytes) {
        if (!reader.ReadBytes(&entry) || !read_entry(entry)) return false;
      } else if (!reader.Skip(field, type)) {
        return false;
      }
    }
    return true;
  };
  if (example.size() > INT_MAX) return false;
  ExampleReader reader(example);
  while (!reader.done()) {
    uint32_t field, type;
    if (!reader.ReadTag(&field, &type)) return false;
    std::string_view features;
    if (field == 1 && type == kBytes) {
      if (!reader.ReadBytes(&features) || !read_features(features)) return false;
    } else if (!reader.Skip(field, type)) {
      return false;
    }
  }
  return true;
}

bool ReadFeature(std::string_view feature, FeatureValues* values) {
  static constexpr DataType kTypes[] = {kString, kFloat, kInt64};  // of fields 1, 2, 3
  values->Clear();
  ExampleReader reader(feature);
  while (!reader.done()) {
    uint32_t field, type;
    if (!reader.ReadTag(&field, &type)) return false;
    if (field > 3 || type != kBytes) {
      if (!reader.Skip(field, type)) return false;
      continue;
    }
    std::string_view list;
    if (!reader.ReadBytes(&list)) return false;
    // Lists of one type are one list; one of another type replaces what there was.
    if (values->type != kTypes[field - 1]) {
      values->lists.clear();
      values->count = 0;
      values->type = kTypes[field - 1];
    }
    values->lists.push_back(list);
    if (!CountValues(list, values->type, &values->count)) return false;
  }
  return true;
}

void CopyValues(const FeatureValues& values, float* to) {
  const auto copy = [&](std::string_view bytes) {
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size() / sizeof(float);
    return true;
  };
  for (const std::string_view list : values.lists) {
    ForEachValue(
        list, kFixed32,
        [&](ExampleReader* reader) {
          std::string_view bytes;
          return reader->ReadFixed32(&bytes) && copy(bytes);
        },
        copy);
  }
}

void CopyValues(const FeatureValues& values, int64_t* to) {
  const auto copy_one = [&](ExampleReader* reader) {
    uint64_t value;
    if (!reader->ReadVarint(&value)) return false;
    *to++ = static_cast<int64_t>(value);
    return true;
  };
  for (const std::string_view list : values.lists) {
    ForEachValue(list, kVarint, copy_one, [&](std::string_view bytes) {
      ExampleReader packed(bytes);
      while (!packed.done()) {
        if (!copy_one(&packed)) return false;
      }
      return true;
    });
  }
}

void CopyValues(const FeatureValues& values, std::string* to) {
  for (const std::string_view list : values.lists) {
    ForEachValue(
        list, kBytes, [](ExampleReader*) { return false; },
        [&](std::string_view bytes) {
          to++->assign(bytes);
          return true;
        });
  }
}

}  // namespace millrace
