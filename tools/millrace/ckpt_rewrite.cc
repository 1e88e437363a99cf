// SPDX-License-Identifier: Apache-2.0
// New checkpoints out of others.
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "io/filesystem.h"
#include "io/tensor_bundle.h"
#include "proto/trackable_object_graph.pb.h"
#include "tools/millrace/ckpt_command.h"
#include "tools/millrace/ckpt_objects.h"

namespace millrace {
namespace {

constexpr char kObjectGraph[] = "_CHECKPOINTABLE_OBJECT_GRAPH";
using Entry = CheckpointReader::Entry;

Status CheckOutput(const std::string& output) {
  if (IsRemotePrefix(output)) {
    return errors::InvalidArgument("--output=", output,
                                   ": nothing is written by a server; name files of this machine");
  }
  if (output.empty() || output.ends_with('/')) {
    return errors::InvalidArgument("--output='", output,
                                   "' is no prefix of a checkpoint's files: name files in a "
                                   "directory, such as 'dir/model.ckpt'");
  }
  if (!CheckpointExists(output)) return OkStatus();
  return errors::AlreadyExists("there is a checkpoint ", output,
                               " already; name another --output, or delete it");
}

// Is gone with all that is in it, however the command ends.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

void Tell(const CkptFlags& flags, std::size_t tensors, std::string* text) {
  if (flags.as_json) {
    *text = nlohmann::ordered_json{{"output", flags.output}, {"tensors", tensors}}.dump(2) + "\n";
  } else {
    *text = StrCat(flags.output, ": ", tensors, " tensors\n");
  }
}

bool IsFloat(DataType dtype) { return IsFloating(dtype); }

template <typename T>
Tensor FromDoubles(const std::vector<double>& values, const Shape& shape) {
  std::vector<T> elements;
  for (const double v : values) elements.push_back(static_cast<T>(static_cast<float>(v)));
  return Tensor::FromValues<T>(std::span<const T>(elements), shape);
}

template <>
Tensor FromDoubles<double>(const std::vector<double>& values, const Shape& shape) {
  return Tensor::FromValues<double>(values, shape);
}

Tensor Floating(DataType dtype, const std::vector<double>& values, const Shape& shape) {
  switch (dtype) {
    case kDouble:
      return FromDoubles<double>(values, shape);
    case kHalf:
      return FromDoubles<Half>(values, shape);
    case kBfloat16:
      return FromDoubles<BFloat16>(values, shape);
    default:
      return FromDoubles<float>(values, shape);
  }
}

// Names by which variables were known in the program that saved them, by key.
StatusOr<std::map<std::string, std::string>> VariableNames(const OpenCheckpoint& open) {
  std::map<std::string, std::string> names;
  MR_ASSIGN_OR_RETURN(const std::string bytes, open.reader->ObjectGraph());
  pb::TrackableObjectGraph graph;
  if (!graph.ParseFromString(bytes)) return errors::DataLoss("the object graph cannot be read");
  std::set<std::string> taken;
  for (const auto& node : graph.nodes()) {
    for (const auto& attribute : node.attributes()) {
      if (!taken.insert(attribute.full_name()).second) {
        return errors::InvalidArgument("two variables of ", open.prefix, " are called ",
                                       attribute.full_name(),
                                       "; --rename one of their keys instead of --by_name");
      }
      names[attribute.checkpoint_key()] = attribute.full_name();
    }
  }
  return names;
}

Status AddRename(const std::string& rename, std::string_view where, const OpenCheckpoint& open,
                 std::map<std::string, std::string>* names) {
  const std::size_t at = rename.find('=');
  if (at == std::string::npos || open.reader->Find(rename.substr(0, at)) == nullptr) {
    return errors::InvalidArgument(where, rename, " must be old=new, and old a tensor of ",
                                   open.prefix);
  }
  (*names)[rename.substr(0, at)] = rename.substr(at + 1);
  return OkStatus();
}

// Those of the mapping file, and those of the command line.
Status AddRenames(const CkptFlags& flags, const OpenCheckpoint& open,
                  std::map<std::string, std::string>* names) {
  if (!flags.mapping.empty()) {
    MR_ASSIGN_OR_RETURN(const std::string text, PosixFileSystem()->ReadFile(flags.mapping));
    int number = 0;
    for (const std::string_view line : StrSplit(text, '\n')) {
      ++number;
      if (line.empty() || line[0] == '#') continue;
      MR_RETURN_IF_ERROR(
          AddRename(std::string(line), StrCat(flags.mapping, ":", number, ": "), open, names));
    }
  }
  for (const std::string& rename : flags.renames) {
    MR_RETURN_IF_ERROR(AddRename(rename, "--rename=", open, names));
  }
  return OkStatus();
}

}  // namespace

Status CkptConvert(const CkptFlags& flags, std::string* text, int* code) {
  MR_RETURN_IF_ERROR(CheckOutput(flags.output));
  if (flags.by_name && flags.by_object) {
    return errors::InvalidArgument("--by_name and --by_object are two directions; give one");
  }
  MR_ASSIGN_OR_RETURN(const OpenCheckpoint open, OpenPrefix(flags.prefixes[0]));
  std::map<std::string, std::string> names;
  if (flags.by_name) {
    MR_ASSIGN_OR_RETURN(names, VariableNames(open));
  }
  MR_RETURN_IF_ERROR(AddRenames(flags, open, &names));
  DataType dtype = DataType::kInvalid;
  if (!flags.dtype.empty()) DataTypeFromName(flags.dtype, &dtype);
  MR_ASSIGN_OR_RETURN(const auto writer, BundleWriter::Create(PosixFileSystem(), flags.output));
  std::map<std::string, std::string> paths;  // of objects; what was there was called
  std::size_t count = 0;
  for (const Entry& e : open.reader->entries()) {
    if ((flags.by_name || flags.by_object) && e.name == kObjectGraph) continue;
    MR_ASSIGN_OR_RETURN(Tensor value, open.reader->Read(e.name));
    if (dtype != DataType::kInvalid && IsFloat(e.dtype)) {
      value = Floating(dtype, NumbersOf(value), e.shape);
    }
    const auto it = names.find(e.name);
    std::string key = it == names.end() ? e.name : it->second;
    if (flags.by_object) {
      paths.emplace(key, e.name);
      MR_ASSIGN_OR_RETURN(key, KeyOfPath(key));
    }
    MR_RETURN_IF_ERROR(writer->Add(key, value));
    ++count;
  }
  if (flags.by_object) {
    MR_ASSIGN_OR_RETURN(const std::string graph, ObjectGraphOf(paths));
    MR_RETURN_IF_ERROR(writer->Add(kObjectGraph, Tensor::String(graph)));
  }
  MR_RETURN_IF_ERROR(writer->Finish());
  Tell(flags, count, text);
  return OkStatus();
}

Status CkptReshard(const CkptFlags& flags, std::string* text, int* code) {
  MR_RETURN_IF_ERROR(CheckOutput(flags.output));
  MR_ASSIGN_OR_RETURN(const OpenCheckpoint open, OpenPrefix(flags.prefixes[0]));
  // The biggest first, each into the file that has the fewest bytes.
  std::vector<const Entry*> entries;
  for (const Entry& e : open.reader->entries()) entries.push_back(&e);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry* a, const Entry* b) { return a->bytes > b->bytes; });
  std::vector<std::vector<const Entry*>> files(static_cast<std::size_t>(flags.files));
  std::vector<int64_t> bytes(files.size());
  for (const Entry* e : entries) {
    const auto least = std::min_element(bytes.begin(), bytes.end()) - bytes.begin();
    files[least].push_back(e);
    bytes[least] += e->bytes;
  }
  std::vector<std::string> parts;
  const TemporaryFolder folder(StrCat(flags.output, "_temp_", Hex16(RandomId())));
  for (std::size_t i = 0; i < files.size(); ++i) {
    parts.push_back(StrCat(folder.path(), "/part-", i));
    MR_ASSIGN_OR_RETURN(const auto writer, BundleWriter::Create(PosixFileSystem(), parts.back()));
    for (const Entry* e : files[i]) {
      MR_ASSIGN_OR_RETURN(const Tensor value, open.reader->Read(e->name));
      MR_RETURN_IF_ERROR(writer->Add(e->name, value));
    }
    MR_RETURN_IF_ERROR(writer->Finish());
  }
  MR_RETURN_IF_ERROR(MergeBundles(PosixFileSystem(), parts, flags.output, false));
  Tell(flags, entries.size(), text);
  return OkStatus();
}

