// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/run_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "tools/run/job.h"

namespace millrace {
namespace {

constexpr int kMostTasks = 256;

struct RunFlags {
  int chiefs = 0, workers = 0, ps = 0, evaluators = 0;
  std::vector<std::string> job_max_restarts;
  int backoff_ms = 1000, steady_ms = 60'000, grace_ms = 5000;
  // With {job} and {task}.
  std::string tls_cert, tls_key, tls_ca, token_file;
  run::JobOptions job;
};

int Colour(std::string_view task) {
  if (task == "run") return 35;
  if (task.starts_with("ps/")) return 33;
  return 34 + static_cast<int>(std::hash<std::string_view>()(task) % 3);
}

// "job=N", as --job_max_restarts takes it.
bool AddJobLimit(const std::string& text, std::map<std::string, int>* limits) {
  const size_t equals = text.find('=');
  int64_t count = 0;
  if (equals == std::string::npos || equals == 0 ||
      !ParseInt64(std::string_view(text).substr(equals + 1), &count) || count < 0 ||
      count > 1'000'000) {
    std::fprintf(stderr, "millrace run: --job_max_restarts is '%s', not a job and a number\n",
                 text.c_str());
    return false;
  }
  (*limits)[text.substr(0, equals)] = static_cast<int>(count);
  return true;
}

int Run(RunFlags* flags, std::vector<std::string> command) {
  if (command.empty()) {
    std::fprintf(stderr, "millrace run: name the program to run after the options\n");
    return 2;
  }
  const std::pair<const char*, int> counts[] = {{"ps", flags->ps},
                                                {"chief", flags->chiefs},
                                                {"worker", flags->workers},
                                                {"evaluator", flags->evaluators}};
  for (const auto& [job, count] : counts) {
    if (count > 0) flags->job.jobs.emplace_back(job, count);
  }
  if (flags->job.jobs.empty()) flags->job.jobs.emplace_back("worker", 1);
  for (const std::string& text : flags->job_max_restarts) {
    if (!AddJobLimit(text, &flags->job.job_max_restarts)) return 2;
  }
  for (const auto& [job, limit] : flags->job.job_max_restarts) {
    const bool known = std::any_of(flags->job.jobs.begin(), flags->job.jobs.end(),
                                   [&](const auto& entry) { return entry.first == job; });
    if (known) continue;
    std::fprintf(stderr, "millrace run: --job_max_restarts names job '%s', which has no tasks\n",
                 job.c_str());
    return 2;
  }
  for (const auto& [name, value] : {std::pair("MILLRACE_TLS_CERT", &flags->tls_cert),
                                    std::pair("MILLRACE_TLS_KEY", &flags->tls_key),
                                    std::pair("MILLRACE_TLS_CA", &flags->tls_ca),
                                    std::pair("MILLRACE_TOKEN_FILE", &flags->token_file)}) {
    if (!value->empty()) flags->job.environment[name] = *value;
  }
  flags->job.command = std::move(command);
  flags->job.backoff = std::chrono::milliseconds(flags->backoff_ms);
  flags->job.steady = std::chrono::milliseconds(flags->steady_ms);
  flags->job.grace = std::chrono::milliseconds(flags->grace_ms);
  const bool colours = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  flags->job.print = [colours](const std::string& task, std::string_view line) {
    if (line.starts_with("{\"time\":")) {  // --log_format=json: it names its task
      std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
    } else if (colours) {
      std::printf("\033[%dm%-9s|\033[0m %.*s\n", Colour(task), task.c_str(),
                  static_cast<int>(line.size()), line.data());
    } else {
      std::printf("%-9s| %.*s\n", task.c_str(), static_cast<int>(line.size()), line.data());
    }
    std::fflush(stdout);
  };
  return run::RunJob(flags->job);
}

}  // namespace

void AddRunCommand(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* const command = app->add_subcommand(
      "run", "start a program as the tasks of a cluster on this machine (TF_CONFIG says which)");
  const CLI::Range count(0, kMostTasks);
  command->add_option("--workers", flags->workers, "tasks of job worker")->check(count);
  command->add_option("--ps", flags->ps, "tasks of job ps")->check(count);
  command->add_option("--chief", flags->chiefs, "tasks of job chief, 0 or 1")
      ->check(CLI::Range(0, 1));
  command->add_option("--evaluator", flags->evaluators, "tasks of job evaluator, 0 or 1")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return text == "0" || text == "1" ? std::string()
                                              : "a job has at most one evaluator, as with "
                                                "TensorFlow, not " +
                                                    text;
          },
          "0 or 1"));
  command
      ->add_option("--max_restarts", flags->job.max_restarts,
                   "how often a task that fails is started again (default 0)")
      ->check(CLI::Range(0, 1'000'000));
  command
      ->add_option("--job_max_restarts", flags->job_max_restarts,
                   "the same for the tasks of one job: ps=3 (may be repeated)")
      ->allow_extra_args(false);
  command
      ->add_option("--backoff_ms", flags->backoff_ms,
                   "before the first restart; twice as long every time, at most 30 s")
      ->check(CLI::Range(0, 3'600'000));
  command
      ->add_option("--steady_ms", flags->steady_ms,
                   "a task that has run so long is started again after --backoff_ms, as if it had "
                   "never failed (default 60000)")
      ->check(CLI::Range(0, 3'600'000));
  command
      ->add_option("--grace_ms", flags->grace_ms, "from SIGTERM to SIGKILL when the job is stopped")
      ->check(CLI::Range(0, 3'600'000));
  command->add_option("--tls_cert", flags->tls_cert,
                      "PEM file with each task's certificate: certs/{job}-{task}.pem");
  command->add_option("--tls_key", flags->tls_key, "its key: certs/{job}-{task}.key");
  command->add_option("--tls_ca", flags->tls_ca, "authorities that are believed: certs/ca.pem");
  command->add_option("--token_file", flags->token_file,
                      "file with a secret that all tasks share (docs/security.md)");
  command->footer(
      "The program follows the options, its own arguments follow it. In them {job}, {task},\n"
      "{address} and {ps_hosts}, {worker_hosts}, ... stand for what they say.\n"
      "millrace run --ps 1 --workers 2 --max_restarts 3 ./train --steps=1000");
  command->prefix_command();
  command->callback([flags, command, chosen] {
    *chosen = [flags, command] { return Run(flags.get(), command->remaining()); };
  });
}

void DropRunSeparator(std::vector<char*>* argv) {
  if (argv->size() < 3 || std::string_view((*argv)[1]) != "run") return;
  for (size_t i = 2; i < argv->size(); ++i) {
    const std::string_view argument = (*argv)[i];
    if (argument == "--") {
      argv->erase(argv->begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
    if (!argument.starts_with("--")) return;  // the program
    // Every option has a value.
    if (argument.find('=') == std::string_view::npos) ++i;
  }
}

}  // namespace millrace
