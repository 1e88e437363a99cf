// SPDX-License-Identifier: Apache-2.0
#include "transport/security/certificate_name.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/device_name.h"

namespace millrace {
namespace {

constexpr std::string_view kScheme = "millrace://";
// Below a name that ICANN keeps for private networks: nobody has it outside.
constexpr std::string_view kDomain = ".millrace.internal";
constexpr std::string_view kDnsTask = "task-", kDnsJob = "job-";
constexpr std::size_t kMaxNameSize = 128;
constexpr std::size_t kMaxLabel = 63, kMaxDns = 253;  // RFC 1035, 2.3.4
constexpr int64_t kMaxTask = 999'999'999;

// Characters that need no escape in a URI and mean nothing there.
bool IsName(std::string_view text) {
  return text.size() <= kMaxNameSize && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '-' || c == '_';
         });
}

// Of a DNS name (RFC 1123, 2.1). Resolvers and authorities take capital letters for small ones: a
// name has none.
bool IsLabel(std::string_view text) {
  return !text.empty() && text.size() <= kMaxLabel && text.front() != '-' && text.back() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

bool AreLabels(std::string_view text) {
  while (!text.empty()) {
    const std::size_t dot = std::min(text.find('.'), text.size());
    if (!IsLabel(text.substr(0, dot))) return false;
    if (dot == text.size()) return true;
    text.remove_prefix(dot + 1);
  }
  return false;
}

// Takes the first label off, and the dot behind it.
std::string_view TakeLabel(std::string_view* text) {
  const std::size_t dot = std::min(text->find('.'), text->size());
  const std::string_view label = text->substr(0, dot);
  text->remove_prefix(std::min(dot + 1, text->size()));
  return label;
}

bool ParseTask(std::string_view path, CertificateName* name) {
  constexpr std::string_view kJob = "/job:", kTask = "/task:";
  if (!path.starts_with(kJob)) return false;
  path.remove_prefix(kJob.size());
  const std::size_t slash = path.find('/');
  if (slash == 0 || slash == std::string_view::npos) return false;
  name->job = path.substr(0, slash);
  path.remove_prefix(slash);
  int64_t task = 0;
  if (!IsName(name->job) || !path.starts_with(kTask) ||
      !ParseInt64(path.substr(kTask.size()), &task) || task < 0 || task > kMaxTask) {
    return false;
  }
  name->task = static_cast<int>(task);
  return true;
}

std::string ClusterText(const CertificateName& name) {
  return name.cluster.empty() ? std::string("a cluster without a name")
                              : StrCat("cluster '", name.cluster, "'");
}

// The roles that may call a method, or those of a service ("/" at its end); the first that fits
// counts.
struct Right {
  std::string_view method;
  std::initializer_list<Role> roles;

  bool IsFor(std::string_view path) const {
    return method.ends_with('/') ? path.starts_with(method) : path == method;
  }
};
constexpr Right kRights[] = {
    {"/tensorflow.MasterService/", {Role::kTask, Role::kClient}},
    {"/tensorflow.eager.EagerService/", {Role::kTask, Role::kClient}},
    {"/tensorflow.WorkerService/GetStatus", {Role::kTask, Role::kClient, Role::kAdmin}},
    // The results of a client's own eager contexts: the worker service looks at whose they are.
    {"/tensorflow.WorkerService/RecvTensor", {Role::kTask, Role::kClient}},
    {"/tensorflow.WorkerService/", {Role::kTask}},
    {"/millrace.ControlService/Status", {Role::kTask, Role::kClient, Role::kAdmin}},
    // A chief ends the parameter servers of its job.
    {"/millrace.ControlService/Shutdown", {Role::kTask, Role::kAdmin}},
    {"/millrace.ControlService/DescribeStep", {Role::kTask, Role::kAdmin}},
    {"/millrace.ControlService/WhyWaiting", {Role::kTask, Role::kAdmin}},
    {"/millrace.ControlService/Ledger", {Role::kTask, Role::kClient, Role::kAdmin}},
    {"/millrace.ControlService/OfferLink", {Role::kTask}},
    {"/millrace.ControlService/Page", {Role::kTask, Role::kAdmin}},
    {"/millrace.ControlService/Trace", {Role::kTask, Role::kAdmin}},
};

std::string_view RoleText(Role role) {
  switch (role) {
    case Role::kTask:
      return "tasks";
    case Role::kClient:
      return "clients";
    case Role::kAdmin:
      break;
  }
  return "administrators";
}

Status CheckSameCluster(const CertificateName& own, const CertificateName& peer) {
  if (peer.cluster == own.cluster) return OkStatus();
  return errors::PermissionDenied("the certificate of the peer is for ", peer.ToUri(), " of ",
                                  ClusterText(peer), "; this end belongs to ", ClusterText(own));
}

}  // namespace

std::string CertificateName::ToUri() const {
  switch (role) {
    case Role::kTask:
      return StrCat(kScheme, cluster, "/job:", job, "/task:", task);
    case Role::kClient:
      return StrCat(kScheme, cluster, "/client");
    case Role::kAdmin:
      break;
  }
  return StrCat(kScheme, cluster, "/admin");
}

std::string CertificateName::TaskName() const {
  return role == Role::kTask ? MakeTaskName(job, task) : std::string();
}

