#include "master/step_errors.h"

#include <algorithm>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "session/worker_interface.h"

namespace millrace {
namespace {

// Long errors arrive whole; what tasks say of each other has an end all the same.
constexpr size_t kMaxText = size_t{16} << 20;

std::string Located(const TaskError& error) {
  return StrCat("From ", error.task, ":\n", Message(error.status));
}

// " [[{{node n}}]]" of an error that names a node, "" otherwise.
std::string NodeOf(const Status& status) {
  const std::string_view text = Message(status);
  const size_t begin = text.find("[[{{node ");
  if (begin == std::string_view::npos) return "";
  const size_t end = text.find("}}]]", begin);
  if (end == std::string_view::npos) return "";
  return StrCat(" ", text.substr(begin, end + 4 - begin));
}

Status Finish(const Status& status, std::string text) {
  if (text.size() > kMaxText) {
    text.resize(kMaxText);
    text.append("...");
  }
  return WithMessage(status, text);
}

}  // namespace

Status SummarizeErrors(std::span<const TaskError> errors) {
  std::vector<const TaskError*> roots;
  for (const TaskError& error : errors) {
    if (IsDerived(error.status)) continue;
    const bool repeated = std::any_of(roots.begin(), roots.end(), [&](const TaskError* seen) {
      // A task that cannot be reached is noticed by its master and by its peers.
      return seen->status.message() == error.status.message() ||
             (errors::IsUnavailable(seen->status) && errors::IsUnavailable(error.status));
    });
    if (!repeated) roots.push_back(&error);
  }
  if (roots.empty()) {
    return errors.empty() ? OkStatus() : Finish(errors.front().status, Located(errors.front()));
  }
  if (roots.size() == 1) return Finish(roots.front()->status, Located(*roots.front()));
  std::string text = StrCat(roots.size(), " root error(s) found.");
  for (const TaskError* root : roots) {
    StrAppend(&text, "\n=====================\n", CodeName(root->status.code()), ": ",
              Located(*root));
  }
  return Finish(roots.front()->status, std::move(text));
}

Status SummarizeTimeout(std::string_view reason, std::span<const TaskError> errors,
                        std::span<const TaskWaits> waits) {
  std::vector<std::string> causes, others;
  for (const TaskWaits& part : waits) {
    if (part.text.empty()) continue;
    auto& list = part.text.starts_with(kWaitsForTasks) ? others : causes;
    // That a call was cancelled says nothing beside what was waited for, but in which node it was.
    std::string node;
    for (const TaskError& error : errors) {
      if (error.task == part.task && IsDerived(error.status)) node = NodeOf(error.status);
    }
    list.push_back(StrCat("\n  ", part.task, ": ", part.text, node));
  }
  for (const TaskError& error : errors) {
    const bool said = std::any_of(waits.begin(), waits.end(), [&](const TaskWaits& part) {
      return part.task == error.task && !part.text.empty();
    });
    if (said && IsDerived(error.status)) continue;
    others.push_back(StrCat("\n  ", error.task, ": ", Message(error.status)));
  }
  std::string text(reason);
  if (!causes.empty() || !others.empty()) {
    StrAppend(&text, "; it was waiting for:", StrJoin(causes, ""), StrJoin(others, ""));
  }
  return Finish(errors::DeadlineExceeded(""), std::move(text));
}

}  // namespace millrace
