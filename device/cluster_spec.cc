// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>

#include <cctype>
#include <set>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/cluster.h"

namespace millrace {
namespace {

bool IsJobName(std::string_view name) {
  if (name.empty() || std::isalpha(static_cast<unsigned char>(name[0])) == 0) return false;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') return false;
  }
  return true;
}

}  // namespace

Status SplitAddress(std::string_view address, std::string* host, int* port) {
  const std::size_t colon = address.rfind(':');
  int64_t number = 0;
  if (colon == std::string_view::npos || colon == 0) {
    return errors::InvalidArgument("address '", address, "' is not of the form host:port");
  }
  if (!ParseInt64(address.substr(colon + 1), &number) || number < 0 || number > 65535) {
    return errors::InvalidArgument("Could not parse port for address '", address,
                                   "': expected a number from 0 to 65535 after the last ':'");
  }
  *host = std::string(address.substr(0, colon));
  if (host->size() > 2 && host->front() == '[' && host->back() == ']') {
    *host = host->substr(1, host->size() - 2);
  }
  for (const char c : *host) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isspace(byte) != 0 || std::iscntrl(byte) != 0 || c == '/' || c == ',' || c == ';') {
      return errors::InvalidArgument("address '", CEscape(address), "' has a malformed host");
    }
  }
  *port = static_cast<int>(number);
  return OkStatus();
}

bool IsLoopbackHost(std::string_view host) {
  if (host == "localhost" || host == "ip6-localhost") return true;
  // A name may begin like an address.
  const std::string text(host);
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  return inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

StatusOr<ClusterSpec> ClusterSpec::Parse(std::string_view text) {
  ClusterSpec spec;
  for (const std::string_view part : StrSplit(text, ',')) {
    const std::size_t bar = part.find('|');
    if (bar == std::string_view::npos) {
      return errors::InvalidArgument("cluster spec '", text, "': '", part,
                                     "' is not of the form job|host:port;host:port");
    }
    std::vector<std::string> addresses;
    for (const std::string_view a : StrSplit(part.substr(bar + 1), ';')) addresses.emplace_back(a);
    const Status status = spec.AddJob(part.substr(0, bar), addresses);
    if (!status.ok()) return WithMessage(status, StrCat("cluster spec: ", Message(status)));
  }
  return spec;
}

Status ClusterSpec::AddJob(std::string_view job, const std::vector<std::string>& addresses) {
  if (jobs_.contains(std::string(job))) {
    return errors::InvalidArgument("job '", job, "' is given twice");
  }
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    MR_RETURN_IF_ERROR(AddTask(job, static_cast<int>(i), addresses[i]));
  }
  return OkStatus();
}

Status ClusterSpec::AddTask(std::string_view job, int task, std::string_view address) {
  if (!IsJobName(job)) {
    return errors::InvalidArgument("'", job,
                                   "' is not a job name: expected a letter, then "
                                   "letters, digits or underscores");
  }
  if (task < 0)
    return errors::InvalidArgument("task index ", task, " of job '", job, "' is negative");
  std::string host;
  int port = 0;
  const Status status = SplitAddress(address, &host, &port);
  if (!status.ok()) {
    return Annotate(status, StrCat(" (task ", task, " of job '", job, "')"));
  }
  for (const auto& [other_job, tasks] : jobs_) {
    for (const auto& [other_task, other] : tasks) {
      if (other_job == job && other_task == task) {
        return errors::InvalidArgument("task ", task, " of job '", job,
                                       "' has two addresses: ", other, " and ", address);
      }
      if (port != 0 && other == address) {
        return errors::InvalidArgument("address ", address, " is given to two tasks: ", other_job,
                                       " ", other_task, " and ", job, " ", task);
      }
    }
  }
  jobs_[std::string(job)][task] = std::string(address);
  return OkStatus();
}

int ClusterSpec::num_tasks(std::string_view job) const {
  const auto it = jobs_.find(std::string(job));
  return it == jobs_.end() ? 0 : static_cast<int>(it->second.size());
}

StatusOr<std::string> ClusterSpec::Address(std::string_view job, int task) const {
  const auto it = jobs_.find(std::string(job));
  if (it == jobs_.end()) {
    std::vector<std::string> known;
    for (const auto& [name, tasks] : jobs_) known.push_back(name);
    return errors::InvalidArgument("Job \"", job, "\" was not defined in cluster; it has ",
                                   StrJoin(known, ", "));
  }
  const auto t = it->second.find(task);
  if (t == it->second.end()) {
    return errors::InvalidArgument("Task ", task, " was not defined in job \"", job,
                                   "\", which has ", it->second.size(), " task(s)");
  }
  return t->second;
}

std::string ClusterSpec::ToString() const {
  std::string text;
  for (const auto& [job, tasks] : jobs_) {
    StrAppend(&text, text.empty() ? "" : ",", job, "|");
    bool first = true;
    for (const auto& [task, address] : tasks) {
      StrAppend(&text, first ? "" : ";", address);
      first = false;
    }
  }
  return text;
}

}  // namespace millrace
