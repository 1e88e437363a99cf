// SPDX-License-Identifier: Apache-2.0
// Certificates as files and as text: checked before they are used, and made to try things out.
#ifndef TRANSPORT_SECURITY_CERTIFICATES_H_
#define TRANSPORT_SECURITY_CERTIFICATES_H_

#include <chrono>
#include <string>
#include <string_view>

#include "millrace/status.h"
#include "transport/security/certificate_name.h"

namespace millrace {

// A certificate and its private key, both as PEM.
struct KeyedCertificate {
  std::string certificate{};
  std::string key{};
};

// When a certificate is good, relative to now.
struct Validity {
  std::chrono::seconds from{-300};  // clocks of hosts differ a little
  std::chrono::seconds until{std::chrono::hours(24 * 30)};
};

// As what a name stands in a certificate (transport/security/certificate_name.h).
enum class NameForm { kUri, kDns };

// The authority of a cluster, signed by itself: P-256 and SHA-256. `key` (PEM) is used if it is not
// "", else one is made. InvalidArgument for a key that cannot be read, Internal if OpenSSL fails.
StatusOr<KeyedCertificate> MakeAuthority(const std::string& cluster, const Validity& validity,
                                         const std::string& key = "");

// A certificate for `name`, signed by `authority`, good at both ends of a connection. `key` as
// above: who keeps the key can replace the certificate alone. InvalidArgument, too, for a name that
// has no such form.
StatusOr<KeyedCertificate> IssueCertificate(const KeyedCertificate& authority,
                                            const CertificateName& name, const Validity& validity,
                                            const std::string& key = "",
                                            NameForm form = NameForm::kUri);

// The name of the first certificate in `pem`. InvalidArgument if there is none, or it has no name.
StatusOr<CertificateName> NameOfCertificate(std::string_view pem);

// The SHA-256 of the public key of that certificate, in hexadecimal: the same for those that were
// renewed with their key. InvalidArgument if there is none.
StatusOr<std::string> KeyOfCertificate(std::string_view pem);

// When that certificate ends. InvalidArgument if there is none.
StatusOr<std::chrono::system_clock::time_point> EndOfCertificate(std::string_view pem);

// Whether `pair` can be used now with those who believe the CAs in `authorities` (PEM): the key is
// the certificate's, the certificate is signed by a CA, directly or by those that follow it in the
// same text, it is neither expired nor not good yet, and it has a name. Else InvalidArgument that
// says which of it is not so.
StatusOr<CertificateName> CheckCertificate(const KeyedCertificate& pair,
                                           std::string_view authorities);

}  // namespace millrace

#endif  // TRANSPORT_SECURITY_CERTIFICATES_H_
