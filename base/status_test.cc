// SPDX-License-Identifier: Apache-2.0
#include "millrace/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace millrace {
namespace {

TEST(StatusTest, OkIsANullPointerThatSaysNothing) {
  EXPECT_EQ(sizeof(Status), sizeof(void*));
  Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "OK");
  status.SetPayload("url", "value");
  EXPECT_FALSE(status.GetPayload("url"));
  EXPECT_EQ(status, Status(StatusCode::kOk, "dropped"));
}

TEST(StatusTest, SaysCodeMessageAndPayloads) {
  Status status(StatusCode::kNotFound, "no such node");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.ToString(), "NOT_FOUND: no such node");
  status.SetPayload("type/a", "one");
  status.SetPayload("type/b", std::string_view("\0\n", 2));
  status.SetPayload("type/a", "two");
  EXPECT_EQ(status.GetPayload("type/a"), "two");
  EXPECT_EQ(status.GetPayload("type/b"), std::string("\0\n", 2));
  EXPECT_FALSE(status.GetPayload("type/c"));
  int visited = 0;
  status.ForEachPayload([&](std::string_view, std::string_view) { ++visited; });
  EXPECT_EQ(visited, 2);
  EXPECT_EQ(status.ToString(), "NOT_FOUND: no such node [type/a='two'] [type/b: 2 bytes]");
  EXPECT_TRUE(status.ErasePayload("type/b"));
  EXPECT_FALSE(status.ErasePayload("type/b"));
  std::ostringstream out;
  out << status << " " << StatusCode::kDataLoss << " " << static_cast<StatusCode>(99);
  EXPECT_EQ(out.str(), "NOT_FOUND: no such node [type/a='two'] DATA_LOSS UNKNOWN");
}

TEST(StatusTest, ACopyThatIsChangedChangesNoOther) {
  Status first(StatusCode::kAborted, "a");
  first.SetPayload("url", "1");
  Status second = first;
  EXPECT_EQ(first, second);
  second.SetPayload("url", "2");
  EXPECT_EQ(first.GetPayload("url"), "1");
  EXPECT_NE(first, second);
  second = first;
  EXPECT_TRUE(second.ErasePayload("url"));
  EXPECT_EQ(first.GetPayload("url"), "1");
  const Status moved = std::move(first);
  EXPECT_EQ(moved.message(), "a");
  Status& self = second;
  second = self;
  EXPECT_EQ(second.message(), "a");
}

TEST(StatusTest, PayloadsAreComparedInAnyOrder) {
  Status a(StatusCode::kInternal, "m"), b(StatusCode::kInternal, "m");
  a.SetPayload("x", "1");
  a.SetPayload("y", "2");
  b.SetPayload("y", "2");
  EXPECT_NE(a, b);
  b.SetPayload("x", "1");
  EXPECT_EQ(a, b);
  EXPECT_NE(a, Status(StatusCode::kInternal, "other"));
  EXPECT_NE(a, OkStatus());
}

TEST(StatusTest, UpdateKeepsTheFirstError) {
  Status status;
  status.Update(OkStatus());
  EXPECT_TRUE(status.ok());
  status.Update(Status(StatusCode::kCancelled, "first"));
  status.Update(Status(StatusCode::kInternal, "second"));
  EXPECT_EQ(status.message(), "first");
}

// Counts those that live.
struct Counted {
  explicit Counted(int v) : value(v) { ++alive; }
  Counted(const Counted& other) : value(other.value) { ++alive; }
  Counted(Counted&& other) noexcept : value(std::exchange(other.value, -1)) { ++alive; }
  Counted& operator=(const Counted&) = default;
  Counted& operator=(Counted&&) = default;
  ~Counted() { --alive; }
  int value;
  inline static int alive = 0;
};

TEST(StatusOrTest, HasAValueOrAnError) {
  const StatusOr<int> none;
  EXPECT_EQ(none.status().code(), StatusCode::kUnknown);
  StatusOr<int> five = 5;
  ASSERT_TRUE(five.ok());
  EXPECT_EQ(*five, 5);
  EXPECT_EQ(five.value_or(1), 5);
  five = Status(StatusCode::kOutOfRange, "end");
  EXPECT_EQ(five.status().message(), "end");
  EXPECT_EQ(five.value_or(1), 1);
  EXPECT_EQ(StatusOr<int>(OkStatus()).status().code(), StatusCode::kInternal);
}

TEST(StatusOrTest, AskingAnErrorForItsValueThrowsWhatItSays) {
  StatusOr<std::string> lost = Status(StatusCode::kDataLoss, "half a file");
  EXPECT_THROW(lost.value(), BadStatusOrAccess);
  EXPECT_THROW(static_cast<void>(lost->size()), BadStatusOrAccess);
  try {
    static_cast<void>(*lost);
    FAIL();
  } catch (const BadStatusOrAccess& error) {
    EXPECT_EQ(error.status().code(), StatusCode::kDataLoss);
    EXPECT_STREQ(error.what(), "no value but DATA_LOSS: half a file");
  }
}

TEST(StatusOrTest, MovesWhatCannotBeCopied) {
  StatusOr<std::unique_ptr<int>> a = std::make_unique<int>(3);
  StatusOr<std::unique_ptr<int>> b = std::move(a);
  ASSERT_TRUE(a.ok());  // a value that was moved from
  EXPECT_EQ(*a, nullptr);
  EXPECT_EQ(**b, 3);
  const std::unique_ptr<int> taken = *std::move(b);
  EXPECT_EQ(*taken, 3);
  StatusOr<std::shared_ptr<const int>> shared = StatusOr<std::unique_ptr<int>>(nullptr);
  EXPECT_TRUE(shared.ok());
  static_assert(!std::is_copy_constructible_v<StatusOr<std::unique_ptr<int>>>);
}

TEST(StatusOrTest, EveryValueIsDestroyedOnce) {
  const Status error(StatusCode::kInternal, "none");
  for (const bool first_ok : {false, true}) {
    for (const bool second_ok : {false, true}) {
      StatusOr<Counted> first = error, second = error;
      if (first_ok) first.emplace(1);
      if (second_ok) second = Counted(2);
      EXPECT_EQ(Counted::alive, first_ok + second_ok);
      first = second;
      EXPECT_EQ(first.ok(), second_ok);
      EXPECT_EQ(Counted::alive, 2 * second_ok);
      const StatusOr<Counted> copy = first;
      first = std::move(second);
      EXPECT_EQ(first.ok() ? first->value : 2, 2);
      EXPECT_EQ(copy.ok() ? copy->value : 2, 2);
      EXPECT_EQ(Counted::alive, 3 * second_ok);
      const StatusOr<Counted>& self = first;
      first = self;
      EXPECT_EQ(Counted::alive, 3 * second_ok);
    }
    EXPECT_EQ(Counted::alive, 0);
  }
}

StatusOr<std::pair<int, std::string>> Braced() { return {{1, "one"}}; }
StatusOr<std::vector<int>> Listed() { return std::vector<int>{1, 2}; }
StatusOr<std::string> FromText() { return "text"; }

TEST(StatusOrTest, IsReturnedInShort) {
  EXPECT_EQ(Braced()->second, "one");
  EXPECT_EQ(Listed()->size(), 2u);
  EXPECT_EQ(*FromText(), "text");
  static_assert(!std::is_convertible_v<int, StatusOr<std::vector<int>>>);
}

}  // namespace
}  // namespace millrace
