// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/credentials.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/options/engine_options.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "transport/grpc/grpc_util.h"
#include "transport/security/certificates.h"
#include "transport/security/secret.h"

namespace millrace {
namespace {

namespace tls = grpc::experimental;

// Bundles of all public authorities have a quarter of that.
constexpr std::size_t kMostPemBytes = 1 << 20;

std::vector<std::string_view> Views(const std::vector<grpc::string_ref>& texts) {
  std::vector<std::string_view> views;
  views.reserve(texts.size());
  for (const grpc::string_ref& text : texts) views.emplace_back(text.data(), text.size());
  return views;
}

// The name in the certificate of whoever is at the other end of a call.
StatusOr<CertificateName> NameOf(const grpc::AuthContext* peer) {
  if (peer == nullptr) return FindCertificateName({});
  const std::vector<grpc::string_ref> uris = peer->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME),
                                      dns = peer->FindPropertyValues(GRPC_PEER_DNS_PROPERTY_NAME);
  return FindCertificateName(Views(uris), Views(dns));
}

// Asks, after the chain of certificates was found good, whose it is. Called on gRPC's threads.
class ServerVerifier : public tls::ExternalCertificateVerifier {
 public:
  ServerVerifier(CertificateName own, std::string task, std::shared_ptr<TlsRefusal> refusal)
      : own_(std::move(own)), task_(std::move(task)), refusal_(std::move(refusal)) {
    made_.store(true, std::memory_order_release);
  }
  ~ServerVerifier() override { (void)made_.load(std::memory_order_acquire); }

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    (void)made_.load(std::memory_order_acquire);
    const Status checked = Check(*request);
    if (refusal_ != nullptr) refusal_->Set(checked);
    *status = ToGrpcStatus(checked);
    return true;  // done
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  Status Check(const tls::TlsCustomVerificationCheckRequest& request) const {
    MR_ASSIGN_OR_RETURN(
        const CertificateName peer,
        FindCertificateName(Views(request.uri_names()), Views(request.dns_names())));
    return CheckServerName(own_, task_, peer);
  }

