// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/server_command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cluster/tf_config.h"
#include "distributed_runtime/method_limits.h"
#include "jit/code_cache.h"
#include "millrace/custom_op.h"
#include "millrace/gpu.h"
#include "millrace/pages.h"
#include "millrace/server.h"
#include "tools/millrace/credential_flags.h"
#include "tools/millrace/offline.h"
#include "tools/millrace/stop_signals.h"

namespace millrace {

namespace {

struct Flags {
  std::string cluster_spec;
  std::string job_name;
  int task_id = -1;
  int cpus = 1;
  GpuOptions gpus;
  Credentials credentials;
  bool insecure = false;
  std::vector<std::string> allow;
  std::string file_root;
  std::string dump_dir;
  int64_t step_memory_limit = 0;
  double session_idle_limit = 24 * 3600;  // seconds
  int64_t max_message_size = 0;
  int max_connections = 0;
  int max_calls = 0;
  std::vector<std::string> max_method_calls;
  SessionQuotas quotas;
  std::string cluster_id;
  double peer_timeout = 30;  // seconds
  std::string http;
  std::vector<std::string> libraries;
};

// What the flags say, and where they are silent TF_CONFIG.
StatusOr<ServerOptions> ToOptions(const Flags& flags) {
  ServerOptions options;
  TfConfig environment;
  const char* text = std::getenv("TF_CONFIG");
  const bool complete =
      !flags.cluster_spec.empty() && !flags.job_name.empty() && flags.task_id >= 0;
  if (!complete && text != nullptr && *text != '\0') {
    MR_ASSIGN_OR_RETURN(environment, ParseTfConfig(text));
    MR_RETURN_IF_ERROR(AddEvaluator(&environment));
  }
  if (!flags.cluster_spec.empty()) {
    MR_ASSIGN_OR_RETURN(options.cluster, ClusterSpec::Parse(flags.cluster_spec));
  } else {
    options.cluster = environment.cluster;
  }
  if (options.cluster.jobs().empty()) {
    return errors::InvalidArgument(
        "no cluster given: use --cluster_spec='ps|host:port,worker|host:port;host:port' or "
        "TF_CONFIG");
  }
  const auto& jobs = options.cluster.jobs();
  if (!flags.job_name.empty()) {
    options.job_name = flags.job_name;
  } else if (environment.job_name.has_value()) {
    options.job_name = *environment.job_name;
  } else if (jobs.size() == 1) {
    options.job_name = jobs.begin()->first;
  } else {
    return errors::InvalidArgument("which of the jobs this is was not given: use --job_name");
  }
  if (flags.task_id >= 0) {
    options.task_index = flags.task_id;
  } else if (environment.task_index.has_value()) {
    options.task_index = *environment.task_index;
  } else if (options.cluster.num_tasks(options.job_name) == 1) {
    options.task_index = jobs.find(options.job_name)->second.begin()->first;
  } else {
    return errors::InvalidArgument("which task of job '", options.job_name,
                                   "' this is was not given: use --task_id");
  }
  options.num_cpu_devices = flags.cpus;
  options.credentials = flags.credentials;
  options.insecure = flags.insecure;
  options.allow = flags.allow;
  options.file_root = flags.file_root;
  options.dump_dir = flags.dump_dir;
  options.max_message_size = flags.max_message_size;
  options.max_connections = flags.max_connections;
  options.max_calls = flags.max_calls;
  options.quotas = flags.quotas;
  options.cluster_id = flags.cluster_id;
  if (flags.step_memory_limit > 0) options.step_memory_limit = flags.step_memory_limit;
  options.session_idle_limit =
      std::chrono::milliseconds(static_cast<int64_t>(flags.session_idle_limit * 1e3));
  options.peer_timeout = std::chrono::milliseconds(static_cast<int64_t>(flags.peer_timeout * 1e3));
  return options;
}

Status Serve(const Flags& flags) {
  for (const std::string& library : flags.libraries) MR_RETURN_IF_ERROR(LoadLibrary(library));
  MR_ASSIGN_OR_RETURN(const ServerOptions options, ToOptions(flags));
  StopSignals signals;

  SetLogTask(StrCat("/job:", options.job_name, "/task:", options.task_index));
  MR_RETURN_IF_ERROR(SetGpuOptions(flags.gpus));
  MR_RETURN_IF_ERROR(SetMethodLimits(flags.max_method_calls));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Create(options));
  MR_RETURN_IF_ERROR(server->Start());
  if (options.credentials.empty() && options.insecure) {
    MR_LOG(kWarning, "--insecure: whoever reaches ", server->address(),
           " may run any op here; nothing is encrypted");
  } else if (!options.credentials.empty() && !options.credentials.tls()) {
    MR_LOG(kWarning, "--token_file without --tls_cert: whoever can listen to the network learns ",
           "the token, and may then run any op here");
  }
  MR_LOG(kInfo, "listening on ", server->address());
  std::unique_ptr<Pages> pages;
  if (!flags.http.empty()) {
    MR_ASSIGN_OR_RETURN(pages, Pages::Serve(*server, flags.http));
    MR_LOG(kInfo, "pages at ", pages->url());
  }
  signals.Wait();
  return server->Stop();
}

}  // namespace

