// SPDX-License-Identifier: Apache-2.0
// The names of a bundle's files, and how a new bundle takes the place of an old one of its prefix.
//
// A reader follows the index, so a bundle is what its index says, and the old one is whole until
// the index is replaced, which is one step. New data files therefore never have the name of one
// that the old index names: their number of shards is raised by one if need be
// ("model.data-00000-of-00002"), which readers take from the index. They are on the disk, names
// included, before the index is; what the old index named is deleted when the new one is on the
// disk too.
#ifndef IO_BUNDLE_FILES_H_
#define IO_BUNDLE_FILES_H_

#include <optional>
#include <string>
#include <vector>

#include "io/filesystem.h"
#include "millrace/status.h"

namespace millrace {

// Gives data files new names under `prefix`, in the order of shards, on the disk when it returns.
// The old names stay, so that nothing is lost without Keep, but on file systems where a file has
// one name.
class NewDataFiles {
 public:
  NewDataFiles(FileSystem* fs, std::string prefix);
  // Takes the names away again without Keep, but from files that an index names after all.
  ~NewDataFiles();

  Status Name(const std::vector<std::string>& files);
  int num_shards() const { return num_shards_; }
  // To be called when the index is in its place: deletes the old names, and all files of the prefix
  // that no index names and nobody writes: those of the old bundle and of saves that were killed.
  void Keep();

 private:
  Status TryNames(const std::vector<std::string>& files);
  Status NameOne(const std::string& file, const std::string& name);
  void TakeBack();

  FileSystem* const fs_;
  const std::string prefix_;
  const std::optional<int> old_shards_;  // as ShardsInUse in the source
  int num_shards_ = 0;
  bool kept_ = false;
  struct Named {
    std::string before, now;
    bool has_both = true;
  };
  std::vector<Named> named_;
};

}  // namespace millrace

#endif  // IO_BUNDLE_FILES_H_
