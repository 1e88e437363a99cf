// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/certs_command.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/filesystem.h"
#include "millrace/cluster.h"
#include "tools/millrace/offline.h"
#include "transport/security/certificate_name.h"
#include "transport/security/certificates.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr char kHelp[] =
    "Makes a certificate authority, and certificates signed by it for every task of a cluster,\n"
    "for a client and for an administrator. They are for trying TLS out and for small clusters;\n"
    "certificates from elsewhere (cert-manager, Vault, a company's own authority) do as well, if\n"
    "they have such a name, as a URI or as a DNS name (docs/security.md).";

constexpr char kFooter[] =
    "Files in the folder:\n"
    "  ca.pem, ca.key         the authority, good for ten years; its key signs the rest\n"
    "  JOB-N.pem, JOB-N.key   of each task, named millrace://CLUSTER/job:JOB/task:N\n"
    "  client.pem, .key       opens sessions            (millrace://CLUSTER/client)\n"
    "  admin.pem, .key        ends tasks, asks them why (millrace://CLUSTER/admin)\n"
    "  token                  with --token: a secret that all processes share\n"
    "Keys and the token can be read by their owner alone (0600). A task needs its own two files\n"
    "and ca.pem; ca.key belongs on none of its hosts.\n"
    "\n"
    "What is there already is kept: the authority, keys, the token. Certificates are made anew,\n"
    "each in one step, so that running the command again renews those of a cluster that runs:\n"
    "its tasks read them within ten seconds.\n"
    "\n"
    "Example:\n"
    "  millrace certs 'ps|10.0.0.1:2222,worker|10.0.0.2:2222' --out=certs\n"
    "  millrace server --cluster_spec='ps|10.0.0.1:2222,worker|10.0.0.2:2222' --job_name=ps \\\n"
    "      --tls_cert=certs/ps-0.pem --tls_key=certs/ps-0.key --tls_ca=certs/ca.pem\n"
    "\n"
    "docs/security.md says what each certificate is a right to.";

struct Flags {
  std::string cluster_spec;
  std::string out = "certs";
  std::string cluster;
  bool has_cluster = false;
  int days = 30;
  bool token = false;
};

// In one step: a reader sees the old content or the new, and nobody else a key.
Status Write(const std::string& path, std::string_view content, mode_t mode) {
  const std::string temporary = StrCat(path, ".", Hex16(RandomId()));
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return errors::Unavailable("cannot write ", path, ": ", std::strerror(errno));
  int error = 0;
  while (error == 0 && !content.empty()) {
    const ssize_t n = write(fd, content.data(), content.size());
    if (n < 0 && errno != EINTR) error = errno;
    if (n > 0) content.remove_prefix(static_cast<std::size_t>(n));
  }
  if (error == 0 && (fchmod(fd, mode) != 0 || fsync(fd) != 0)) error = errno;
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return OkStatus();
  unlink(temporary.c_str());
  return errors::Unavailable("cannot write ", path, ": ", std::strerror(error));
}

// "" if there is none.
StatusOr<std::string> ReadIfThere(const std::string& path) {
  if (!fs::exists(path)) return std::string();
  return PosixFileSystem()->ReadFile(path);
}

class Maker {
 public:
  explicit Maker(const Flags& flags) : flags_(flags) {}

  Status Run() {
    MR_ASSIGN_OR_RETURN(const ClusterSpec spec, ClusterSpec::Parse(flags_.cluster_spec));
    std::error_code error;
    if (fs::create_directories(flags_.out, error)) {
      fs::permissions(flags_.out, fs::perms::owner_all, error);
    }
    if (error) return errors::Unavailable("cannot make ", flags_.out, ": ", error.message());
    MR_RETURN_IF_ERROR(FindCluster());
    MR_RETURN_IF_ERROR(TakeAuthority());
    for (const auto& [job, tasks] : spec.jobs()) {
      for (const auto& [index, address] : tasks) {
        MR_RETURN_IF_ERROR(Issue({cluster_, Role::kTask, job, index}, StrCat(job, "-", index)));
      }
    }
    MR_RETURN_IF_ERROR(Issue({cluster_, Role::kClient}, "client"));
    MR_RETURN_IF_ERROR(Issue({cluster_, Role::kAdmin}, "admin"));
    if (flags_.token) MR_RETURN_IF_ERROR(MakeToken());
    return OkStatus();
  }

 private:
  std::string PathOf(std::string_view name) const { return StrCat(flags_.out, "/", name); }

