// SPDX-License-Identifier: Apache-2.0
#include "summary/event_file.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/errors.h"
#include "base/notification.h"

namespace millrace {
namespace {

// A disk that a test holds up or fills.
struct Disk {
  Notification go;
  std::atomic<bool> full{false};
  std::atomic<int64_t> bytes{0};
};

class FileOnDisk : public WritableFile {
 public:
  explicit FileOnDisk(Disk* disk) : disk_(disk) {}
  Status Append(std::string_view bytes) override {
    disk_->go.Wait();
    if (disk_->full) return errors::ResourceExhausted("no space for events");
    disk_->bytes += static_cast<int64_t>(bytes.size());
    return OkStatus();
  }
  Status Flush() override { return OkStatus(); }
  Status Sync() override { return OkStatus(); }
  Status Close() override { return OkStatus(); }

 private:
  Disk* const disk_;
};

constexpr int64_t kRecord = 100, kInFile = kRecord + 16;
const std::string& Record() {
  static const auto* const record = new std::string(kRecord, 'x');
  return *record;
}

std::unique_ptr<EventFile> NewFile(Disk* disk, int64_t max_queue_bytes = 1 << 20) {
  return std::make_unique<EventFile>("events", std::make_unique<FileOnDisk>(disk),
                                     EventFile::Options{.max_queue_bytes = max_queue_bytes,
                                                        .flush_interval = std::chrono::hours(1)});
}

TEST(EventFile, KeepsWritersWaitingWhileItsQueueIsFull) {
  Disk disk;
  const auto file = NewFile(&disk, 3 * kInFile);
  std::atomic<int> appended{0};
  std::thread writer([&] {
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(file->Append(Record()).ok());
      ++appended;
    }
  });
  // What the thread took before the disk stopped it, and what the queue holds: never more.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LE(appended, 6);
  disk.go.Notify();
  writer.join();
  EXPECT_TRUE(file->Close().ok());
  EXPECT_EQ(disk.bytes, 20 * kInFile);
}

TEST(EventFile, TakesARecordThatIsBiggerThanItsQueue) {
  Disk disk;
  disk.go.Notify();
  const auto file = NewFile(&disk, 1);
  EXPECT_TRUE(file->Append(Record()).ok());
  EXPECT_TRUE(file->Append(Record()).ok());
  EXPECT_TRUE(file->Flush().ok());
  EXPECT_EQ(disk.bytes, 2 * kInFile);
}

TEST(EventFile, ReturnsTheFirstErrorOfTheDiskFromThenOn) {
  Disk disk;
  disk.full = true;
  disk.go.Notify();
  const auto file = NewFile(&disk, kInFile);
  ASSERT_TRUE(file->Append(Record()).ok());
  EXPECT_TRUE(errors::IsResourceExhausted(file->Flush()));
  disk.full = false;
  for (int i = 0; i < 10; ++i) {
    const Status status = file->Append(Record());
    EXPECT_TRUE(errors::IsResourceExhausted(status)) << status;
    EXPECT_NE(Message(status).find("no further events"), std::string_view::npos);
  }
  EXPECT_TRUE(errors::IsResourceExhausted(file->Close()));
  EXPECT_EQ(disk.bytes, 0);
}

TEST(EventFile, LetsWaitingWritersGoWhenTheDiskFails) {
  Disk disk;
  disk.full = true;
  const auto file = NewFile(&disk, kInFile);
  std::thread writer([&] {
    Status status;
    while (status.ok()) status = file->Append(Record());
    EXPECT_TRUE(errors::IsResourceExhausted(status)) << status;
  });
  disk.go.Notify();
  writer.join();
}

TEST(EventFile, WritesWhatIsLeftWhenItIsDestroyed) {
  Disk disk;
  disk.go.Notify();
  for (int i = 0; i < 50; ++i) {
    const auto file = NewFile(&disk);
    EXPECT_TRUE(file->Append(Record()).ok());
  }
  EXPECT_EQ(disk.bytes, 50 * kInFile);
}

}  // namespace
}  // namespace millrace
