// SPDX-License-Identifier: Apache-2.0
#include "transport/security/certificates.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
void FreeChain(STACK_OF(X509) * chain) { sk_X509_pop_free(chain, X509_free); }
void FreeNames(GENERAL_NAMES* names) { GENERAL_NAMES_free(names); }

using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Chain = std::unique_ptr<STACK_OF(X509), Deleter<FreeChain>>;
using Store = std::unique_ptr<X509_STORE, Deleter<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Deleter<X509_STORE_CTX_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Deleter<X509_EXTENSION_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Deleter<FreeNames>>;

// What OpenSSL says of its last failure on this thread, whose list of failures is then empty.
Status Failure(std::string_view what) {
  char reason[256] = "no reason given";
  if (const auto code = ERR_peek_last_error(); code != 0) {
    ERR_error_string_n(code, reason, sizeof(reason));
  }
  ERR_clear_error();
  return errors::Internal("OpenSSL cannot ", what, ": ", reason);
}

Bio ReadFrom(std::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

template <typename Write>
StatusOr<std::string> ToPem(Write write) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || write(bio.get()) != 1) return Failure("write PEM");
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<std::size_t>(size));
}

StatusOr<std::string> KeyToPem(EVP_PKEY* key) {
  return ToPem([key](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

// All certificates of a text, in order; other blocks are passed over.
StatusOr<std::vector<Certificate>> ReadCertificates(std::string_view pem) {
  const Bio bio = ReadFrom(pem);
  std::vector<Certificate> all;
  while (bio != nullptr) {
    Certificate next(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (next == nullptr) break;
    all.push_back(std::move(next));
  }
  ERR_clear_error();  // the end of the text is one for OpenSSL
  if (all.empty()) return errors::InvalidArgument("there is no certificate (PEM) in it");
  return all;
}

// No passphrase is asked for on the terminal.
int NoPassphrase(char*, int, int, void*) { return 0; }

StatusOr<Key> ReadKey(std::string_view pem) {
  const Bio bio = ReadFrom(pem);
  Key key(bio == nullptr ? nullptr
                         : PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return errors::InvalidArgument("there is no private key (PEM, not encrypted) in it");
  }
  return key;
}

StatusOr<Key> KeyOrNew(const std::string& pem) {
  if (!pem.empty()) return ReadKey(pem);
  Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failure("make a key");
  return key;
}

bool AddExtension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// 127 random bits: positive, and never the same again.
bool SetSerial(X509* certificate) {
  unsigned char bytes[16];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) return false;
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);
  BIGNUM* number = BN_bin2bn(bytes, sizeof(bytes), nullptr);
  const bool set = number != nullptr &&
                   BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  return set;
}

// What an authority and those it signs have in common. Names are at most 64 bytes in X.509: they
// are for people, and the alternative name is what counts.
bool SetCommon(X509* certificate, const std::string& subject, EVP_PKEY* key,
               const Validity& validity) {
  const std::string text = subject.substr(0, 64);
  return X509_set_version(certificate, X509_VERSION_3) == 1 && SetSerial(certificate) &&
         X509_gmtime_adj(X509_getm_notBefore(certificate), validity.from.count()) != nullptr &&
         X509_gmtime_adj(X509_getm_notAfter(certificate), validity.until.count()) != nullptr &&
         X509_set_pubkey(certificate, key) == 1 &&
         X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(text.data()),
                                    static_cast<int>(text.size()), -1, 0) == 1;
}

StatusOr<KeyedCertificate> Sign(X509* certificate, EVP_PKEY* signer, EVP_PKEY* key) {
  if (X509_sign(certificate, signer, EVP_sha256()) == 0) return Failure("sign a certificate");
  KeyedCertificate made;
  MR_ASSIGN_OR_RETURN(made.certificate, ToPem([certificate](BIO* bio) {
                        return PEM_write_bio_X509(bio, certificate);
                      }));
  MR_ASSIGN_OR_RETURN(made.key, KeyToPem(key));
  return made;
}

StatusOr<CertificateName> NameOf(X509* certificate) {
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string_view> uris, dns;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI && name->type != GEN_DNS) continue;
    const ASN1_IA5STRING* const text =
        name->type == GEN_URI ? name->d.uniformResourceIdentifier : name->d.dNSName;
    (name->type == GEN_URI ? uris : dns)
        .emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                      static_cast<std::size_t>(ASN1_STRING_length(text)));
  }
  return FindCertificateName(uris, dns);
}

Status VerifyChain(const std::vector<Certificate>& presented, std::string_view authorities) {
  StatusOr<std::vector<Certificate>> believed = ReadCertificates(authorities);
  if (!believed.ok()) {
    return errors::InvalidArgument("the CA file: ", Message(believed.status()));
  }
  const Store store(X509_STORE_new());
  const StoreContext context(X509_STORE_CTX_new());
  const Chain between(sk_X509_new_null());
  if (store == nullptr || context == nullptr || between == nullptr) return Failure("take memory");
  for (const Certificate& ca : *believed) X509_STORE_add_cert(store.get(), ca.get());
  for (std::size_t i = 1; i < presented.size(); ++i) {
    if (X509_up_ref(presented[i].get()) == 1) sk_X509_push(between.get(), presented[i].get());
  }
  if (X509_STORE_CTX_init(context.get(), store.get(), presented[0].get(), between.get()) != 1) {
    return Failure("check a certificate");
  }
  const bool good = X509_verify_cert(context.get()) == 1;
  const int code = X509_STORE_CTX_get_error(context.get());
  ERR_clear_error();
  if (good) return OkStatus();
  return errors::InvalidArgument("the certificate is not good with these CAs: ",
                                 X509_verify_cert_error_string(code));
}

}  // namespace

