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
constexpr std::size_t kMaxNameSize = 128;
constexpr int64_t kMaxTask = 999'999'999;

// Characters that need no escape in a URI and mean nothing there.
bool IsName(std::string_view text) {
  return text.size() <= kMaxNameSize && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '-' || c == '_';
         });
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

StatusOr<CertificateName> FindCertificateName(const std::vector<std::string_view>& uris) {
  std::string_view found;
  for (const std::string_view uri : uris) {
    if (!uri.starts_with(kScheme)) continue;
    if (!found.empty()) {
      return errors::InvalidArgument("the certificate has more than one name of the form ", kScheme,
                                     "...");
    }
    found = uri;
  }
  if (found.empty()) {
    return errors::InvalidArgument(
        "the certificate names no task, client or administrator: among its alternative names "
        "there must be one URI like millrace://CLUSTER/job:worker/task:0");
  }
  return ParseCertificateUri(found);
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
