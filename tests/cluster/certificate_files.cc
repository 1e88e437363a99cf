// SPDX-License-Identifier: Apache-2.0
#include "tests/cluster/certificate_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/random.h"
#include "base/strings.h"

namespace millrace::testing {
namespace {

void Write(const std::string& path, const std::string& content) {
  const std::string temporary = path + ".new";
  {
    std::ofstream file(temporary, std::ios::binary);
    EXPECT_EQ(chmod(temporary.c_str(), 0600), 0);
    file << content;
    EXPECT_TRUE(file.good()) << path;
  }
  std::filesystem::rename(temporary, path);
}

}  // namespace

KeyedCertificate NewAuthority() {
  StatusOr<KeyedCertificate> made = MakeAuthority("test", {});
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : KeyedCertificate();
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file.good()) << path;
  return text.str();
}

CertificateFiles::CertificateFiles(std::string cluster)
    : cluster_(std::move(cluster)),
      folder_(StrCat(::testing::TempDir(), "/certificates_", Hex16(RandomId()))),
      authority_(NewAuthority()) {
  std::filesystem::create_directories(folder_);
}

CertificateName CertificateFiles::Task(const std::string& job, int task) const {
  return {cluster_, Role::kTask, job, task};
}
CertificateName CertificateFiles::Client() const { return {cluster_, Role::kClient}; }
CertificateName CertificateFiles::Admin() const { return {cluster_, Role::kAdmin}; }

Credentials CertificateFiles::Issue(const CertificateName& name, const Validity& validity,
                                    const KeyedCertificate* authority, NameForm form) {
  const StatusOr<KeyedCertificate> made =
      IssueCertificate(authority == nullptr ? authority_ : *authority, name, validity, "", form);
  EXPECT_TRUE(made.ok()) << made.status();
  const std::string stem = StrCat(folder_, "/", count_++);
  Credentials files;
  files.tls_cert = stem + ".pem";
  files.tls_key = stem + ".key";
  files.tls_ca = stem + ".ca";
  if (made.ok()) Replace(files, *made, authority_.certificate);
  return files;
}

std::string CertificateFiles::Token(const std::string& text) {
  const std::string path = StrCat(folder_, "/token", count_++);
  Write(path, text + "\n");
  return path;
}

void CertificateFiles::Replace(const Credentials& files, const KeyedCertificate& pair,
                               const std::string& authorities) {
  Write(files.tls_key, pair.key);
  Write(files.tls_cert, pair.certificate);
  Write(files.tls_ca, authorities);
}

}  // namespace millrace::testing