  // The name that the folder's certificates have, unless another one is asked for.
  Status FindCluster() {
    cluster_ = flags_.cluster;
    MR_ASSIGN_OR_RETURN(const std::string client, ReadIfThere(PathOf("client.pem")));
    if (client.empty() || flags_.has_cluster) return OkStatus();
    MR_ASSIGN_OR_RETURN(const CertificateName name, NameOfCertificate(client));
    cluster_ = name.cluster;
    return OkStatus();
  }

  Status TakeAuthority() {
    MR_ASSIGN_OR_RETURN(authority_.certificate, ReadIfThere(PathOf("ca.pem")));
    MR_ASSIGN_OR_RETURN(authority_.key, ReadIfThere(PathOf("ca.key")));
    if (authority_.certificate.empty() != authority_.key.empty()) {
      return errors::FailedPrecondition(flags_.out, " holds only one of ca.pem and ca.key: bring ",
                                        "the other back, or take another folder");
    }
    if (!authority_.key.empty()) return OkStatus();
    Validity validity;
    validity.until = std::chrono::hours(24 * 3650);
    MR_ASSIGN_OR_RETURN(authority_, MakeAuthority(cluster_, validity));
    MR_RETURN_IF_ERROR(Write(PathOf("ca.key"), authority_.key, 0600));
    return Write(PathOf("ca.pem"), authority_.certificate, 0644);
  }

  Status Issue(const CertificateName& name, const std::string& file) {
    // Also what makes a job's name fit for a file's.
    MR_RETURN_IF_ERROR(ParseCertificateUri(name.ToUri()).status());
    Validity validity;
    validity.until = std::chrono::hours(24) * flags_.days;
    MR_ASSIGN_OR_RETURN(const std::string key, ReadIfThere(PathOf(file + ".key")));
    MR_ASSIGN_OR_RETURN(const KeyedCertificate made,
                        IssueCertificate(authority_, name, validity, key));
    if (key.empty()) MR_RETURN_IF_ERROR(Write(PathOf(file + ".key"), made.key, 0600));
    MR_RETURN_IF_ERROR(Write(PathOf(file + ".pem"), made.certificate, 0644));
    MR_ASSIGN_OR_RETURN(const auto end, EndOfCertificate(made.certificate));
    const std::time_t seconds = std::chrono::system_clock::to_time_t(end);
    std::tm utc{};
    char date[32] = "";
    if (gmtime_r(&seconds, &utc) != nullptr) std::strftime(date, sizeof(date), "%F %R UTC", &utc);
    std::printf("%s.pem  %s, until %s\n", PathOf(file).c_str(), name.ToUri().c_str(), date);
    return OkStatus();
  }

  Status MakeToken() {
    MR_ASSIGN_OR_RETURN(std::string token, ReadIfThere(PathOf("token")));
    if (!token.empty()) return OkStatus();
    for (int i = 0; i < 4; ++i) token += Hex16(RandomId());
    return Write(PathOf("token"), token + "\n", 0600);
  }

  const Flags& flags_;
  std::string cluster_;
  KeyedCertificate authority_;
};

}  // namespace

void AddCertsCommand(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const command =
      app->add_subcommand("certs", "make an authority and certificates for the tasks of a cluster");
  command->description(kHelp);
  command
      ->add_option("CLUSTER_SPEC", flags->cluster_spec,
                   "jobs and addresses: 'ps|h:p;h:p,worker|h:p'")
      ->required();
  command->add_option("--out", flags->out, "folder for the files, made if it is not there")
      ->capture_default_str();
  CLI::Option* const cluster =
      command
          ->add_option("--cluster", flags->cluster,
                       "name of the cluster, which certificates of both ends must share: letters, "
                       "digits, '.', '-', '_' (default: that of the folder's, or none)")
          ->check([](const std::string& text) {
            const Status named =
                ParseCertificateUri(StrCat("millrace://", text, "/client")).status();
            return named.ok() ? std::string() : std::string(Message(named));
          });
  command->add_option("--days", flags->days, "how long the certificates are good")
      ->check(CLI::Range(1, 3650))
      ->capture_default_str();
  command->add_flag("--token", flags->token, "make a token, too");
  command->footer(kFooter);
  command->callback([flags, cluster, chosen] {
    flags->has_cluster = cluster->count() > 0;
    *chosen = [flags] {
      const Status status = Maker(*flags).Run();
      if (status.ok()) return 0;
      return Complain("certs", status, 1);
    };
  });
}

}  // namespace millrace
