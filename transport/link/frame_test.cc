// SPDX-License-Identifier: Apache-2.0
#include "transport/link/frame.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace millrace {
namespace {

// Two ends of a stream socket that do not block.
class FrameTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends_), 0);
  }
  void TearDown() override {
    for (int fd : ends_) close(fd);
  }

  // Moves everything from one end to the other, in as many turns as it takes.
  std::vector<std::unique_ptr<InFrame>> Carry(FrameWriter* writer, FrameReader* reader) {
    std::vector<std::unique_ptr<InFrame>> frames;
    for (int turn = 0; turn < 100'000; ++turn) {
      const StatusOr<bool> written = writer->Write(ends_[0]);
      EXPECT_TRUE(written.ok()) << written.status();
      const auto read = reader->Read(ends_[1], &frames);
      EXPECT_TRUE(read.ok()) << read.status();
      if (!read.ok() || (written.ok() && *written && writer->empty())) break;
    }
    const auto read = reader->Read(ends_[1], &frames);
    EXPECT_TRUE(read.ok()) << read.status();
    return frames;
  }

  // What a reader says to these bytes.
  Status Garbled(const std::string& bytes) {
    EXPECT_EQ(write(ends_[0], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    FrameReader reader;
    std::vector<std::unique_ptr<InFrame>> frames;
    return reader.Read(ends_[1], &frames).status();
  }

  int ends_[2] = {-1, -1};
};

std::string Text(const InFrame& frame) {
  WireReader reader = frame.reader();
  std::string text;
  EXPECT_TRUE(reader.ReadString(&text, reader.remaining()));
  return text;
}

Tensor Numbers(int64_t count) {
  Tensor t(kFloat, Shape({count}));
  for (int64_t i = 0; i < count; ++i) t.data<float>()[i] = static_cast<float>(i);
  return t;
}

TEST_F(FrameTest, LargeTensorsLieInMemoryOfTheSender) {
  const auto arena = MakeRef<SharedArena>(int64_t{64} << 20);
  const auto returns = MakeRef<SharedReturns>([] {});
  const Tensor tensor = Numbers(1 << 18);
  WireWriter message;
  ASSERT_TRUE(message.AppendTensorField(1, tensor).ok());
  OutFrame frame(FrameHeader{.kind = FrameKind::kResponse, .call_id = 5}, std::move(message),
                 arena.get());
  ASSERT_EQ(frame.segments.size(), 1u);
  const RefPtr<SharedLease> lease = frame.segments[0].lease;
  ASSERT_TRUE(lease);
  EXPECT_EQ(frame.segments[0].size(), sizeof(SharedPlace));
  FrameWriter writer;
  FrameReader reader(FrameHeader::kMaxSegmentBytes,
                     std::make_unique<SharedInbox>(/*copies=*/false, returns));
  writer.Add(OutFrame(lease->slab()));
  writer.Add(std::move(frame));
  auto frames = Carry(&writer, &reader);
  ASSERT_EQ(frames.size(), 1u);
  {
    WireReader in = frames[0]->reader();
    uint32_t field, type;
    WireReader body;
    ASSERT_TRUE(in.ReadTag(&field, &type) && in.ReadBody(&body));
    const StatusOr<Tensor> read = ReadTensor(body);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(std::memcmp(read->raw_data(), tensor.raw_data(), tensor.num_bytes()), 0);
    EXPECT_NE(read->raw_data(), lease->data());  // mapped a second time
    frames.clear();
    EXPECT_TRUE(returns->Take().empty());
  }
  EXPECT_EQ(returns->Take().size(), 1u);
}

TEST_F(FrameTest, RefusesSharedMemoryWhereNoneWasAgreedOn) {
  const auto arena = MakeRef<SharedArena>(int64_t{64} << 20);
  EXPECT_TRUE(errors::IsInvalidArgument(Garbled(OutFrame(arena->Take(100'000)->slab()).head)));
}

TEST_F(FrameTest, RefusesASlabWithoutItsFile) {
  const auto arena = MakeRef<SharedArena>(int64_t{64} << 20);
  const std::string bytes = OutFrame(arena->Take(100'000)->slab()).head;
  ASSERT_EQ(write(ends_[0], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  FrameReader reader(FrameHeader::kMaxSegmentBytes,
                     std::make_unique<SharedInbox>(false, MakeRef<SharedReturns>([] {})));
  std::vector<std::unique_ptr<InFrame>> frames;
  EXPECT_TRUE(errors::IsInvalidArgument(reader.Read(ends_[1], &frames).status()));
}

TEST_F(FrameTest, CarriesHeaderAndText) {
  WireWriter message;
  message.AppendBytesField(1, "hello");
  const std::string expected = message.Flatten();
  FrameWriter writer;
  FrameReader reader;
  writer.Add(OutFrame(FrameHeader{.kind = FrameKind::kRequest, .method = 2, .call_id = 77},
                      std::move(message)));
  writer.Add(OutFrame(FrameHeader{.kind = FrameKind::kCancel, .call_id = 78}, WireWriter()));
  const auto frames = Carry(&writer, &reader);
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0]->header.kind, FrameKind::kRequest);
  EXPECT_EQ(frames[0]->header.method, 2);
  EXPECT_EQ(frames[0]->header.call_id, 77u);
  EXPECT_EQ(Text(*frames[0]), expected);
  EXPECT_EQ(frames[1]->header.kind, FrameKind::kCancel);
  EXPECT_EQ(Text(*frames[1]), "");
}

// Sizes around the reader's scratch bytes and far beyond any socket buffer.
TEST_F(FrameTest, CarriesTensorsOfAllSizesInOrder) {
  FrameWriter writer;
  FrameReader reader;
  std::vector<Tensor> sent;
  std::vector<std::string> expected;
  for (const int64_t count : {512, 1000, 16'000, 16'384, 16'385, 3'000'000, 700}) {
    WireWriter message;
    for (int i = 0; i < 3; ++i) {
      sent.push_back(Numbers(count + i));
      ASSERT_TRUE(message.AppendTensorField(1, sent.back()).ok());
    }
    message.AppendVarintField(2, 9);
    expected.push_back(message.Flatten());
    writer.Add(OutFrame(FrameHeader{.kind = FrameKind::kResponse}, std::move(message)));
  }
  const auto frames = Carry(&writer, &reader);
  ASSERT_EQ(frames.size(), expected.size());
  for (std::size_t i = 0; i < frames.size(); ++i) EXPECT_EQ(Text(*frames[i]), expected[i]) << i;
}

TEST_F(FrameTest, ATensorSharesTheBufferItWasReadInto) {
  FrameWriter writer;
  FrameReader reader;
  WireWriter message;
  ASSERT_TRUE(message.AppendTensorField(1, Numbers(5000)).ok());
  writer.Add(OutFrame(FrameHeader{.kind = FrameKind::kResponse}, std::move(message)));
  auto frames = Carry(&writer, &reader);
  ASSERT_EQ(frames.size(), 1u);
  WireReader in = frames[0]->reader(), body;
  uint32_t field, type;
  ASSERT_TRUE(in.ReadTag(&field, &type) && in.ReadBody(&body));
  StatusOr<Tensor> tensor = ReadTensor(body);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_FALSE(tensor->OwnsBufferAlone());
  frames.clear();
  EXPECT_TRUE(tensor->OwnsBufferAlone());  // and outlives the frame
  EXPECT_TRUE(TensorsEqual(*tensor, Numbers(5000)));
}

TEST_F(FrameTest, TellsThatThePeerClosed) {
  FrameReader reader;
  std::vector<std::unique_ptr<InFrame>> frames;
  shutdown(ends_[0], SHUT_RDWR);
  const auto read = reader.Read(ends_[1], &frames);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, FrameReader::Result::kClosed);
}

TEST_F(FrameTest, WritingToAClosedPeerIsUnavailable) {
  shutdown(ends_[1], SHUT_RDWR);
  FrameWriter writer;
  writer.Add(OutFrame(FrameHeader{.kind = FrameKind::kCancel}, WireWriter()));
  EXPECT_TRUE(errors::IsUnavailable(writer.Write(ends_[0]).status()));
}

TEST_F(FrameTest, RefusesWhatIsNotAFrame) {
  EXPECT_EQ(Garbled(std::string(64, 'x')).code(), StatusCode::kInvalidArgument);
}

TEST_F(FrameTest, RefusesAbsurdSizesBeforeTakingMemory) {
  const OutFrame good(FrameHeader{.kind = FrameKind::kRequest}, WireWriter());
  std::string many = good.head;
  many[11] = 0x7f;  // the highest byte of the number of segments
  EXPECT_EQ(Garbled(many).code(), StatusCode::kInvalidArgument);
}

TEST_F(FrameTest, RefusesATextOfExabytes) {
  std::string large = OutFrame(FrameHeader{.kind = FrameKind::kRequest}, WireWriter()).head;
  large[31] = 0x7f;
  EXPECT_EQ(Garbled(large).code(), StatusCode::kInvalidArgument);
}

TEST_F(FrameTest, RefusesATableThatPointsOutsideTheText) {
  WireWriter message;
  ASSERT_TRUE(message.AppendTensorField(1, Numbers(5000)).ok());
  std::string head = OutFrame(FrameHeader{.kind = FrameKind::kRequest}, std::move(message)).head;
  head[FrameHeader::kSize + 3] = 0x7f;  // of where the segment belongs
  EXPECT_EQ(Garbled(head).code(), StatusCode::kInvalidArgument);
}

TEST_F(FrameTest, RefusesTensorsBeyondItsLimit) {
  WireWriter message;
  ASSERT_TRUE(message.AppendTensorField(1, Numbers(5000)).ok());
  FrameWriter writer;
  writer.Add(OutFrame(FrameHeader{.kind = FrameKind::kRequest}, std::move(message)));
  ASSERT_TRUE(writer.Write(ends_[0]).ok());
  FrameReader reader(19'999);
  std::vector<std::unique_ptr<InFrame>> frames;
  EXPECT_EQ(reader.Read(ends_[1], &frames).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(frames.empty());
}

}  // namespace
}  // namespace millrace