  const CertificateName own_;
  const std::string task_;
  const std::shared_ptr<TlsRefusal> refusal_;
  // Order between the maker and gRPC's threads, which gRPC gives too, but out of sight of the
  // thread sanitizer; the last owner may be one of them.
  std::atomic<bool> made_ = false;
};

StatusOr<std::string> ReadPem(const std::string& flag, const std::string& path) {
  // A FIFO or a device may keep its reader waiting, or never end.
  std::error_code error;
  if (const auto status = std::filesystem::status(path, error);
      std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return errors::InvalidArgument(flag, "=", path, " is not a regular file");
  }
  // Not as graphs read files: those may be confined to a folder without keys.
  std::ifstream file(path, std::ios::binary);
  // In pieces: it is read again and again, and memory for the largest one there may be would stay
  // with the allocator.
  std::string text;
  for (char piece[4096]; file && text.size() <= kMostPemBytes;) {
    file.read(piece, sizeof(piece));
    text.append(piece, static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad() || text.empty()) {
    return errors::InvalidArgument("cannot read ", flag, "=", path);
  }
  if (text.size() <= kMostPemBytes) return text;
  return errors::InvalidArgument(flag, "=", path, " has more than ", kMostPemBytes,
                                 " bytes: certificates and keys have not");
}

StatusOr<CertificateName> CheckFiles(const Credentials& files) {
  if (files.tls_cert.empty() || files.tls_key.empty() || files.tls_ca.empty()) {
    return errors::InvalidArgument(
        "TLS needs three files, a certificate, its key and the CAs that are believed, and only "
        "some were given: --tls_cert='",
        files.tls_cert, "' --tls_key='", files.tls_key, "' --tls_ca='", files.tls_ca, "'");
  }
  KeyedCertificate pair;
  MR_ASSIGN_OR_RETURN(pair.certificate, ReadPem("--tls_cert", files.tls_cert));
  MR_ASSIGN_OR_RETURN(pair.key, ReadPem("--tls_key", files.tls_key));
  MR_RETURN_IF_ERROR(CheckOwnFile("--tls_key=", files.tls_key));
  MR_ASSIGN_OR_RETURN(const std::string authorities, ReadPem("--tls_ca", files.tls_ca));
  StatusOr<CertificateName> name = CheckCertificate(pair, authorities);
  if (name.ok()) return name;
  return WithMessage(name.status(),
                     StrCat("--tls_cert=", files.tls_cert, " --tls_key=", files.tls_key,
                            " --tls_ca=", files.tls_ca, ": ", Message(name.status())));
}

// Objects that are in use, by what they were made of: one thread reads the same files.
struct InUse {
  Mutex mu;
  std::map<std::string, std::weak_ptr<const LoadedCredentials>> objects ABSL_GUARDED_BY(mu);
};

InUse& AllInUse() {
  static auto* const all = new InUse;
  return *all;
}

}  // namespace

struct LoadedCredentials::Provider {
  std::shared_ptr<tls::CertificateProviderInterface> certificates;
};

LoadedCredentials::LoadedCredentials() = default;
LoadedCredentials::~LoadedCredentials() = default;

StatusOr<std::shared_ptr<const LoadedCredentials>> LoadedCredentials::Load(
    const Credentials& files, std::chrono::seconds reload_interval) {
  if (files.empty()) return std::shared_ptr<const LoadedCredentials>();
  InitGrpc();
  std::shared_ptr<LoadedCredentials> made(new LoadedCredentials);
  if (!files.token_file.empty()) {
    MR_ASSIGN_OR_RETURN(made->token_, TokenFile::Open(files.token_file, reload_interval));
  }
  if (files.tls()) {
    MR_ASSIGN_OR_RETURN(made->own_, CheckFiles(files));
    made->files_ = files;
    MR_ASSIGN_OR_RETURN(const std::string text, ReadPem("--tls_cert", files.tls_cert));
    MR_ASSIGN_OR_RETURN(const auto ends, EndOfCertificate(text));
    {
      MutexLock lock(&made->name_mu_);
      made->ends_ = ends;
    }
    made->reload_nanos_ = std::chrono::nanoseconds(reload_interval).count();
    made->name_read_at_.store(SteadyNanos(), std::memory_order_relaxed);
  }
  const std::string key = StrJoin(
      std::vector<std::string>{files.tls_cert, files.tls_key, files.tls_ca, files.token_file,
                               made->token(), made->own_.ToUri(), StrCat(reload_interval.count())},
      "\n");
  InUse& all = AllInUse();
  MutexLock lock(&all.mu);
  std::erase_if(all.objects, [](const auto& entry) { return entry.second.expired(); });
  if (std::shared_ptr<const LoadedCredentials> shared = all.objects[key].lock()) return shared;
  if (files.tls()) {
    made->provider_ = std::make_unique<Provider>();
    made->provider_->certificates = std::make_shared<tls::FileWatcherCertificateProvider>(
        files.tls_key, files.tls_cert, files.tls_ca,
        static_cast<unsigned>(std::max<int64_t>(reload_interval.count(), 1)));
  }
  all.objects[key] = made;
  return std::shared_ptr<const LoadedCredentials>(std::move(made));
}

std::shared_ptr<grpc::ChannelCredentials> LoadedCredentials::ForChannel(
    const std::string& task, std::shared_ptr<TlsRefusal> refusal) const {
  if (!has_tls()) return grpc::InsecureChannelCredentials();
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(provider_->certificates);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  // Names of hosts prove nothing here: the certificate names the task.
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<ServerVerifier>(own_, task, std::move(refusal)));
  return tls::TlsCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> LoadedCredentials::ForServer() const {
  if (!has_tls()) return nullptr;
  tls::TlsServerCredentialsOptions options(provider_->certificates);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  // Whose certificate it is counts call by call: then the caller is told what is wrong.
  options.set_certificate_verifier(std::make_shared<tls::NoOpCertificateVerifier>());
  return tls::TlsServerCredentials(options);
}

void LoadedCredentials::LookAgain() const {
  const int64_t now = SteadyNanos();
  int64_t read_at = name_read_at_.load(std::memory_order_relaxed);
  if (now - read_at < reload_nanos_ ||
      !name_read_at_.compare_exchange_strong(read_at, now, std::memory_order_relaxed)) {
    return;
  }
  const StatusOr<std::string> text = ReadPem("--tls_cert", files_.tls_cert);
  const StatusOr<CertificateName> name =
      text.ok() ? NameOfCertificate(*text) : StatusOr<CertificateName>(text.status());
  // A file that is being replaced, or is gone, says nothing: gRPC keeps what it has read.
  if (!name.ok()) return;
  const Status fit = CheckFiles(files_).status();
  MutexLock lock(&name_mu_);
  const bool was_good = renamed_.ok() && unusable_.ok();
  renamed_ = *name == own_
                 ? OkStatus()
                 : errors::FailedPrecondition(
                       "the certificate ", files_.tls_cert, " is now that of ", name->ToUri(),
                       ", and this process was started as ", own_.ToUri(),
                       ": it serves nobody until it has its own certificate again (--tls_cert)");
  const auto ends = EndOfCertificate(*text);
  if (ends.ok()) ends_ = *ends;
  if (fit.ok()) unusable_ = OkStatus();
  if (std::exchange(doubted_, !fit.ok()) && !fit.ok()) {
    unusable_ = errors::FailedPrecondition(
        "nobody can connect anew until the files of this process fit together again: ",
        Message(fit));
  }
  if (was_good && !renamed_.ok()) MR_LOG(kError, Message(renamed_));
  if (was_good && !unusable_.ok()) MR_LOG(kError, Message(unusable_));
}

Status LoadedCredentials::CheckOwnName() const {
  LookAgain();
  MutexLock lock(&name_mu_);
  return renamed_;
}

Status LoadedCredentials::Usable() const {
  if (!has_tls()) return OkStatus();
  LookAgain();
  MutexLock lock(&name_mu_);
  MR_RETURN_IF_ERROR(renamed_);
  MR_RETURN_IF_ERROR(unusable_);
  if (std::chrono::system_clock::now() < ends_) return OkStatus();
  return errors::FailedPrecondition("the certificate ", files_.tls_cert, ", of ", own_.ToUri(),
                                    ", has expired: nobody can connect anew until there is a "
                                    "renewed one in its place (--tls_cert)");
}

StatusOr<std::string> LoadedCredentials::ClientKey(std::string_view pem) const {
  constexpr std::size_t kMostClients = 1024;
  {
    MutexLock lock(&clients_mu_);
    const auto known = clients_.find(pem);
    if (known != clients_.end()) return known->second;
  }
  MR_ASSIGN_OR_RETURN(std::string key, KeyOfCertificate(pem));
  MutexLock lock(&clients_mu_);
  if (clients_.size() >= kMostClients) clients_.clear();
  clients_[std::string(pem)] = key;
  return key;
}

StatusOr<ProvenCaller> LoadedCredentials::CheckCall(const grpc::CallbackServerContext& context,
                                                    std::string_view method,
                                                    std::string_view callee) const {
  if (has_token()) {
    const std::string_view whose = callee.empty() ? "this server" : callee;
    const auto& metadata = context.client_metadata();
    const auto [begin, end] = metadata.equal_range(kTokenMetadata);
    if (begin == end) {
      return MakeStatus(StatusCode::kUnauthenticated,
                        StrCat(whose,
                               " asks for the token of its cluster, and the caller shows "
                               "none: give the caller the same one (--token_file, "
                               "MILLRACE_TOKEN_FILE)"));
    }
    if (std::next(begin) != end || !IsToken({begin->second.data(), begin->second.size()})) {
      return MakeStatus(StatusCode::kUnauthenticated,
                        StrCat("the caller's token is not that of the cluster of ", whose,
                               ": give the caller the file that this task was started with "
                               "(--token_file, MILLRACE_TOKEN_FILE), or wait twenty seconds if "
                               "it was replaced just now"));
    }
  }
  if (!has_tls()) return ProvenCaller();
  MR_RETURN_IF_ERROR(CheckOwnName());
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  const StatusOr<CertificateName> caller = NameOf(peer.get());
  if (!caller.ok()) return errors::PermissionDenied("the caller: ", Message(caller.status()));
  MR_RETURN_IF_ERROR(CheckCallerName(own_, *caller, method));
  ProvenCaller proven{caller->TaskName(), ""};
  if (caller->role == Role::kClient) {
    const std::vector<grpc::string_ref> pem =
        peer->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
    if (pem.size() != 1) {
      return errors::PermissionDenied("the caller's certificate, of ", caller->ToUri(),
                                      ", is not there to be read");
    }
    MR_ASSIGN_OR_RETURN(proven.client, ClientKey({pem[0].data(), pem[0].size()}));
  }
  return proven;
}

std::string NameShown(const grpc::CallbackServerContext& context) {
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (peer == nullptr || !peer->IsPeerAuthenticated()) return "";
  const StatusOr<CertificateName> name = NameOf(peer.get());
  if (name.ok()) return name->ToUri();
  std::string all;
  for (const grpc::string_ref& part : peer->GetPeerIdentity()) {
    StrAppend(&all, all.empty() ? "'" : ", '",
              CEscape(std::string_view(part.data(), part.size()).substr(0, 100)), "'");
    if (all.size() > 300) break;
  }
  return all.empty() ? "without a name" : all;
}

namespace {

struct ProcessDefault {
  Mutex mu;
  std::optional<std::shared_ptr<const LoadedCredentials>> credentials ABSL_GUARDED_BY(mu);
};

ProcessDefault& TheDefault() {
  static auto* const process = new ProcessDefault;
  return *process;
}

}  // namespace

StatusOr<std::shared_ptr<const LoadedCredentials>> DefaultCredentials() {
  ProcessDefault& process = TheDefault();
  MutexLock lock(&process.mu);
  if (process.credentials.has_value()) return *process.credentials;
  const ProcessOptions named = ProcessOptions::FromEnvironment();
  Credentials files;
  files.tls_cert = named.tls_cert;
  files.tls_key = named.tls_key;
  files.tls_ca = named.tls_ca;
  files.token_file = named.token_file;
  MR_ASSIGN_OR_RETURN(process.credentials, LoadedCredentials::Load(files));
  return *process.credentials;
}

void SetLoadedCredentials(std::shared_ptr<const LoadedCredentials> credentials) {
  MutexLock lock(&TheDefault().mu);
  TheDefault().credentials = std::move(credentials);
}

StatusOr<std::shared_ptr<const LoadedCredentials>> CredentialsOrDefault(const Credentials& files) {
  return files.empty() ? DefaultCredentials() : LoadedCredentials::Load(files);
}

}  // namespace millrace
