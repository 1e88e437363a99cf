// SPDX-License-Identifier: Apache-2.0
#include "transport/security/certificates.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/errors.h"

namespace millrace {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

const CertificateName kPs{"blue", Role::kTask, "ps", 0};

KeyedCertificate Authority(const std::string& cluster = "blue") {
  StatusOr<KeyedCertificate> made = MakeAuthority(cluster, {});
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *made : KeyedCertificate();
}

KeyedCertificate Issue(const KeyedCertificate& authority, const Validity& validity = {},
                       const CertificateName& name = kPs, const std::string& key = "") {
  StatusOr<KeyedCertificate> made = IssueCertificate(authority, name, validity, key);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *made : KeyedCertificate();
}

void ExpectRefused(const KeyedCertificate& pair, const std::string& authorities,
                   const std::string& reason) {
  const Status status = CheckCertificate(pair, authorities).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  EXPECT_NE(Message(status).find(reason), std::string_view::npos) << status;
}

TEST(CertificatesTest, AreGoodWithTheirAuthority) {
  const KeyedCertificate authority = Authority();
  for (const CertificateName& name :
       {kPs, CertificateName{"", Role::kTask, "worker", 12}, CertificateName{"blue", Role::kClient},
        CertificateName{"blue", Role::kAdmin},
        CertificateName{std::string(128, 'c'), Role::kTask, std::string(128, 'j'), 1}}) {
    const KeyedCertificate pair = Issue(authority, {}, name);
    const StatusOr<CertificateName> checked = CheckCertificate(pair, authority.certificate);
    ASSERT_TRUE(checked.ok()) << checked.status();
    EXPECT_EQ(*checked, name);
    EXPECT_EQ(*NameOfCertificate(pair.certificate), name);
  }
}

TEST(CertificatesTest, MayHaveTheNameOfAHost) {
  const KeyedCertificate authority = Authority();
  for (const CertificateName& name : {kPs, CertificateName{"", Role::kTask, "worker", 12},
                                      CertificateName{"blue", Role::kClient}}) {
    const StatusOr<KeyedCertificate> pair =
        IssueCertificate(authority, name, {}, "", NameForm::kDns);
    ASSERT_TRUE(pair.ok()) << pair.status();
    const StatusOr<CertificateName> checked = CheckCertificate(*pair, authority.certificate);
    ASSERT_TRUE(checked.ok()) << checked.status();
    EXPECT_EQ(*checked, name);
  }
  const CertificateName capital{"", Role::kTask, "Worker", 0};
  EXPECT_EQ(IssueCertificate(authority, capital, {}, "", NameForm::kDns).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(CertificatesTest, AreNotGoodWithOthers) {
  const KeyedCertificate authority = Authority(), other = Authority();
  const KeyedCertificate pair = Issue(authority), second = Issue(authority);
  ExpectRefused(pair, other.certificate, "not good with these CAs");
  ExpectRefused({pair.certificate, second.key}, authority.certificate, "not that of");
  ExpectRefused(authority, authority.certificate, "names no task");
  // Any one of several authorities does.
  EXPECT_TRUE(CheckCertificate(pair, other.certificate + authority.certificate).ok());
}

TEST(CertificatesTest, AreGoodInTheirTimeOnly) {
  const KeyedCertificate authority = Authority();
  ExpectRefused(Issue(authority, {-hours(48), -hours(24)}), authority.certificate, "expired");
  ExpectRefused(Issue(authority, {hours(24), hours(48)}), authority.certificate, "not yet valid");
  const KeyedCertificate pair = Issue(authority, {seconds(-60), hours(2)});
  const auto end = EndOfCertificate(pair.certificate);
  ASSERT_TRUE(end.ok()) << end.status();
  const auto left = *end - std::chrono::system_clock::now();
  EXPECT_GT(left, hours(1));
  EXPECT_LE(left, hours(2));
}

TEST(CertificatesTest, CanBeRenewedForTheSameKey) {
  const KeyedCertificate authority = Authority();
  const KeyedCertificate first = Issue(authority);
  const KeyedCertificate renewed = Issue(authority, {}, kPs, first.key);
  EXPECT_EQ(renewed.key, first.key);
  EXPECT_NE(renewed.certificate, first.certificate);
  EXPECT_TRUE(CheckCertificate({renewed.certificate, first.key}, authority.certificate).ok());
  // An authority that was made again with its key believes what it signed before.
  const StatusOr<KeyedCertificate> again = MakeAuthority("blue", {}, authority.key);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(CheckCertificate(first, again->certificate).ok());
}

TEST(CertificatesTest, AreNotSignedByWhoIsNoAuthority) {
  const KeyedCertificate authority = Authority();
  const KeyedCertificate task = Issue(authority);
  KeyedCertificate below = Issue(task, {}, {"blue", Role::kAdmin});
  ExpectRefused(below, authority.certificate, "not good with these CAs");
  below.certificate += task.certificate;
  ExpectRefused(below, authority.certificate, "not good with these CAs");
}

TEST(CertificatesTest, SaysWhichFileIsNone) {
  const KeyedCertificate authority = Authority();
  const KeyedCertificate pair = Issue(authority);
  for (const std::string& text :
       {std::string(), std::string("-----BEGIN CERTIFICATE-----\n"), std::string(1000, '\xff'),
        pair.certificate.substr(0, pair.certificate.size() / 2)}) {
    ExpectRefused({text, pair.key}, authority.certificate, "the certificate file");
    ExpectRefused({pair.certificate, text}, authority.certificate, "the key file");
    ExpectRefused(pair, text, "the CA file");
    EXPECT_FALSE(NameOfCertificate(text).ok());
    EXPECT_FALSE(EndOfCertificate(text).ok());
    EXPECT_FALSE(IssueCertificate({authority.certificate, text}, kPs, {}).ok());
    EXPECT_FALSE(IssueCertificate({text, authority.key}, kPs, {}).ok());
  }
  EXPECT_FALSE(IssueCertificate({authority.certificate, pair.key}, kPs, {}).ok());
  EXPECT_FALSE(MakeAuthority("blue", {}, "no key").ok());
}

}  // namespace
}  // namespace millrace