StatusOr<CertificateName> ParseCertificateUri(std::string_view uri) {
  CertificateName name;
  bool good = uri.starts_with(kScheme);
  if (good) {
    const std::string_view rest = uri.substr(kScheme.size());
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    name.cluster = rest.substr(0, slash);
    const std::string_view path = rest.substr(slash);
    if (path == "/client") {
      name.role = Role::kClient;
    } else if (path == "/admin") {
      name.role = Role::kAdmin;
    } else {
      good = ParseTask(path, &name);
    }
    // One text for each name: no leading zeros or signs.
    good = good && IsName(name.cluster) && name.ToUri() == uri;
  }
  if (good) return name;
  return errors::InvalidArgument("'", CEscape(uri.substr(0, 2 * kMaxNameSize)),
                                 "' is not of the form millrace://CLUSTER/job:JOB/task:N, "
                                 "millrace://CLUSTER/client or millrace://CLUSTER/admin");
}

std::string CertificateName::ToDns() const {
  std::string text = "admin";
  if (role == Role::kClient) text = "client";
  if (role == Role::kTask) text = StrCat(kDnsTask, task, ".", kDnsJob, job);
  const bool is_one_label = role != Role::kTask || IsLabel(text.substr(text.find('.') + 1));
  if (!cluster.empty()) StrAppend(&text, ".", cluster);
  text += kDomain;
  return is_one_label && AreLabels(text) && text.size() <= kMaxDns ? text : std::string();
}

StatusOr<CertificateName> ParseCertificateDns(std::string_view dns) {
  CertificateName name;
  bool good = dns.ends_with(kDomain) && dns.size() <= kMaxDns;
  if (good) {
    std::string_view rest = dns.substr(0, dns.size() - kDomain.size());
    const std::string_view first = TakeLabel(&rest);
    if (first == "client") {
      name.role = Role::kClient;
    } else if (first == "admin") {
      name.role = Role::kAdmin;
    } else {
      const std::string_view job = TakeLabel(&rest);
      int64_t task = -1;
      good = first.starts_with(kDnsTask) && job.starts_with(kDnsJob) &&
             job.size() > kDnsJob.size() && ParseInt64(first.substr(kDnsTask.size()), &task) &&
             task >= 0 && task <= kMaxTask;
      if (good) name.job = job.substr(kDnsJob.size());
      if (good) name.task = static_cast<int>(task);
    }
    name.cluster = rest;
    // One text for each name, as above.
    good = good && IsName(name.cluster) && IsName(name.job) && name.ToDns() == dns;
  }
  if (good) return name;
  return errors::InvalidArgument("'", CEscape(dns.substr(0, 2 * kMaxNameSize)),
                                 "' is not of the form task-N.job-JOB.CLUSTER", kDomain,
                                 ", client.CLUSTER", kDomain, " or admin.CLUSTER", kDomain,
                                 " in lower-case letters, digits and hyphens");
}

namespace {

// The one text that `is_ours`; "" if there is none.
template <typename IsOurs>
StatusOr<std::string_view> FindOne(const std::vector<std::string_view>& texts, IsOurs is_ours,
                                   std::string_view form) {
  std::string_view found;
  for (const std::string_view text : texts) {
    if (!is_ours(text)) continue;
    if (!found.empty()) {
      return errors::InvalidArgument("the certificate has more than one name of the form ", form);
    }
    found = text;
  }
  return found;
}

}  // namespace

StatusOr<CertificateName> FindCertificateName(const std::vector<std::string_view>& uris,
                                              const std::vector<std::string_view>& dns) {
  MR_ASSIGN_OR_RETURN(const std::string_view uri,
                      FindOne(
                          uris, [](std::string_view text) { return text.starts_with(kScheme); },
                          StrCat(kScheme, "...")));
  MR_ASSIGN_OR_RETURN(const std::string_view host,
                      FindOne(
                          dns, [](std::string_view text) { return text.ends_with(kDomain); },
                          StrCat("*", kDomain)));
  if (uri.empty() && host.empty()) {
    return errors::InvalidArgument(
        "the certificate names no task, client or administrator: among its alternative names "
        "there must be one URI like millrace://CLUSTER/job:worker/task:0, or one DNS name like "
        "task-0.job-worker.CLUSTER",
        kDomain);
  }
  if (uri.empty()) return ParseCertificateDns(host);
  MR_ASSIGN_OR_RETURN(CertificateName name, ParseCertificateUri(uri));
  if (host.empty()) return name;
  MR_ASSIGN_OR_RETURN(const CertificateName other, ParseCertificateDns(host));
  if (name == other) return name;
  return errors::InvalidArgument("the certificate has two names, which stand for different ends: ",
                                 name.ToUri(), " and ", host);
}

Status CheckServerName(const CertificateName& own, const std::string& meant,
                       const CertificateName& peer) {
  MR_RETURN_IF_ERROR(CheckSameCluster(own, peer));
  if (peer.role != Role::kTask) {
    return errors::PermissionDenied("whoever answers has the certificate of ", peer.ToUri(),
                                    ", which is not a task's");
  }
  if (meant.empty() || meant == peer.TaskName()) return OkStatus();
  return errors::PermissionDenied("whoever answers has the certificate of ", peer.TaskName(),
                                  "; expected ", meant,
                                  ": check the addresses of the cluster and the certificates");
}

Status CheckCallerName(const CertificateName& own, const CertificateName& caller,
                       std::string_view method) {
  MR_RETURN_IF_ERROR(CheckSameCluster(own, caller));
  for (const Right& right : kRights) {
    if (!right.IsFor(method)) continue;
    if (std::find(right.roles.begin(), right.roles.end(), caller.role) != right.roles.end()) {
      return OkStatus();
    }
    std::vector<std::string_view> may;
    for (const Role role : right.roles) may.push_back(RoleText(role));
    return errors::PermissionDenied("the certificate of ", caller.ToUri(), " is no right to call ",
                                    method, ", which is for ", StrJoin(may, " and "));
  }
  return errors::PermissionDenied("nobody has the right to call ", method);
}

}  // namespace millrace
