// SPDX-License-Identifier: Apache-2.0
// Whom a certificate stands for: a task, a client or an administrator of one cluster.
#ifndef TRANSPORT_SECURITY_CERTIFICATE_NAME_H_
#define TRANSPORT_SECURITY_CERTIFICATE_NAME_H_

#include <string>
#include <string_view>
#include <vector>

#include "millrace/status.h"

namespace millrace {

enum class Role {
  kTask,    // serves, and calls other tasks
  kClient,  // opens sessions
  kAdmin,   // looks at tasks and ends them
};

// The name is among the certificate's alternative names, as a URI of this scheme or, for
// authorities that sign nothing else, as a DNS name below millrace.internal, which stands for the
// same:
//   millrace://CLUSTER/job:JOB/task:N   task-N.job-JOB.CLUSTER.millrace.internal
//   millrace://CLUSTER/client           client.CLUSTER.millrace.internal
//   millrace://CLUSTER/admin            admin.CLUSTER.millrace.internal
// CLUSTER may be empty (then "client.millrace.internal"). Both ends of a connection must have the
// same. A value.
struct CertificateName {
  std::string cluster{};
  Role role = Role::kTask;
  std::string job{};  // of a task
  int task = 0;

  std::string ToUri() const;
  // "" if there is no such DNS name: labels are lower-case letters, digits and hyphens within, 63
  // at most, where a URI may have capital letters, '_' and, in a job, '.'.
  std::string ToDns() const;
  // "/job:JOB/replica:0/task:N"; "" for those who are no task.
  std::string TaskName() const;

  friend bool operator==(const CertificateName&, const CertificateName&) = default;
};

// InvalidArgument, quoting the text, unless it is exactly what ToUri gives for some name.
StatusOr<CertificateName> ParseCertificateUri(std::string_view uri);

// InvalidArgument, quoting the text, unless it is exactly what ToDns gives for some name.
StatusOr<CertificateName> ParseCertificateDns(std::string_view dns);

// The name among all URIs and DNS names of a certificate; those of other schemes, or not below
// millrace.internal, are passed over. One of each is good if both stand for the same.
// InvalidArgument if there is none, more than one of a kind, or one is malformed.
StatusOr<CertificateName> FindCertificateName(const std::vector<std::string_view>& uris,
                                              const std::vector<std::string_view>& dns = {});

// Whether the peer that was called may be believed: it is a task of the cluster of `own`, and the
// one that was meant ("/job:J/replica:0/task:N"; "": whichever). PermissionDenied names both.
Status CheckServerName(const CertificateName& own, const std::string& meant,
                       const CertificateName& peer);

// Whether `caller` may call `method` ("/package.Service/Method") of a task of the cluster of `own`.
// PermissionDenied says which roles may. A method without a rule is for nobody.
Status CheckCallerName(const CertificateName& own, const CertificateName& caller,
                       std::string_view method);

}  // namespace millrace

#endif  // TRANSPORT_SECURITY_CERTIFICATE_NAME_H_
