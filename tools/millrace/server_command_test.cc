// SPDX-License-Identifier: Apache-2.0
// Runs the program itself: what people and scripts see.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"

namespace millrace {
namespace {

struct Process {
  pid_t pid = -1;
  int output = -1;  // stdout and stderr
};

Process Spawn(const std::vector<std::string>& arguments, const std::string& tf_config = "") {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  Process process;
  process.output = ends[0];
  process.pid = fork();
  if (process.pid == 0) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    close(ends[0]);
    if (tf_config.empty()) {
      unsetenv("TF_CONFIG");
    } else {
      setenv("TF_CONFIG", tf_config.c_str(), 1);
    }
    std::vector<char*> argv = {const_cast<char*>("millrace")};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv("tools/millrace", argv.data());
    _exit(127);
  }
  close(ends[1]);
  return process;
}

// Everything written until the process ends, and its exit code.
std::string Finish(const Process& process, int* code) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(process.output, buffer, sizeof(buffer))) > 0;) text.append(buffer, n);
  close(process.output);
  int status = 0;
  EXPECT_EQ(waitpid(process.pid, &status, 0), process.pid);
  *code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return text;
}

struct Listener {
  Listener() : fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd, 1), 0);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = ntohs(address.sin_port);
  }
  ~Listener() { close(fd); }
  int fd, port;
};

