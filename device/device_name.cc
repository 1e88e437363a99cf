// SPDX-License-Identifier: Apache-2.0
#include "device/device_name.h"

#include <cctype>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool IsWord(std::string_view text) {
  if (text.empty() || !IsLetter(text[0])) return false;
  for (const char c : text) {
    if (!IsWordChar(c)) return false;
  }
  return true;
}

bool ParseNumber(std::string_view text, int* value) {
  int64_t wide = 0;
  if (text.empty() || !std::isdigit(static_cast<unsigned char>(text[0]))) return false;
  if (!ParseInt64(text, &wide) || wide > INT32_MAX) return false;
  *value = static_cast<int>(wide);
  return true;
}

bool SetNumber(std::string_view text, std::optional<int>* field) {
  if (text == "*") {
    field->reset();
    return true;
  }
  int value = 0;
  if (!ParseNumber(text, &value)) return false;
  *field = value;
  return true;
}

// "TYPE", "TYPE:ID", "TYPE:*" or "*".
bool SetDevice(std::string_view text, bool legacy, DeviceName* name) {
  const std::size_t colon = text.find(':');
  const std::string_view type = text.substr(0, colon);
  if (type == "*") {
    name->type.reset();
  } else if (IsWord(type)) {
    name->type = std::string(type);
    if (legacy) {
      for (char& c : *name->type)
        c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
  } else {
    return false;
  }
  if (colon == std::string_view::npos) {
    name->id.reset();
    return true;
  }
  return SetNumber(text.substr(colon + 1), &name->id);
}

bool IsLegacyType(std::string_view type) {
  return type == "cpu" || type == "CPU" || type == "gpu" || type == "GPU";
}

// One part, without the leading slash.
bool SetPart(std::string_view part, DeviceName* name) {
  const std::size_t colon = part.find(':');
  const std::string_view key = part.substr(0, colon);
  if (colon == std::string_view::npos) return false;
  const std::string_view value = part.substr(colon + 1);
  if (key == "job") {
    if (value == "*") {
      name->job.reset();
      return true;
    }
    if (!IsWord(value)) return false;
    name->job = std::string(value);
    return true;
  }
  if (key == "replica") return SetNumber(value, &name->replica);
  if (key == "task") return SetNumber(value, &name->task);
  if (key == "device") return SetDevice(value, /*legacy=*/false, name);
  if (IsLegacyType(key)) return SetDevice(part, /*legacy=*/true, name);
  return false;
}

bool ParseParts(std::string_view text, DeviceName* name) {
  if (text.empty() || text == "/") return true;
  if (text[0] != '/') {  // a local name
    return text.find('/') == std::string_view::npos && text.find(':') != std::string_view::npos &&
           SetDevice(text, IsLegacyType(text.substr(0, text.find(':'))), name);
  }
  for (const std::string_view part : StrSplit(text.substr(1), '/')) {
    if (!SetPart(part, name)) return false;
  }
  return true;
}

template <typename T>
bool Differ(const std::optional<T>& a, const std::optional<T>& b) {
  return a && b && *a != *b;
}
template <typename T>
void CopyIfSet(const std::optional<T>& from, std::optional<T>* to) {
  if (from) *to = from;
}
template <typename T>
bool Covers(const std::optional<T>& request, const std::optional<T>& have) {
  return !request || (have && *have == *request);
}

}  // namespace

StatusOr<DeviceName> DeviceName::Parse(std::string_view text) {
  DeviceName name;
  if (!ParseParts(text, &name)) {
    return errors::InvalidArgument("Malformed device specification '", text,
                                   "'; expected parts of /job:J/replica:R/task:T/device:TYPE:ID");
  }
  return name;
}