Status CkptMerge(const CkptFlags& flags, std::string* text, int* code) {
  MR_RETURN_IF_ERROR(CheckOutput(flags.output));
  MR_ASSIGN_OR_RETURN(const auto writer, BundleWriter::Create(PosixFileSystem(), flags.output));
  std::map<std::string, std::string> seen;  // by tensor, the checkpoint that has it
  for (const std::string& prefix : flags.prefixes) {
    MR_ASSIGN_OR_RETURN(const OpenCheckpoint open, OpenPrefix(prefix));
    for (const Entry& e : open.reader->entries()) {
      const auto [it, is_new] = seen.emplace(e.name, open.prefix);
      if (!is_new) {
        return errors::InvalidArgument("Duplicate tensor keyed by ", e.name, ": it is in ",
                                       it->second, " and in ", open.prefix,
                                       "; `ckpt convert --rename` gives one another name");
      }
      MR_ASSIGN_OR_RETURN(const Tensor value, open.reader->Read(e.name));
      MR_RETURN_IF_ERROR(writer->Add(e.name, value));
    }
  }
  MR_RETURN_IF_ERROR(writer->Finish());
  Tell(flags, seen.size(), text);
  return OkStatus();
}

Status CkptAverage(const CkptFlags& flags, std::string* text, int* code) {
  MR_RETURN_IF_ERROR(CheckOutput(flags.output));
  std::vector<OpenCheckpoint> all;
  for (const std::string& prefix : flags.prefixes) {
    MR_ASSIGN_OR_RETURN(OpenCheckpoint open, OpenPrefix(prefix));
    all.push_back(std::move(open));
  }
  MR_ASSIGN_OR_RETURN(const auto writer, BundleWriter::Create(PosixFileSystem(), flags.output));
  for (const Entry& e : all.back().reader->entries()) {
    MR_ASSIGN_OR_RETURN(Tensor value, all.back().reader->Read(e.name));
    if (IsFloat(e.dtype)) {
      std::vector<double> sums(static_cast<std::size_t>(e.shape.num_elements()));
      for (const OpenCheckpoint& open : all) {
        const Entry* const other = open.reader->Find(e.name);
        if (other == nullptr || other->dtype != e.dtype || !(other->shape == e.shape)) {
          return errors::InvalidArgument(open.prefix, " has no tensor ", e.name, " of type ",
                                         DataTypeName(e.dtype), " and shape ",
                                         e.shape.DebugString(), ", as ", all.back().prefix);
        }
        MR_ASSIGN_OR_RETURN(const Tensor addend, open.reader->Read(e.name));
        const std::vector<double> numbers = NumbersOf(addend);
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += numbers[i];
      }
      for (double& v : sums) v /= static_cast<double>(all.size());
      value = Floating(e.dtype, sums, e.shape);
    }
    MR_RETURN_IF_ERROR(writer->Add(e.name, value));
  }
  MR_RETURN_IF_ERROR(writer->Finish());
  Tell(flags, all.back().reader->entries().size(), text);
  return OkStatus();
}

}  // namespace millrace
