// SPDX-License-Identifier: Apache-2.0
// Certificates of a cluster in a folder, for tests.
#ifndef TESTS_CLUSTER_CERTIFICATE_FILES_H_
#define TESTS_CLUSTER_CERTIFICATE_FILES_H_

#include <string>

#include "millrace/credentials.h"
#include "transport/security/certificates.h"

namespace millrace::testing {

// A folder of its own under the test's, with an authority. What fails is a failure of the test.
class CertificateFiles {
 public:
  explicit CertificateFiles(std::string cluster = "blue");

  CertificateName Task(const std::string& job, int task) const;
  CertificateName Client() const;
  CertificateName Admin() const;

  // Makes a certificate that `authority` has signed (null: that of this folder), and writes it.
  Credentials Issue(const CertificateName& name, const Validity& validity = {},
                    const KeyedCertificate* authority = nullptr, NameForm form = NameForm::kUri);
  // Writes a token to a file of its own.
  std::string Token(const std::string& text);
  // Writes the certificate, its key and `authorities` (PEM) over the files that `files` names,
  // each in one step.
  void Replace(const Credentials& files, const KeyedCertificate& pair,
               const std::string& authorities);

  const KeyedCertificate& authority() const { return authority_; }
  const std::string& folder() const { return folder_; }

 private:
  const std::string cluster_;
  const std::string folder_;
  KeyedCertificate authority_;
  int count_ = 0;
};

// An authority that nobody else knows.
KeyedCertificate NewAuthority();
// The content of a file.
std::string Content(const std::string& path);

}  // namespace millrace::testing

#endif  // TESTS_CLUSTER_CERTIFICATE_FILES_H_
