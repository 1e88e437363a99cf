// SPDX-License-Identifier: Apache-2.0
#include "examples/mnist/flags.h"

#include <CLI/CLI.hpp>

#include <iostream>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "examples/log_flag.h"
#include "examples/mnist/download.h"
#include "millrace/version.h"

namespace millrace::mnist {
namespace {

void AddTensorFlowFlags(CLI::App& app, Flags& f) {
  app.add_option("--data_dir", f.data_dir,
                 "Folder of the MNIST idx files, gzipped or not, or of mnist.npz; synthetic digits "
                 "without it");
  app.add_flag("--download_only", f.download_only,
               "Only fetch into --data_dir what is absent there and check it, then leave");
  app.add_option("--job_name", f.job_name,
                 "ps, worker or evaluator; without it a local cluster is started");
  app.add_option("--task_index", f.task_index, "Index of this task within its job");
  app.add_option(
         "--num_gpus", f.num_gpus,
         "GPUs per machine; a worker asks for GPU task_index % num_gpus, and says why and takes "
         "its CPU where there is none")
      ->capture_default_str();
  app.add_option("--replicas_to_aggregate", f.replicas_to_aggregate,
                 "Gradients per synchronous update (default: the number of workers)");
  app.add_option("--hidden_units", f.hidden_units, "Width of the hidden layer")
      ->capture_default_str();
  app.add_option("--train_steps", f.train_steps, "Global steps to train")->capture_default_str();
  app.add_option("--batch_size", f.batch_size, "Examples per worker step")->capture_default_str();
  app.add_option("--learning_rate", f.learning_rate,
                 "Learning rate (default: 0.01, and 0.0003 for the cnn)");
  app.add_flag("--sync_replicas,!--nosync_replicas", f.sync_replicas,
               "Aggregate the workers' gradients into one update per step");
  app.add_flag("--existing_servers", f.existing_servers,
               "The servers run already (millrace server): this program is only a client");
  app.add_option("--ps_hosts", f.ps_hosts, "Comma-separated host:port of the ps tasks")
      ->capture_default_str();
  app.add_option("--worker_hosts", f.worker_hosts, "Comma-separated host:port of the workers")
      ->capture_default_str();
}

// What proves to other tasks which one this is.
void AddCredentialFlags(CLI::App& app, Flags& f) {
  app.add_option("--tls_cert", f.credentials.tls_cert,
                 "PEM file with this task's certificate; {job} and {task} stand for which it is: "
                 "certs/{job}-{task}.pem (see millrace certs)")
      ->envname("MILLRACE_TLS_CERT");
  app.add_option("--tls_key", f.credentials.tls_key, "PEM file with its private key")
      ->envname("MILLRACE_TLS_KEY");
  app.add_option("--tls_ca", f.credentials.tls_ca,
                 "PEM file with the authorities whose certificates are believed")
      ->envname("MILLRACE_TLS_CA");
  app.add_option("--token_file", f.credentials.token_file,
                 "File (mode 0600) with a secret that all tasks share")
      ->envname("MILLRACE_TOKEN_FILE");
}

void AddOwnFlags(CLI::App& app, Flags& f) {
  f.data_url = kDigitsUrl;
  app.add_option("--data_url", f.data_url,
                 "Folder on the web (or file://) with the gzipped idx files, for --download_only")
      ->capture_default_str();
  app.add_option("--model", f.model, "mlp (one hidden layer) or cnn")
      ->check(CLI::IsMember({"mlp", "cnn"}))
      ->capture_default_str();
  app.add_option("--optimizer", f.optimizer, "sgd, momentum, adagrad, rmsprop or adam")
      ->check(CLI::IsMember({"sgd", "momentum", "adagrad", "rmsprop", "adam"}))
      ->capture_default_str();
  app.add_option("--ps_strategy", f.ps_strategy,
                 "How variables are spread over ps tasks: balanced (by bytes) or round_robin")
      ->check(CLI::IsMember({"balanced", "round_robin"}))
      ->capture_default_str();
  app.add_option("--dump_graph", f.dump_graph,
                 "Folder for the graphs as text and as pictures, one subfolder per worker");
  app.add_option(
      "--trace_dir", f.trace_dir,
      "Folder for a trace of one step of each worker, for chrome://tracing and Perfetto");
  app.add_option(
      "--checkpoint_dir", f.checkpoint_dir,
      "Folder of checkpoints that all tasks see, and have as a flag: the chief saves there, and "
      "goes on from the newest where variables have no value; with --sync_replicas all do when one "
      "task is lost");
  app.add_option("--save_steps", f.save_steps,
                 "Global steps from one checkpoint to the next: the most that a lost task costs")
      ->capture_default_str();
  app.add_option("--evaluate", f.evaluate,
                 "Which checkpoints of --checkpoint_dir an evaluator takes: the latest, or every "
                 "one that it finds")
      ->check(CLI::IsMember({"latest", "every"}))
      ->capture_default_str();
  app.add_option("--evaluate_timeout", f.evaluate_timeout,
                 "Seconds without a new checkpoint after which an evaluator ends, with an error if "
                 "that of --train_steps has not come; 0: it waits")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app.add_flag("--quiet", f.quiet, "No line per training step");
  app.add_flag("--exact_steps", f.exact_steps,
               "Asynchronous workers together take --train_steps steps, not one more: the global "
               "step ends there (synchronous ones always do)");
  app.add_option("--staleness_bound", f.staleness_bound,
                 "No asynchronous update is older than so many updates of other workers: who is "
                 "further ahead waits");
  app.add_option("--num_ps", f.num_ps, "ps tasks of the local cluster")->capture_default_str();
  app.add_option("--num_workers", f.num_workers, "Workers of the local cluster")
      ->capture_default_str();
  app.add_option("--seed", f.seed, "Seed of weights and batches; 0: a new one each run")
      ->capture_default_str();
  app.add_option("--ready_timeout", f.ready_timeout,
                 "Seconds to wait for the other tasks, at the start and when one was lost")
      ->capture_default_str();
  app.add_option("--cluster_id", f.cluster_id,
                 "A name that all tasks of this job have and those of no other")
      ->envname("MILLRACE_CLUSTER_ID");
  app.add_option("--peer_timeout", f.peer_timeout,
                 "Seconds without a sign of life after which another task is lost; 0: never")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  AddCredentialFlags(app, f);
  app.add_flag(
      "--insecure", f.insecure,
      "Serve on addresses that are not loopback without certificates or a token: whoever reaches "
      "them may run any op");
  app.add_option(
      "--http", f.http,
      "host:port where this task serves its pages and /metrics; port 0, which tasks of a "
      "local cluster need: any that is free, and the log says which");
  examples::AddLogFlag(app);
  app.add_option("--progress_fd", f.progress_fd)->group("");  // for the launcher only
}

void ReplaceAll(std::string_view name, const std::string& value, std::string* text) {
  for (std::size_t at = 0; (at = text->find(name, at)) != std::string::npos; at += value.size()) {
    text->replace(at, name.size(), value);
  }
}

Status AddHosts(std::string_view job, std::string_view hosts, ClusterSpec* cluster) {
  std::vector<std::string> addresses;
  for (const std::string_view host : StrSplit(hosts, ',')) addresses.emplace_back(host);
  return cluster->AddJob(job, addresses);
}

Status AtLeast(const char* flag, int64_t value, int64_t least) {
  if (value >= least) return OkStatus();
  return errors::InvalidArgument("--", flag, " must be at least ", least, ", not ", value);
}

}  // namespace

ParsedFlags ParseFlags(int argc, char** argv) {
  ParsedFlags parsed;
  CLI::App app(
      "Trains MNIST digits on parameter servers and workers. Without --job_name it starts its "
      "own cluster of processes on this machine.",
      "mnist_replica");
  app.set_version_flag("--version", "mnist_replica " MILLRACE_VERSION);
  AddTensorFlowFlags(app, parsed.flags);
  AddOwnFlags(app, parsed.flags);
  try {
    app.parse(argc, argv);
    parsed.flags.hosts_given = app.count("--ps_hosts") + app.count("--worker_hosts") > 0;
    // Several asynchronous workers at 0.01 throw a deep network's weights about.
    if (parsed.flags.model == "cnn" && app.count("--learning_rate") == 0) {
      parsed.flags.learning_rate = 0.0003;
    }
  } catch (const CLI::Success& e) {
    parsed.exit_code = app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::cerr << "mnist_replica: " << e.what() << " (see --help)\n";
    parsed.exit_code = 2;
  }
  return parsed;
}

Credentials TaskCredentials(const Flags& flags) {
  Credentials own = flags.credentials;
  for (std::string* file : {&own.tls_cert, &own.tls_key, &own.tls_ca, &own.token_file}) {
    ReplaceAll("{job}", flags.job_name, file);
    ReplaceAll("{task}", StrCat(flags.task_index), file);
  }
  return own;
}

Status CheckFlags(const Flags& f) {
  MR_RETURN_IF_ERROR(AtLeast("train_steps", f.train_steps, 1));
  MR_RETURN_IF_ERROR(AtLeast("batch_size", f.batch_size, 1));
  MR_RETURN_IF_ERROR(AtLeast("hidden_units", f.hidden_units, 1));
  MR_RETURN_IF_ERROR(AtLeast("num_ps", f.num_ps, 1));
  MR_RETURN_IF_ERROR(AtLeast("num_workers", f.num_workers, 1));
  MR_RETURN_IF_ERROR(AtLeast("num_gpus", f.num_gpus, 0));
  MR_RETURN_IF_ERROR(AtLeast("replicas_to_aggregate", f.replicas_to_aggregate, 0));
  MR_RETURN_IF_ERROR(AtLeast("save_steps", f.save_steps, 1));
  MR_RETURN_IF_ERROR(AtLeast("ready_timeout", f.ready_timeout, 1));
  MR_RETURN_IF_ERROR(AtLeast("staleness_bound", f.staleness_bound, -1));
  if (f.staleness_bound >= 0 && f.sync_replicas) {
    return errors::InvalidArgument(
        "--staleness_bound is for asynchronous workers: gradients of --sync_replicas are never "
        "older than their step");
  }
  if (!(f.learning_rate > 0)) {
    return errors::InvalidArgument("--learning_rate must be positive, not ", f.learning_rate);
  }
  if (f.existing_servers && !f.dump_graph.empty()) {
    return errors::InvalidArgument(
        "--dump_graph writes from the servers of this program; with --existing_servers start "
        "those with --dump_dir");
  }
  if (!f.http.empty() && (f.existing_servers || f.job_name == "evaluator")) {
    return errors::InvalidArgument(
        "--http serves pages about the server of a ps or a worker, and this program starts none");
  }
  if (f.is_launcher()) {
    if (!f.http.empty() && !f.http.ends_with(":0")) {
      return errors::InvalidArgument("--http=", f.http,
                                     ": the tasks of a local cluster cannot share a port; with "
                                     "port 0 each takes one that is free");
    }
    if (f.existing_servers) {
      return errors::InvalidArgument(
          "Must specify an explicit `job_name`: --existing_servers "
          "needs --job_name=worker");
    }
    if (f.hosts_given) {
      return errors::InvalidArgument(
          "Must specify an explicit `job_name`: --ps_hosts and --worker_hosts are for one task "
          "(--job_name=ps or worker, --task_index); without them a local cluster is started");
    }
    return OkStatus();
  }
  if (f.job_name == "evaluator") {
    if (f.task_index > 0) {
      return errors::InvalidArgument(
          "--task_index=", f.task_index,
          ": a job has at most one evaluator, task 0, as with TensorFlow; another one would "
          "evaluate the same checkpoints once more");
    }
    if (!f.checkpoint_dir.empty()) return OkStatus();
    return errors::InvalidArgument(
        "an evaluator needs --checkpoint_dir, the folder where the chief saves");
  }
  if (f.job_name != "ps" && f.job_name != "worker") {
    return errors::InvalidArgument("--job_name must be ps, worker or evaluator, not '", f.job_name,
                                   "'");
  }
  if (f.task_index < 0) {
    return errors::InvalidArgument("Must specify an explicit `task_index` (--task_index, from 0)");
  }
  return OkStatus();
}

StatusOr<ClusterSpec> ClusterFromFlags(const Flags& flags) {
  ClusterSpec cluster;
  Status status = AddHosts("ps", flags.ps_hosts, &cluster);
  if (!status.ok()) return WithMessage(status, StrCat("--ps_hosts: ", Message(status)));
  status = AddHosts("worker", flags.worker_hosts, &cluster);
  if (!status.ok()) return WithMessage(status, StrCat("--worker_hosts: ", Message(status)));
  status = cluster.Address(flags.job_name, flags.task_index).status();
  if (!status.ok()) return WithMessage(status, StrCat("--task_index: ", Message(status)));
  return cluster;
}

}  // namespace millrace::mnist