namespace {

// What the environment decides, and whether there is a compiler.
std::string EnvironmentHelp() {
  const std::string compiler = jit::FindComponent(jit::JitOptions::FromEnvironment());
  return StrCat(
      "Environment:\n"
      "  MILLRACE_LOG_LEVEL          debug, info, warning or error\n"
      "  MILLRACE_STEP_MEMORY_LIMIT  bytes, as --step_memory_limit (default: no limit)\n"
      "  MILLRACE_FUSION             on: elementwise nodes are run together (default: off)\n"
      "  MILLRACE_JIT                off: what is run together is interpreted, never compiled\n"
      "  MILLRACE_JIT_LIBRARY        the compiler's library\n"
      "  MILLRACE_JIT_CACHE          folder for compiled loops\n"
      "  MILLRACE_CUDA_BLOCKING      1: wait for every operation on a GPU, to find the one that "
      "fails\n"
      "  MILLRACE_CUDA_TF32          1: float32 products on GPUs in TensorFloat-32\n"
      "  MILLRACE_DETERMINISTIC      1: only algorithms that give the same bits every time\n"
      "  MILLRACE_CUDA_LIBRARY_PATH  folders to look for CUDA's libraries in first\n"
      "Compiler of fused loops: ",
      compiler.empty() ? "none here, they are interpreted" : compiler);
}

// Of a number of bytes that CLI::AsSizeValue has read: it takes what is negative, or beyond 2^63.
CLI::Validator IsSize() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        int64_t bytes = 0;
        if (ParseInt64(text, &bytes) && bytes >= 0) return "";
        return StrCat("Value ", text, " not in range 0 to 2^63 - 1");
      },
      "");
}

// Who may call, and what graphs may do.
void AddSecurityFlags(CLI::App* command, Flags* flags) {
  AddCredentialFlags(
      command, &flags->credentials,
      "PEM file with the certificate of this task (see millrace certs); with the two that follow "
      "every connection is TLS, and callers need certificates, too",
      "file (mode 0600) with a secret that every caller must know, with TLS or alone");
  command->add_flag("--insecure", flags->insecure,
                    "allow an address that is not loopback without any of these: not encrypted, "
                    "open to every client");
  command
      ->add_option("--allow", flags->allow,
                   "what graphs may do besides computing: file_read, file_write, environment, "
                   "network, custom_code, with commas between, all or none (default: all; without "
                   "file_write where the address is not loopback and there is no --file_root)")
      ->delimiter(',');
  command->add_option("--file_root", flags->file_root,
                      "the only folder whose files graphs may name, links and '..' resolved");
}