std::string DeviceName::ToString() const {
  std::string text;
  if (job) StrAppend(&text, "/job:", *job);
  if (replica) StrAppend(&text, "/replica:", *replica);
  if (task) StrAppend(&text, "/task:", *task);
  if (type) {
    StrAppend(&text, "/device:", *type, ":");
    id ? StrAppend(&text, *id) : StrAppend(&text, "*");
  } else if (id) {
    StrAppend(&text, "/device:*:", *id);
  }
  return text;
}

void DeviceName::EnsureSpecification(const DeviceName& more) {
  CopyIfSet(more.job, &job);
  CopyIfSet(more.replica, &replica);
  CopyIfSet(more.task, &task);
  CopyIfSet(more.type, &type);
  CopyIfSet(more.id, &id);
}

void DeviceName::FillFrom(const DeviceName& base) {
  DeviceName filled = base;
  filled.EnsureSpecification(*this);
  *this = std::move(filled);
}

bool DeviceName::Matches(const DeviceName& specific) const {
  return Covers(job, specific.job) && Covers(replica, specific.replica) &&
         Covers(task, specific.task) && Covers(type, specific.type) && Covers(id, specific.id);
}

bool DeviceName::IsCompatibleWith(const DeviceName& other) const {
  return !Differ(job, other.job) && !Differ(replica, other.replica) && !Differ(task, other.task) &&
         !Differ(type, other.type) && !Differ(id, other.id);
}

bool DeviceName::SameAddressSpace(const DeviceName& other) const {
  return job && replica && task && job == other.job && replica == other.replica &&
         task == other.task;
}

namespace {

// The parts of a merge that no softness helps with.
Status MergeTask(const DeviceName& other, DeviceName* name) {
  const char* what = Differ(name->job, other.job)           ? "jobs"
                     : Differ(name->replica, other.replica) ? "replicas"
                     : Differ(name->task, other.task)       ? "tasks"
                                                            : nullptr;
  if (what != nullptr) {
    return errors::InvalidArgument("Cannot merge devices with incompatible ", what, ": '",
                                   name->ToString(), "' and '", other.ToString(), "'");
  }
  CopyIfSet(other.job, &name->job);
  CopyIfSet(other.replica, &name->replica);
  CopyIfSet(other.task, &name->task);
  return OkStatus();
}

}  // namespace

Status DeviceName::MergeFrom(const DeviceName& other, bool soft) {
  const std::string before = ToString();
  if (Status status = MergeTask(other, this); !status.ok()) return status;
  if (Differ(type, other.type)) {
    if (!soft) {
      return errors::InvalidArgument("Cannot merge devices with incompatible types: '", before,
                                     "' and '", other.ToString(), "'");
    }
    type.reset();
    id.reset();
    return OkStatus();
  }
  CopyIfSet(other.type, &type);
  if (Differ(id, other.id)) {
    if (!soft) {
      return errors::InvalidArgument("Cannot merge devices with incompatible ids: '", before,
                                     "' and '", other.ToString(), "'");
    }
    id.reset();
    return OkStatus();
  }
  CopyIfSet(other.id, &id);
  return OkStatus();
}

Status DeviceName::MergeOverride(const DeviceName& other) {
  if (Status status = MergeTask(other, this); !status.ok()) return status;
  if (Differ(type, other.type)) id.reset();
  CopyIfSet(other.type, &type);
  CopyIfSet(other.id, &id);
  return OkStatus();
}

std::string TaskName(const DeviceName& name) {
  if (!name.job || !name.task) return "";
  return StrCat("/job:", *name.job, "/replica:", name.replica.value_or(0), "/task:", *name.task);
}

std::string MakeTaskName(std::string_view job, int task) {
  return StrCat("/job:", job, "/replica:0/task:", task);
}

StatusOr<std::string> CanonicalDeviceName(std::string_view text, const DeviceName& base) {
  StatusOr<DeviceName> name = DeviceName::Parse(text);
  if (!name.ok()) return name.status();
  name->FillFrom(base);
  return name->ToString();
}

}  // namespace millrace
