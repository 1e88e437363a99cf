// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/ckpt_remote.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/filesystem.h"
#include "io/tensor_bundle.h"
#include "millrace/graph.h"
#include "millrace/ops.h"
#include "millrace/saver.h"
#include "millrace/session.h"

namespace millrace {
namespace {

constexpr std::string_view kScheme = "grpc://";
// One message has at most so many bytes of a file.
constexpr int64_t kPiece = int64_t{256} << 20;
constexpr std::chrono::seconds kDeadline{120};  // of each

// Reads files through a server's ops.
class RemoteFiles {
 public:
  static StatusOr<std::unique_ptr<RemoteFiles>> Connect(const std::string& target) {
    std::unique_ptr<RemoteFiles> files(new RemoteFiles);
    const Scope root = files->graph_.root();
    files->path_ = Placeholder(root, kString, PartialShape(Shape()));
    files->begin_ = Placeholder(root, kInt64, PartialShape(Shape()));
    files->size_ = Placeholder(root, kInt64, PartialShape(Shape()));
    files->whole_ = ops::ReadFile(root, files->path_);
    files->piece_ = ops::Substr(root, files->whole_, files->begin_, files->size_);
    MR_RETURN_IF_ERROR(files->graph_.status());
    SessionOptions options{.target = target};
    options.start_timeout = kDeadline;
    options.step_timeout = kDeadline;
    MR_ASSIGN_OR_RETURN(Session session, Session::Create(files->graph_, options));
    files->session_.emplace(std::move(session));
    return files;
  }

  StatusOr<std::string> Read(const std::string& path) {
    return Fetch({{path_, Tensor::String(path)}}, whole_);
  }
  // The first `size` bytes, piece by piece into a file of this machine.
  Status Copy(const std::string& path, int64_t size, const std::string& to) {
    MR_ASSIGN_OR_RETURN(const auto file, PosixFileSystem()->NewWritableFile(to));
    for (int64_t at = 0; at < size;) {
      const int64_t n = std::min(kPiece, size - at);
      MR_ASSIGN_OR_RETURN(const std::string piece, Fetch({{path_, Tensor::String(path)},
                                                          {begin_, Tensor::Scalar<int64_t>(at)},
                                                          {size_, Tensor::Scalar<int64_t>(n)}},
                                                         piece_));
      MR_RETURN_IF_ERROR(file->Append(piece));
      // What is missing is said by whoever reads the copy.
      if (static_cast<int64_t>(piece.size()) < n) break;
      at += n;
    }
    return file->Close();
  }

 private:
  RemoteFiles() = default;

  StatusOr<std::string> Fetch(std::initializer_list<Feed> feeds, const Output& what) {
    MR_ASSIGN_OR_RETURN(const std::vector<Tensor> got, session_->Run(feeds, {what}));
    return got[0].TryScalar<std::string>();
  }

  Graph graph_;
  Output path_, begin_, size_, whole_, piece_;
  std::optional<Session> session_;
};

// The checkpoint that a directory's state file names.
StatusOr<std::string> NewestIn(RemoteFiles& files, const std::string& directory,
                               const std::string& copies) {
  MR_ASSIGN_OR_RETURN(const std::string text, files.Read(JoinPath(directory, "checkpoint")));
  MR_RETURN_IF_ERROR(PosixFileSystem()->WriteFileAtomically(copies + "/checkpoint", text));
  MR_ASSIGN_OR_RETURN(const std::optional<CheckpointState> state, GetCheckpointState(copies));
  if (!state) return errors::NotFound("the state file of ", directory, " cannot be read");
  const std::string& newest = state->model_checkpoint_path;
  // Relative paths were joined with the copy's directory.
  if (!newest.starts_with(copies)) return newest;
  return JoinPath(directory, newest.substr(copies.size() + 1));
}

Status CopyData(RemoteFiles& files, const std::string& prefix, const std::string& local) {
  MR_ASSIGN_OR_RETURN(const auto reader, BundleReader::Open(PosixFileSystem(), local));
  std::map<int, int64_t> sizes;
  for (const BundleReader::Entry& entry : reader->entries()) {
    const pb::BundleEntryProto& e = entry.proto;
    if (e.size() < 0 || e.offset() < 0 || e.offset() > INT64_MAX - e.size()) {
      return errors::DataLoss("the index of ", prefix, " has an entry of ", e.size(), " bytes at ",
                              e.offset(), ": neither may be negative");
    }
    if (e.size() > 0) {
      sizes[e.shard_id()] = std::max<int64_t>(sizes[e.shard_id()], e.offset() + e.size());
    }
  }
  const int shards = reader->header().num_shards();
  for (const auto& [shard, size] : sizes) {
    MR_RETURN_IF_ERROR(files.Copy(BundleDataName(prefix, shard, shards), size,
                                  BundleDataName(local, shard, shards)));
  }
  return OkStatus();
}

}  // namespace

bool IsRemotePrefix(std::string_view prefix) { return prefix.starts_with(kScheme); }

StatusOr<std::unique_ptr<FetchedCheckpoint>> FetchedCheckpoint::Fetch(const std::string& prefix,
                                                                      bool with_data) {
  const std::size_t slash = prefix.find('/', kScheme.size());
  if (slash == std::string::npos || slash + 1 == prefix.size()) {
    return errors::InvalidArgument(prefix, " names no file: give ", kScheme,
                                   "host:port/dir/model.ckpt-200, or the directory");
  }
  const std::string target = prefix.substr(0, slash);
  std::string path = prefix.substr(slash);
  const bool is_folder = path.ends_with('/');
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  if (error) return errors::NotFound("there is no folder for temporary files: ", error.message());
  std::unique_ptr<FetchedCheckpoint> made(new FetchedCheckpoint);
  // For this user alone (mode 0700): what others may not read at the server they may not read here.
  std::string folder = StrCat(temporary.string(), "/millrace_ckpt_XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) {
    return errors::Unavailable("cannot make a folder in ", temporary.string(), ": ",
                               std::strerror(errno));
  }
  made->folder_ = folder;
  MR_ASSIGN_OR_RETURN(const auto files, RemoteFiles::Connect(target));
  StatusOr<std::string> index =
      is_folder ? errors::NotFound(path, " is a folder") : files->Read(BundleIndexName(path));
  if (errors::IsNotFound(index.status())) {
    const StatusOr<std::string> newest = NewestIn(*files, path, made->folder_);
    if (!newest.ok()) {
      return errors::NotFound("there is no checkpoint ", path, " at ", target, " (", path,
                              ".index is missing, and there is no directory of this name with a "
                              "state file that can be read): ",
                              Message(newest.status()));
    }
    path = *newest;
    index = files->Read(BundleIndexName(path));
  }
  MR_RETURN_IF_ERROR(index.status());
  made->remote_ = target + path;
  made->local_ = JoinPath(made->folder_, BaseName(path));
  MR_RETURN_IF_ERROR(PosixFileSystem()->WriteFileAtomically(BundleIndexName(made->local_), *index));
  if (with_data) MR_RETURN_IF_ERROR(CopyData(*files, path, made->local_));
  return made;
}

FetchedCheckpoint::~FetchedCheckpoint() {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

}  // namespace millrace
