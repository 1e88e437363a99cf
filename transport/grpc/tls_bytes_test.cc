// SPDX-License-Identifier: Apache-2.0
// Bytes that no client sends, in the handshake of a server with certificates and after it: each
// ends its own connection, and the server goes on.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "base/errors.h"
#include "base/notification.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "tests/cluster/certificate_files.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/grpc/rpc_server.h"
#include "transport/methods.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using Ssl = std::unique_ptr<SSL, FreeSsl>;
using SslContext = std::unique_ptr<SSL_CTX, FreeSsl>;

// A connection in the clear.
class Socket {
 public:
  explicit Socket(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    timeval limit{.tv_sec = 5, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  }
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  void Send(const std::string& bytes) {
    // The server may have closed it in the middle.
    (void)!send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Reads what comes within the time.
  void Drain(milliseconds limit) {
    char buffer[4096];
    pollfd waited{fd_, POLLIN, 0};
    while (poll(&waited, 1, static_cast<int>(limit.count())) > 0) {
      if (recv(fd_, buffer, sizeof(buffer), 0) <= 0) return;
    }
  }

 private:
  int fd_;
  bool connected_ = false;
};

class TlsBytesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // What OpenSSL writes to a connection that the server has closed is an error, and no more.
    std::signal(SIGPIPE, SIG_IGN);
    server_ =
        std::make_unique<RpcServer>(&server_pool_, nullptr, RpcLimits(), nullptr,
                                    *LoadedCredentials::Load(files_.Issue(files_.Task("ps", 0))));
    server_->AddMethod(methods::kControlStatus, [](ServerCall* call) { call->Finish(OkStatus()); });
    const StatusOr<int> port = server_->Start("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *port;
    context_.reset(SSL_CTX_new(TLS_client_method()));
    static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
    ASSERT_EQ(SSL_CTX_set_alpn_protos(context_.get(), kHttp2, sizeof(kHttp2)), 0);
    ASSERT_EQ(SSL_CTX_use_certificate_chain_file(context_.get(), client_.tls_cert.c_str()), 1);
    ASSERT_EQ(
        SSL_CTX_use_PrivateKey_file(context_.get(), client_.tls_key.c_str(), SSL_FILETYPE_PEM), 1);
  }

  // What a client says first.
  std::string Hello() {
    const Ssl ssl(SSL_new(context_.get()));
    SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl.get());
    (void)SSL_do_handshake(ssl.get());
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(SSL_get_wbio(ssl.get()), &bytes);
    return std::string(bytes, static_cast<std::size_t>(size));
  }

  // HTTP/2's preface, settings and the beginning of a call.
  static std::string FirstFrames() {
    std::string bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    bytes += std::string("\0\0\0\4\0\0\0\0\0", 9);             // SETTINGS
    bytes += std::string("\0\0\1\1\4\0\0\0\1", 9) + "\x83";    // HEADERS: ":method: POST"
    bytes += std::string("\0\0\5\0\1\0\0\0\1\0\0\0\0\0", 14);  // DATA: an empty message
    bytes += std::string("\0\0\4\10\0\0\0\0\0\0\0\1\0", 13);   // WINDOW_UPDATE
    return bytes;
  }

  std::string Changed(std::string bytes) {
    const auto below = [this](std::size_t n) { return static_cast<std::size_t>(random_() % n); };
    switch (below(4)) {
      case 0:
        bytes.resize(below(bytes.size()));
        break;
      case 1:
        bytes.insert(below(bytes.size()), std::string(1 + below(300), '\xff'));
        break;
      case 2:
        bytes.erase(below(bytes.size()), 1 + below(8));
        break;
      default:
        break;
    }
    for (std::size_t i = below(8); i-- > 0 && !bytes.empty();) {
      bytes[below(bytes.size())] = static_cast<char>(random_());
    }
    return bytes;
  }

  Status CallAsClient() {
    RpcChannel channel(StrCat("127.0.0.1:", port_), "the server", &client_pool_, "",
                       *LoadedCredentials::Load(client_));
    Notification done;
    Status result;
    const grpc::Slice nothing("");
    channel.Call(methods::kControlStatus, {DeadlineAfter(seconds(20)), nullptr},
                 grpc::ByteBuffer(&nothing, 1), RpcChannel::IfDown::kFail,
                 [&](Status status, const grpc::ByteBuffer&) {
                   result = std::move(status);
                   done.Notify();
                 });
    done.Wait();
    return result;
  }

  // Each test takes two seconds, and longer where a loaded machine has done little by then.
  static bool IsTimeLeft(steady_clock::time_point begin, int done) {
    const auto passed = steady_clock::now() - begin;
    return passed < seconds(2) || (done <= 10 && passed < seconds(60));
  }
  std::minstd_rand random_{20};
  ThreadPool server_pool_{"server", 2}, client_pool_{"client", 2};
  testing::CertificateFiles files_;
  const Credentials client_ = files_.Issue(files_.Client());
  SslContext context_;
  std::unique_ptr<RpcServer> server_;
  int port_ = 0;
};

TEST_F(TlsBytesTest, OfTheHandshakeEndTheirConnection) {
  int sent = 0;
  for (const auto begin = steady_clock::now(); IsTimeLeft(begin, sent); ++sent) {
    Socket socket(port_);
    ASSERT_TRUE(socket.connected()) << sent;
    socket.Send(Changed(Hello()));
    socket.Drain(milliseconds(10));
    socket.Send(Changed(Hello()));
    if (sent % 16 == 0) {
      EXPECT_TRUE(CallAsClient().ok()) << sent;
    }
  }
  EXPECT_GT(sent, 10);
  const Status status = CallAsClient();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(TlsBytesTest, AfterTheHandshakeEndTheirConnection) {
  int sent = 0, greeted = 0;
  for (const auto begin = steady_clock::now(); IsTimeLeft(begin, greeted); ++sent) {
    Socket socket(port_);
    ASSERT_TRUE(socket.connected()) << sent;
    const Ssl ssl(SSL_new(context_.get()));
    SSL_set_fd(ssl.get(), socket.fd());
    if (SSL_connect(ssl.get()) != 1) continue;
    ++greeted;
    const std::string bytes = Changed(FirstFrames());
    if (sent % 2 == 0) {
      // Encrypted as it should be.
      if (!bytes.empty()) (void)SSL_write(ssl.get(), bytes.data(), static_cast<int>(bytes.size()));
    } else {
      // In place of what is encrypted.
      socket.Send(Changed(std::string("\x17\x03\x03\x00\x20", 5) + bytes));
    }
    socket.Drain(milliseconds(10));
    if (sent % 16 == 0) {
      EXPECT_TRUE(CallAsClient().ok()) << sent;
    }
  }
  EXPECT_GT(greeted, 10) << "of " << sent;
  const Status status = CallAsClient();
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace millrace
