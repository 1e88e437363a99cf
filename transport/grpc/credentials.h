// SPDX-License-Identifier: Apache-2.0
// What this process shows to others, and asks of them, on gRPC's connections.
#ifndef TRANSPORT_GRPC_CREDENTIALS_H_
#define TRANSPORT_GRPC_CREDENTIALS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "base/string_map.h"
#include "millrace/credentials.h"
#include "millrace/status.h"
#include "transport/security/certificate_name.h"
#include "transport/security/token_file.h"

namespace grpc {
class CallbackServerContext;
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace millrace {

// Why the last peer of a channel was not believed. Thread-safe.
class TlsRefusal {
 public:
  void Set(Status why) {
    MutexLock lock(&mu_);
    why_ = std::move(why);
    at_ = std::chrono::steady_clock::now();
  }
  // OK if none was refused lately: a channel tries again every second, and what is wrong with a
  // task that nobody answers for is not its certificate.
  Status Get() const {
    MutexLock lock(&mu_);
    return std::chrono::steady_clock::now() - at_ < kLately ? why_ : OkStatus();
  }

 private:
  static constexpr std::chrono::seconds kLately{5};
  mutable Mutex mu_;
  std::chrono::steady_clock::time_point at_ ABSL_GUARDED_BY(mu_);
  Status why_ ABSL_GUARDED_BY(mu_);
};

// Who made a call, as far as a certificate proves it.
struct ProvenCaller {
  std::string task{};    // "/job:J/replica:0/task:N"; "": no task, or not known
  std::string client{};  // the digest of a client's public key; "": no client, or not known
};

// What the files of Credentials hold: certificates, a token, or both, which are read again when
// they change. Channels and servers keep their share of it. A null pointer to it stands for neither
// encryption nor proof. Thread-safe.
class LoadedCredentials {
 public:
  static constexpr std::chrono::seconds kReloadInterval{10};
  // Null if no file is named. InvalidArgument, naming the files and what to do, if some of the
  // three files of TLS are missing, if one cannot be used (unreadable, expired, of another key or
  // CA, naming nobody), or if the token cannot be one. With certificates the object has a thread
  // that reads their files again after each interval (of at least a second): new connections use
  // what is there then. Objects are shared by those who load the same files.
  static StatusOr<std::shared_ptr<const LoadedCredentials>> Load(
      const Credentials& files, std::chrono::seconds reload_interval = kReloadInterval);
  ~LoadedCredentials();
  LoadedCredentials(const LoadedCredentials&) = delete;
  LoadedCredentials& operator=(const LoadedCredentials&) = delete;

  bool has_tls() const { return provider_ != nullptr; }
  // With TLS: whom the certificate stood for when it was loaded.
  const CertificateName& own() const { return own_; }
  bool has_token() const { return token_ != nullptr; }
  // What goes with every call, as its file has it now; "": none.
  std::string token() const { return has_token() ? token_->Current() : std::string(); }
  // Whether that of a caller is right, now or until a little while ago.
  bool IsToken(std::string_view text) const { return has_token() && token_->Matches(text); }

  // For a connection to `task` ("/job:J/replica:0/task:N"; "": any task of the cluster), which
  // fails, and says why to `refusal`, if somebody else answers.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel(const std::string& task,
                                                       std::shared_ptr<TlsRefusal> refusal) const;
  // Null without TLS. Whoever connects has to show a certificate of the CAs.
  std::shared_ptr<grpc::ServerCredentials> ForServer() const;

  // Whether this end can prove who it is: OK without certificates. FailedPrecondition, which says
  // what is wrong and what to do, once the certificate's file has another name, or the certificate
  // has expired, or it, its key and the CAs have not fitted together for two looks at their files,
  // which whoever replaces them touches one after the other.
  Status Usable() const;
  std::chrono::nanoseconds reload_interval() const {
    return std::chrono::nanoseconds(reload_nanos_);
  }

  // Whether a call of `method` that has come in may be served, and who made it. Unauthenticated
  // without the right token, PermissionDenied for the wrong certificate; both say what was
  // expected, of `callee` ("/job:J/replica:0/task:N"; "": a server without a name).
  // FailedPrecondition once the certificate's file has another name.
  StatusOr<ProvenCaller> CheckCall(const grpc::CallbackServerContext& context,
                                   std::string_view method, std::string_view callee = {}) const;

 private:
  struct Provider;  // of gRPC
  LoadedCredentials();

  // The digest of the key of a client's certificate, kept for the next call.
  StatusOr<std::string> ClientKey(std::string_view pem) const;

  // Looks at the files if they were not looked at lately.
  void LookAgain() const ABSL_LOCKS_EXCLUDED(name_mu_);
  // Whether the certificate's file still has one of the same name, as it was when it was last
  // looked at.
  Status CheckOwnName() const;

  CertificateName own_;
  Credentials files_;
  int64_t reload_nanos_ = 0;
  mutable std::atomic<int64_t> name_read_at_ = 0;  // by SteadyNanos
  mutable Mutex name_mu_;
  mutable Status renamed_ ABSL_GUARDED_BY(name_mu_);
  mutable Status unusable_ ABSL_GUARDED_BY(name_mu_);  // OK unless the files do not fit together
  mutable bool doubted_ ABSL_GUARDED_BY(name_mu_) = false;  // they did not, at the last look
  mutable std::chrono::system_clock::time_point ends_ ABSL_GUARDED_BY(name_mu_);
  std::unique_ptr<TokenFile> token_;  // null: none
  std::unique_ptr<Provider> provider_;
  mutable Mutex clients_mu_;
  mutable StringMap<std::string> clients_ ABSL_GUARDED_BY(clients_mu_);  // digests by certificate
};

// The name in the certificate that the caller has shown, for logs: "millrace://CLUSTER/client", of
// one without such a name what else it is called, and "" of who has shown none.
std::string NameShown(const grpc::CallbackServerContext& context);

// Those of the process: what was set, or else what the environment names (millrace/security.h),
// read once it is asked for. Thread-safe.
StatusOr<std::shared_ptr<const LoadedCredentials>> DefaultCredentials();
void SetLoadedCredentials(std::shared_ptr<const LoadedCredentials> credentials);
// What `files` name; those of the process if they name nothing.
StatusOr<std::shared_ptr<const LoadedCredentials>> CredentialsOrDefault(const Credentials& files);

}  // namespace millrace

#endif  // TRANSPORT_GRPC_CREDENTIALS_H_
