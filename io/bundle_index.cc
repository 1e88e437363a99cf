// SPDX-License-Identifier: Apache-2.0
// The only file that sees LevelDB. It is given files in memory: an index is small.
#include "io/bundle_index.h"

#include <leveldb/env.h>
#include <leveldb/iterator.h>
#include <leveldb/options.h>
#include <leveldb/table.h>
#include <leveldb/table_builder.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

class StringFile : public leveldb::WritableFile {
 public:
  leveldb::Status Append(const leveldb::Slice& data) override {
    content.append(data.data(), data.size());
    return leveldb::Status::OK();
  }
  leveldb::Status Close() override { return leveldb::Status::OK(); }
  leveldb::Status Flush() override { return leveldb::Status::OK(); }
  leveldb::Status Sync() override { return leveldb::Status::OK(); }

  std::string content;
};

class MemoryFile : public leveldb::RandomAccessFile {
 public:
  explicit MemoryFile(std::string content) : content_(std::move(content)) {}
  std::size_t size() const { return content_.size(); }
  leveldb::Status Read(uint64_t offset, size_t n, leveldb::Slice* result, char*) const override {
    if (offset > content_.size()) return leveldb::Status::Corruption("offset beyond the file");
    *result = leveldb::Slice(content_.data() + offset, std::min(n, content_.size() - offset));
    return leveldb::Status::OK();
  }

 private:
  const std::string content_;
};

leveldb::Options TableOptions() {
  leveldb::Options options;
  options.block_size = 256 << 10;
  options.block_restart_interval = 16;
  options.compression = leveldb::kNoCompression;
  options.paranoid_checks = true;  // also of the index block
  return options;
}

// Of a file whose blocks are as their checksums say.
Status FromLevelDb(const leveldb::Status& status, const std::string& path, std::size_t size) {
  if (status.ok()) return OkStatus();
  return errors::DataLoss("cannot read the table ", path, ": ", status.ToString(),
                          "; expected keys in order and their values in bytes 0 to ", size,
                          ": whoever wrote them wrote something else");
}

using Entries = std::vector<std::pair<std::string, std::string>>;

StatusOr<Entries> ReadEntries(MemoryFile* file, const std::string& path) {
  leveldb::Table* opened = nullptr;
  MR_RETURN_IF_ERROR(FromLevelDb(leveldb::Table::Open(TableOptions(), file, file->size(), &opened),
                                 path, file->size()));
  const std::unique_ptr<leveldb::Table> table(opened);
  leveldb::ReadOptions read;
  read.verify_checksums = true;
  const std::unique_ptr<leveldb::Iterator> it(table->NewIterator(read));
  Entries values;
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    values.emplace_back(it->key().ToString(), it->value().ToString());
  }
  MR_RETURN_IF_ERROR(FromLevelDb(it->status(), path, file->size()));
  return values;
}

}  // namespace

Status WriteTable(FileSystem* fs, const std::string& path,
                  const std::map<std::string, std::string>& values) {
  StringFile file;
  leveldb::TableBuilder builder(TableOptions(), &file);
  for (const auto& [key, value] : values) builder.Add(key, value);
  if (const leveldb::Status status = builder.Finish(); !status.ok()) {
    return errors::Internal("cannot write the table ", path, ": ", status.ToString());
  }
  return fs->WriteFileDurably(path, file.content);
}

StatusOr<std::vector<std::pair<std::string, std::string>>> ReadTable(FileSystem* fs,
                                                                     const std::string& path) {
  MR_ASSIGN_OR_RETURN(std::string content, fs->ReadFile(path));
  if (const std::string wrong = DescribeTableDamage(content); !wrong.empty()) {
    return errors::DataLoss("cannot read the table ", path, ": Corruption: ", wrong);
  }
  MemoryFile file(std::move(content));
  // LevelDB believes the sizes of blocks that the file states, and allocates before it reads.
  try {
    return ReadEntries(&file, path);
  } catch (const std::bad_alloc&) {
    return errors::DataLoss("cannot read the table ", path, " of ", file.size(),
                            " bytes: it states a block that is larger than memory");
  }
}

}  // namespace millrace
