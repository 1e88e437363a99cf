// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/shell_pages.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "millrace/version.h"

namespace millrace {
namespace {

// The subcommands below `app`, those without a name (groups of flags) left out.
std::vector<const CLI::App*> Subcommands(const CLI::App& app) {
  std::vector<const CLI::App*> named;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_name().empty()) named.push_back(sub);
  }
  return named;
}

// "--job_name", "-h": all names of all flags.
std::vector<std::string> FlagNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

// Calls visit(path, command) for `app` and all commands below it: "millrace", "millrace model
// show".
template <typename Visit>
void ForEachCommand(const CLI::App& app, const std::string& path, const Visit& visit) {
  visit(path, app);
  for (const CLI::App* sub : Subcommands(app)) {
    ForEachCommand(*sub, StrCat(path, " ", sub->get_name()), visit);
  }
}

std::vector<std::string> WordsOf(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* sub : Subcommands(app)) words.push_back(sub->get_name());
  for (std::string& flag : FlagNames(app)) words.push_back(std::move(flag));
  return words;
}

// For text between single quotes, in brackets of zsh's _arguments.
std::string ZshText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == '[' || c == ']' || c == ':' || c == '\\') {
      StrAppend(&out, "\\", std::string_view(&c, 1));
    } else {
      out += c == '\n' ? ' ' : c;
    }
  }
  return out;
}

// Text of a line in roff: no line may begin with a dot or a quote by accident.
std::string RoffText(std::string_view text) {
  std::string out;
  bool at_line_start = true;
  for (const char c : text) {
    if (at_line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    at_line_start = c == '\n';
  }
  return out;
}

std::string ZshArguments(const CLI::App& app) {
  std::string lines;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      StrAppend(&lines, "        '--", name, "[", ZshText(option->get_description()), "]",
                option->get_expected_max() > 0 ? ":value:_files'" : "'", " \\\n");
    }
  }
  return lines;
}

int Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::string cases;
  ForEachCommand(app, app.get_name(), [&](const std::string& path, const CLI::App& command) {
    StrAppend(&cases, "    '", path, "') words='", StrJoin(WordsOf(command), " "), "' ;;\n");
  });
  return StrCat("# Completion of ", app.get_name(), " for bash; written by `", app.get_name(),
                " completion bash`.\n_", app.get_name(),
                "() {\n"
                "  local path=$1 words= word i deeper\n"
                "  _millrace_words \"$path\"\n"
                "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
                "    word=${COMP_WORDS[i]}\n"
                "    deeper=\"$path $word\"\n"
                "    if [[ $word != -* && \" $words \" == *\" $word \"* ]]; then\n"
                "      path=$deeper\n"
                "      _millrace_words \"$path\"\n"
                "    fi\n"
                "  done\n"
                "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$2\")\n"
                "}\n"
                "_millrace_words() {\n"
                "  words=\n"
                "  case $1 in\n",
                cases, "  esac\n}\ncomplete -o default -F _", app.get_name(), " ", app.get_name(),
                "\n");
}

std::string ZshCompletion(const CLI::App& app) {
  std::string commands, cases;
  for (const CLI::App* sub : Subcommands(app)) {
    StrAppend(&commands, "    '", sub->get_name(), ":", ZshText(sub->get_description()), "'\n");
    std::string below;
    for (const CLI::App* deeper : Subcommands(*sub)) {
      StrAppend(&below, below.empty() ? "" : " ", deeper->get_name());
      StrAppend(&cases, "    '", sub->get_name(), " ", deeper->get_name(),
                "')\n      _arguments \\\n", ZshArguments(*deeper), "        '*:file:_files' ;;\n");
    }
    StrAppend(&cases, "    '", sub->get_name(), "'*)\n      _arguments \\\n", ZshArguments(*sub),
              below.empty() ? "" : StrCat("        '2:command:(", below, ")' \\\n"),
              "        '*:file:_files' ;;\n");
  }
  return StrCat("#compdef ", app.get_name(), "\n# Written by `", app.get_name(),
                " completion zsh`.\nlocal -a commands\ncommands=(\n", commands,
                ")\nif ((CURRENT == 2)); then\n  _describe command commands\nelse\n"
                "  case \"$words[2] $words[3]\" in\n",
                cases, "  esac\nfi\n");
}

std::string ManPage(const CLI::App& app, const std::string& version) {
  std::string page = StrCat(".TH MILLRACE 1 \"\" \"millrace ", version, "\"\n.SH NAME\n",
                            app.get_name(), " \\- ", RoffText(app.get_description()),
                            "\n.SH SYNOPSIS\n.B ", app.get_name(), "\nCOMMAND [FLAG...]\n");
  ForEachCommand(app, app.get_name(), [&](const std::string& path, const CLI::App& command) {
    StrAppend(&page, ".SH \"", RoffText(path), "\"\n",
              &command == &app ? "" : StrCat(RoffText(command.get_description()), "\n"));
    for (const CLI::Option* option : command.get_options()) {
      // "--gpus INT" or, of what is given by its place, "FILE".
      StrAppend(&page, ".TP\n.B ", RoffText(option->get_name(/*positional=*/false, true)),
                option->get_expected_max() > 0 ? " VALUE" : "", "\n",
                RoffText(option->get_description()), "\n");
    }
  });
  return page;
}

void AddShellPagesCommands(CLI::App* app, std::function<int()>* chosen) {
  CLI::App* const completion = app->add_subcommand(
      "completion", "print what completes this command in a shell: bash or zsh");
  auto shell = std::make_shared<std::string>();
  completion->add_option("SHELL", *shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  completion->callback([app, chosen, shell] {
    *chosen = [app, shell] {
      return Print(*shell == "bash" ? BashCompletion(*app) : ZshCompletion(*app));
    };
  });
  app->add_subcommand("man", "print the manual page, for man -l or a file millrace.1")
      ->callback(
          [app, chosen] { *chosen = [app] { return Print(ManPage(*app, MILLRACE_VERSION)); }; });
}

}  // namespace millrace
