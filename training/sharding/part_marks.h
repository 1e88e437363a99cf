// SPDX-License-Identifier: Apache-2.0
// What the parts of a variable, and what is kept for them, say of the whole: attributes of their
// nodes, which savers and whoever joins parts read.
#ifndef TRAINING_SHARDING_PART_MARKS_H_
#define TRAINING_SHARDING_PART_MARKS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "millrace/variables.h"

namespace millrace {

struct PartMark {
  std::string whole;  // its name in a program without parts
  std::string slice;  // which of its rows, as checkpoints write it
};

// "7 2 4,3:-": rows [4, 7) of a variable of shape [7, 2].
std::string SliceOf(const Shape& whole, int64_t begin, int64_t rows);
void MarkPart(const Variable& part, const PartMark& mark);
// Nothing for a variable that is no part.
std::optional<PartMark> MarkOf(const Variable& variable);
// Of a variable that an optimizer keeps for another one: the same rows of what is kept for the
// whole, if that other one is a part, and of its shape.
void MarkLike(const Variable& part, const Variable& kept);

// "table/part_0/Adam_1" is part of "table/Adam_1", and "adam/table_part_0_momentum" of
// "adam/table_momentum": the name that it has in a program without parts. "" where the part's name
// is not in it.
std::string NameOfWhole(const std::string& kept, const std::string& part, const std::string& whole);

}  // namespace millrace

#endif  // TRAINING_SHARDING_PART_MARKS_H_