// What callers may take of the server, and what one session.
void AddLimitFlags(CLI::App* command, Flags* flags) {
  command
      ->add_option("--max_message_size", flags->max_message_size,
                   "the largest request: bytes, or 100MB, 1GB (default: 2 GiB - 1)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(IsSize());
  command
      ->add_option("--max_connections", flags->max_connections,
                   "connections at once (default: half of the file descriptors, at most 16384)")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--max_calls", flags->max_calls,
                   "calls at once on one connection (default: 65536)")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option(
          "--max_method_calls", flags->max_method_calls,
          "calls of one method at once, whoever makes them: 'RunStep=100,MasterService=1000' "
          "or a number for all; 0: no bound (default: 65536, none of the worker service)")
      ->delimiter(',');
  SessionQuotas* const quotas = &flags->quotas;
  const auto add = [command](const char* name, int64_t* quota, const char* what) {
    return command->add_option(name, *quota, what)->check(CLI::NonNegativeNumber);
  };
  add("--max_sessions", &quotas->max_sessions,
      "sessions open at this task at once (default: no limit, as for what follows)");
  add("--max_graph_nodes", &quotas->max_graph_nodes,
      "nodes of the graph of one session, those of functions included");
  add("--max_steps", &quotas->max_steps, "steps that one session runs at once");
  command
      ->add_option("--max_graph_size", quotas->max_graph_size,
                   "the graph of one session: bytes, or 100MB, 1GB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(IsSize());
  command
      ->add_option(
          "--session_memory_limit", quotas->session_memory_limit,
          "what kernels take for the steps of one session here, as long as it is held: bytes, or "
          "100MB, 2GB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(IsSize());
}

}  // namespace

void AddServerCommand(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app->add_subcommand("server", "run one task of a cluster until it is killed");
  command->add_option("--cluster_spec", flags->cluster_spec,
                      "jobs and addresses: 'ps|h:p;h:p,worker|h:p' (default: from TF_CONFIG)");
  command->add_option("--job_name", flags->job_name, "job of this task (default: from TF_CONFIG)");
  command
      ->add_option("--task_id,--task_index", flags->task_id,
                   "number of this task in its job (default: from TF_CONFIG)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--cpus", flags->cpus, "CPU devices of this task")->capture_default_str();
  command
      ->add_option("--gpus", flags->gpus.count,
                   "GPUs of this task; it does not start with fewer (default: all there are)")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--gpu_memory_fraction", flags->gpus.memory_fraction,
                   "of each GPU's memory, what this task may take; 0: what is free")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_flag("--gpu_allow_growth", flags->gpus.allow_growth,
                    "take GPU memory as it is needed, not all at once");
  command->add_option("--visible_gpus", flags->gpus.visible,
                      "which GPUs, in which order: '1,0' (default: all)");
  AddSecurityFlags(command, flags.get());
  AddLimitFlags(command, flags.get());
  command->add_option("--dump_dir", flags->dump_dir,
                      "write the graphs of the sessions opened at this task to this folder");
  command
      ->add_option("--step_memory_limit", flags->step_memory_limit,
                   "what the tensors of one step may take on one device: bytes, or 100MB, 2GB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(IsSize());
  command
      ->add_option("--session_idle_limit", flags->session_idle_limit,
                   "seconds after which a session that nobody calls is closed; 0: never")
      ->envname("MILLRACE_SESSION_IDLE_LIMIT")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  command
      ->add_option(
          "--cluster_id", flags->cluster_id,
          "a name that all tasks of this cluster have and those of no other: tasks with "
          "different names refuse each other (default: MILLRACE_CLUSTER_ID, or told apart by who "
          "answers where)")
      ->envname("MILLRACE_CLUSTER_ID");
  command
      ->add_option("--peer_timeout", flags->peer_timeout,
                   "seconds without a sign of life after which another task is lost; 0: never")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--http", flags->http,
                      "host:port where browsers find the pages of this task, and Prometheus its "
                      "metrics (docs/operating.md); port 0: one that is free");
  command->add_option(
      "--load", flags->libraries,
      "library of custom ops (docs/custom_ops.md), may be given more than once; its "
      "code runs with all rights of the server");
  command->footer(&EnvironmentHelp);
  command->callback([flags, chosen] {
    *chosen = [flags] {
      const Status status = Serve(*flags);
      if (status.ok()) return 0;
      return Complain("server", status, 1);
    };
  });
}

}  // namespace millrace