StatusOr<KeyedCertificate> MakeAuthority(const std::string& cluster, const Validity& validity,
                                         const std::string& key_pem) {
  MR_ASSIGN_OR_RETURN(const Key key, KeyOrNew(key_pem));
  const Certificate made(X509_new());
  X509* const ca = made.get();
  const std::string subject = cluster.empty() ? "Millrace CA" : StrCat("Millrace CA ", cluster);
  const bool set = ca != nullptr && SetCommon(ca, subject, key.get(), validity) &&
                   X509_set_issuer_name(ca, X509_get_subject_name(ca)) == 1 &&
                   AddExtension(ca, ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
                   AddExtension(ca, ca, NID_key_usage, "critical,keyCertSign,cRLSign") &&
                   AddExtension(ca, ca, NID_subject_key_identifier, "hash");
  if (!set) return Failure("make an authority");
  return Sign(ca, key.get(), key.get());
}

StatusOr<KeyedCertificate> IssueCertificate(const KeyedCertificate& authority,
                                            const CertificateName& name, const Validity& validity,
                                            const std::string& key_pem, NameForm form) {
  const std::string dns = form == NameForm::kDns ? name.ToDns() : std::string();
  if (form == NameForm::kDns && dns.empty()) {
    return errors::InvalidArgument(name.ToUri(),
                                   " cannot be written as a DNS name: its parts would "
                                   "have to be lower-case letters, digits and hyphens");
  }
  MR_ASSIGN_OR_RETURN(const Key signer, ReadKey(authority.key));
  MR_ASSIGN_OR_RETURN(const std::vector<Certificate> cas, ReadCertificates(authority.certificate));
  MR_ASSIGN_OR_RETURN(const Key key, KeyOrNew(key_pem));
  X509* const ca = cas[0].get();
  if (X509_check_private_key(ca, signer.get()) != 1) {
    ERR_clear_error();
    return errors::InvalidArgument("the key of the authority is not that of its certificate");
  }
  const Certificate made(X509_new());
  X509* const leaf = made.get();
  const std::string subject = name.role == Role::kTask ? name.TaskName() : name.ToUri();
  const bool set = leaf != nullptr && SetCommon(leaf, subject, key.get(), validity) &&
                   X509_set_issuer_name(leaf, X509_get_subject_name(ca)) == 1 &&
                   AddExtension(leaf, ca, NID_basic_constraints, "critical,CA:FALSE") &&
                   AddExtension(leaf, ca, NID_key_usage, "critical,digitalSignature") &&
                   AddExtension(leaf, ca, NID_ext_key_usage, "serverAuth,clientAuth") &&
                   AddExtension(leaf, ca, NID_subject_key_identifier, "hash") &&
                   AddExtension(leaf, ca, NID_authority_key_identifier, "keyid:always") &&
                   AddExtension(leaf, ca, NID_subject_alt_name,
                                dns.empty() ? StrCat("URI:", name.ToUri()) : StrCat("DNS:", dns));
  if (!set) return Failure(StrCat("make a certificate for ", name.ToUri()));
  return Sign(leaf, signer.get(), key.get());
}

StatusOr<CertificateName> NameOfCertificate(std::string_view pem) {
  MR_ASSIGN_OR_RETURN(const std::vector<Certificate> all, ReadCertificates(pem));
  return NameOf(all[0].get());
}

StatusOr<std::string> KeyOfCertificate(std::string_view pem) {
  MR_ASSIGN_OR_RETURN(const std::vector<Certificate> all, ReadCertificates(pem));
  unsigned char* text = nullptr;
  const int size = i2d_PUBKEY(X509_get0_pubkey(all[0].get()), &text);
  if (size <= 0) return Failure("write the public key of a certificate");
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int digest_size = 0;
  const int done =
      EVP_Digest(text, static_cast<std::size_t>(size), digest, &digest_size, EVP_sha256(), nullptr);
  OPENSSL_free(text);
  if (done != 1) return Failure("digest a public key");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < digest_size; ++i) {
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

StatusOr<std::chrono::system_clock::time_point> EndOfCertificate(std::string_view pem) {
  MR_ASSIGN_OR_RETURN(const std::vector<Certificate> all, ReadCertificates(pem));
  std::tm end{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(all[0].get()), &end) != 1) {
    return errors::InvalidArgument("the certificate has no end that can be read");
  }
  return std::chrono::system_clock::from_time_t(timegm(&end));
}

StatusOr<CertificateName> CheckCertificate(const KeyedCertificate& pair,
                                           std::string_view authorities) {
  StatusOr<std::vector<Certificate>> presented = ReadCertificates(pair.certificate);
  if (!presented.ok()) {
    return errors::InvalidArgument("the certificate file: ", Message(presented.status()));
  }
  const StatusOr<Key> key = ReadKey(pair.key);
  if (!key.ok()) return errors::InvalidArgument("the key file: ", Message(key.status()));
  const bool same = X509_check_private_key((*presented)[0].get(), key->get()) == 1;
  ERR_clear_error();
  if (!same) return errors::InvalidArgument("the key is not that of the certificate");
  MR_RETURN_IF_ERROR(VerifyChain(*presented, authorities));
  return NameOf((*presented)[0].get());
}

}  // namespace millrace
