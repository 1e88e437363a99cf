// SPDX-License-Identifier: Apache-2.0
#include "ranks/exchange.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/preemption/on_preemption.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/preemption.h"
#include "millrace/variables.h"

namespace millrace {
namespace {

constexpr DataType kReduced[] = {kFloat, kDouble, kHalf, kBfloat16, kInt32, kInt64};
// Instance keys of a group: of calls, of bytes, and of each reduction and type.
constexpr int64_t kFirstReduction = 2;
constexpr std::chrono::milliseconds kPatienceWithOneself{1000};

std::vector<std::string> NamesOf(std::span<const GroupMember> members) {
  std::vector<std::string> names;
  for (const GroupMember& member : members) names.push_back(member.name);
  return names;
}

}  // namespace

Exchange::Exchange(const Options& options)
    : options_(options),
      device_(StrCat(options.members[static_cast<std::size_t>(options.group.rank)].task,
                     "/device:CPU:0")),
      variable_(StrCat("ranks/", options.group.key, "/call")),
      nodes_(options.group, {.implementation = options.communication.implementation}) {}

StatusOr<std::unique_ptr<Exchange>> Exchange::Open(const Options& options, Milliseconds limit) {
  std::unique_ptr<Exchange> made(new Exchange(options));
  MutexLock lock(&made->mu_);
  const Scope scope = made->scope();
  made->calls_ = made->GatherNode();
  made->bytes_ = made->GatherNode();
  const Variable variable =
      MakeVariable(scope, made->variable_, Constant(scope, Tensor::String("")),
                   {.trainable = false, .use_resource = true});
  made->text_ = Placeholder(scope, kString, Shape());
  made->say_ = Assign(scope, variable, made->text_);
  MR_RETURN_IF_ERROR(made->graph_.status());
  SessionOptions session;
  session.target = options.target;
  session.device_filters = {options.members[static_cast<std::size_t>(options.group.rank)].task};
  session.start_timeout = limit;
  MR_ASSIGN_OR_RETURN(made->session_, Session::Create(made->graph_, session));
  return made;
}

Exchange::Node Exchange::GatherNode() {
  const Scope s = scope();
  Node node;
  node.in = Placeholder(s, kInt32, PartialShape({-1}));
  node.out = nodes_.GatherEqual(s, node.in, std::source_location::current());
  return node;
}

StatusOr<Exchange::Node> Exchange::ReduceNode(ReduceOp op, DataType dtype) {
  const auto type = std::find(std::begin(kReduced), std::end(kReduced), dtype);
  if (type == std::end(kReduced)) {
    return errors::InvalidArgument(DataTypeName(dtype), " cannot be reduced");
  }
  const auto [it, is_new] = reductions_.try_emplace({op, dtype});
  if (!is_new) return it->second;
  const Scope s = scope();
  it->second.in = Placeholder(s, dtype, PartialShape({-1}));
  const int64_t key = options_.group.first_instance_key + kFirstReduction +
                      static_cast<int64_t>(op) * static_cast<int64_t>(std::size(kReduced)) +
                      (type - std::begin(kReduced));
  it->second.out = nodes_.ReduceOne(s, op, it->second.in, std::source_location::current(), key);
  MR_RETURN_IF_ERROR(graph_.status());
  return it->second;
}

StatusOr<Tensor> Exchange::Run(const Node& node, const Tensor& in, Milliseconds limit,
                               std::span<const Feed> feeds, std::span<const Operation> targets) {
  std::vector<Feed> all = {{node.in, in}};
  all.insert(all.end(), feeds.begin(), feeds.end());
  StatusOr<std::vector<Tensor>> out =
      session_->Run(all, std::span(&node.out, 1), targets, {.timeout = limit});
  if (!out.ok()) {
    return AddWhereabouts(out.status(), options_.members, options_.group.rank, variable_, number_);
  }
  return (*out)[0];
}

StatusOr<std::vector<RankCall>> Exchange::Agree(RankCall call, Milliseconds limit) {
  MutexLock lock(&mu_);
  call.number = ++number_;
  const Feed said = {text_, Tensor::String(StrCat(number_, " ", call.text))};
  const StatusOr<Tensor> all =
      Run(calls_, EncodeCall(call), limit, std::span(&said, 1), std::span(&say_, 1));
  if (!all.ok())
    return Annotate(all.status(), StrCat("; this rank is in call ", number_, ", ", call.text));
  MR_ASSIGN_OR_RETURN(const std::span<const int32_t> words, all->TryFlat<int32_t>());
  if (words.size() != options_.members.size() * kCallWords) {
    return errors::Internal("the calls of ", options_.members.size(), " ranks have ", words.size(),
                            " words");
  }
  std::vector<RankCall> calls;
  for (std::size_t i = 0; i < options_.members.size(); ++i) {
    const auto place = static_cast<std::size_t>(options_.group.place(static_cast<int>(i)));
    MR_ASSIGN_OR_RETURN(RankCall one, DecodeCall(words.subspan(place * kCallWords, kCallWords)));
    calls.push_back(std::move(one));
  }
  MR_RETURN_IF_ERROR(CompareCalls(calls, NamesOf(options_.members)));
  return calls;
}

// While a call is under way, which it ends.
void Exchange::Cancel() ABSL_NO_THREAD_SAFETY_ANALYSIS { session_->Close().IgnoreError(); }

StatusOr<std::vector<RankCall>> Exchange::Meet(RankCall call, Milliseconds limit) {
  std::atomic<bool> is_cancelled{false};
  std::optional<OnPreemption> end(std::in_place, [&] {
    is_cancelled = true;
    Cancel();
  });
  StatusOr<std::vector<RankCall>> calls = Agree(std::move(call), limit);
  end.reset();
  if (!is_cancelled) return calls;
  return Annotate(CheckPreemption(), StrCat("; ranks waited for each other: ",
                                            calls.ok() ? "all had come" : Message(calls.status())));
}

void Exchange::Leave(std::string_view call) {
  MutexLock lock(&mu_);
  const Feed said = {text_, Tensor::String(StrCat("0 ", call))};
  // Only for others to read.
  session_->Run(std::span(&said, 1), {}, std::span(&say_, 1), {.timeout = kPatienceWithOneself})
      .status()
      .IgnoreError();
}

StatusOr<std::vector<std::string>> Exchange::Gather(std::string_view bytes,
                                                    std::span<const RankCall> calls,
                                                    Milliseconds limit) {
  int64_t most = 0;
  for (const RankCall& call : calls) most = std::max(most, call.payload_bytes);
  std::vector<std::string> parts(calls.size());
  if (most == 0) return parts;
  // Everybody sends as much as the one who has the most.
  const int64_t words = most / 4 + (most % 4 != 0);
  MR_ASSIGN_OR_RETURN(Tensor own, Tensor::Allocate(kInt32, Shape({words})));
  std::memset(own.raw_data(), 0, own.num_bytes());
  if (!bytes.empty()) std::memcpy(own.raw_data(), bytes.data(), bytes.size());
  MutexLock lock(&mu_);
  MR_ASSIGN_OR_RETURN(const Tensor all, Run(bytes_, own, limit));
  if (all.num_elements() != words * static_cast<int64_t>(calls.size())) {
    return errors::Internal("what ", calls.size(), " ranks sent has ", all.num_elements(),
                            " words, not ", words, " of each");
  }
  const auto* const from = static_cast<const char*>(all.raw_data());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto place = static_cast<std::size_t>(options_.group.place(static_cast<int>(i)));
    parts[i].assign(from + place * static_cast<std::size_t>(words) * 4,
                    static_cast<std::size_t>(calls[i].payload_bytes));
  }
  return parts;
}

StatusOr<Tensor> Exchange::Reduce(ReduceOp op, const Tensor& vector, Milliseconds limit) {
  MutexLock lock(&mu_);
  MR_ASSIGN_OR_RETURN(const Node node, ReduceNode(op, vector.dtype()));
  return Run(node, vector, limit);
}

Status Exchange::Explain(const Status& error) const {
  int64_t number;
  {
    MutexLock lock(&mu_);
    number = number_;
  }
  return AddWhereabouts(error, options_.members, options_.group.rank, variable_, number);
}

}  // namespace millrace