void ExpectOneLine(const std::vector<std::string>& arguments, int code, const std::string& part,
                   const std::string& tf_config = "") {
  int exit_code = 0;
  const std::string text = Finish(Spawn(arguments, tf_config), &exit_code);
  EXPECT_EQ(exit_code, code) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(ServerCommand, RefusesBadInputInOneLine) {
  ExpectOneLine({"server", "--no_such_flag=1"}, 2, "no_such_flag");
  ExpectOneLine({"serve"}, 2, "serve");
  ExpectOneLine({"server", "--task_id=x"}, 2, "x");
  ExpectOneLine({"server"}, 1, "--cluster_spec");
  ExpectOneLine({"server", "--cluster_spec=ps"}, 1, "ps");
  ExpectOneLine({"server", "--cluster_spec=ps|nohost"}, 1, "nohost");
  ExpectOneLine({"server", "--cluster_spec=ps|127.0.0.1:7000,worker|127.0.0.1:7000"}, 1,
                "127.0.0.1:7000");
  ExpectOneLine({"server", "--cluster_spec=ps|127.0.0.1:7000", "--job_name=ps", "--task_id=1"}, 1,
                "Task 1");
  ExpectOneLine({"server", "--cluster_spec=ps|127.0.0.1:7000", "--job_name=chief"}, 1, "chief");
  for (const char* way : {"--tls_cert", "--token_file", "--insecure"}) {
    ExpectOneLine({"server", "--cluster_spec=ps|192.0.2.1:7000"}, 1, way);
  }
  ExpectOneLine({"server", "--cluster_spec=ps|127.0.0.1:7000", "--tls_cert=/nowhere.pem"}, 1,
                "three files");
  ExpectOneLine({"server", "--cluster_spec=ps|127.0.0.1:7000", "--allow=file_read,files"}, 1,
                "'files'");
  ExpectOneLine({"server", "--cluster_spec=ps|127.0.0.1:7000", "--file_root=/nowhere"}, 1,
                "/nowhere");
  ExpectOneLine({"server", "--cluster_spec=ps|127.0.0.1:7000", "--token_file=/nowhere"}, 1,
                "/nowhere");
  for (const char* flag : {"--session_memory_limit", "--max_graph_size", "--step_memory_limit",
                           "--max_message_size", "--max_sessions", "--max_steps"}) {
    ExpectOneLine({"server", "--cluster_spec=ps|127.0.0.1:0", StrCat(flag, "=-1")}, 2, flag);
  }
  ExpectOneLine({"server", "--cluster_spec=ps|127.0.0.1:0", "--max_sessions=-1"}, 2,
                "--max_sessions must be at least 0, it is -1");
  ExpectOneLine({"trace", "grpc://127.0.0.1:1", "--steps=0"}, 2, "--steps must be from 1 to ");
  for (const char* command : {"page", "top", "trace", "doctor"}) {
    ExpectOneLine({command, "grpc://127.0.0.1:1", "--tls_cert=/nowhere.pem"}, 1, "three files");
  }
  for (const char* size : {"99999999999999999999", "9EB", "-1GB"}) {
    ExpectOneLine(
        {"server", "--cluster_spec=ps|127.0.0.1:0", StrCat("--session_memory_limit=", size)}, 2,
        "--session_memory_limit");
  }
  for (const char* limits : {"x", "RunStep=", "=3", "RunStep=-1", "1,RunStep=a", "RunStpe=3"}) {
    ExpectOneLine(
        {"server", "--cluster_spec=ps|127.0.0.1:0", StrCat("--max_method_calls=", limits)}, 1,
        "--max_method_calls");
  }
  ExpectOneLine({"server"}, 1, "TF_CONFIG", "{");
  ExpectOneLine({"server", "--cluster_spec=ps|127.0.0.1:7000", "--dump_dir=/dev/null/dumps"}, 1,
                "/dev/null/dumps");
}

// One task that asks for more GPUs than any machine has.
TEST(ServerCommand, NamesWhatIsMissingForItsGpus) {
  int code = 0;
  const std::string devices = Finish(Spawn({"devices"}), &code);
  EXPECT_EQ(code, 0) << devices;
  EXPECT_NE(devices.find("CPU:0"), std::string::npos) << devices;
  Finish(Spawn({"devices", "--require_gpu"}), &code);
  const bool has_gpu = code == 0;
  EXPECT_EQ(has_gpu, devices.find("no GPU: ") == std::string::npos) << devices;
  std::string why = "not 999";
  if (!has_gpu) {
    const size_t start = devices.find("no GPU: ") + 8;
    why = devices.substr(start, devices.find('\n', start) - start);
    EXPECT_TRUE(why.find("--config=cuda") != std::string::npos ||
                why.find("driver") != std::string::npos)
        << why;
  }
  ExpectOneLine({"server", "--cluster_spec=ps|127.0.0.1:7000", "--gpus=999"}, 1, why);
}

TEST(ServerCommand, NamesAPortThatIsTaken) {
  const Listener taken;
  const std::string address = StrCat("127.0.0.1:", taken.port);
  ExpectOneLine({"server", StrCat("--cluster_spec=worker|", address)}, 1, address);
}

TEST(ServerCommand, HelpsOnRequest) {
  int code = -1;
  EXPECT_NE(Finish(Spawn({"--help"}), &code).find("server"), std::string::npos);
  EXPECT_EQ(code, 0);
  const std::string help = Finish(Spawn({"server", "--help"}), &code);
  EXPECT_NE(help.find("--cluster_spec"), std::string::npos);
  EXPECT_NE(help.find("Compiler of fused loops: "), std::string::npos);
  EXPECT_EQ(code, 0);
}

TEST(ServerCommand, RunsUntilASignalEndsItCleanly) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const Process process = Spawn(
        {"server"}, R"({"cluster": {"worker": ["127.0.0.1:0"]}, "task": {"type": "worker"}})");
    // It says when it listens.
    std::string text;
    char byte;
    while (text.find("listening on 127.0.0.1:") == std::string::npos &&
           read(process.output, &byte, 1) == 1) {
      text.push_back(byte);
    }
    EXPECT_NE(text.find("listening"), std::string::npos) << text;
    kill(process.pid, signal);
    int code = -1;
    text += Finish(process, &code);
    EXPECT_EQ(code, 0) << text;
  }
}

}  // namespace
}  // namespace millrace
