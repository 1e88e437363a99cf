// SPDX-License-Identifier: Apache-2.0
#include "millrace/status.h"

#include <algorithm>
#include <ostream>
#include <vector>

#include "base/strings.h"

namespace millrace {

struct Status::Payloads {
  std::vector<Payload> all;

  Payload* Find(std::string_view type_url) {
    const auto it = std::find_if(all.begin(), all.end(),
                                 [&](const Payload& p) { return p.type_url == type_url; });
    return it == all.end() ? nullptr : &*it;
  }
};

Status::Rep::Rep(StatusCode c, std::string_view m) : code(c), message(m) {}
Status::Rep::Rep(const Rep& other)
    : code(other.code),
      message(other.message),
      payloads(other.payloads ? std::make_unique<Payloads>(*other.payloads) : nullptr) {}
Status::Rep::~Rep() = default;

Status::Status(StatusCode code, std::string_view message) {
  if (code != StatusCode::kOk) rep_ = new Rep(code, message);
}

Status& Status::operator=(const Status& other) {
  if (rep_ != other.rep_) {
    other.Ref();
    Unref();
    rep_ = other.rep_;
  }
  return *this;
}

Status& Status::operator=(Status&& other) noexcept {
  if (this != &other) {
    Unref();
    rep_ = std::exchange(other.rep_, nullptr);
  }
  return *this;
}

void Status::Drop() {
  if (rep_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete rep_;
}

// The payloads of a status that shares nothing, to be changed.
Status::Payloads& Status::OwnPayloads() {
  if (rep_->refs.load(std::memory_order_acquire) != 1) {
    Rep* const own = new Rep(*rep_);
    Unref();
    rep_ = own;
  }
  if (!rep_->payloads) rep_->payloads = std::make_unique<Payloads>();
  return *rep_->payloads;
}

std::optional<std::string> Status::GetPayload(std::string_view type_url) const {
  if (ok() || !rep_->payloads) return std::nullopt;
  const Payload* const found = rep_->payloads->Find(type_url);
  if (found == nullptr) return std::nullopt;
  return found->value;
}

void Status::SetPayload(std::string_view type_url, std::string_view payload) {
  if (ok()) return;
  Payloads& payloads = OwnPayloads();
  if (Payload* const found = payloads.Find(type_url)) {
    found->value = payload;
  } else {
    payloads.all.push_back({std::string(type_url), std::string(payload)});
  }
}

bool Status::ErasePayload(std::string_view type_url) {
  if (!GetPayload(type_url)) return false;
  std::vector<Payload>& all = OwnPayloads().all;
  std::erase_if(all, [&](const Payload& p) { return p.type_url == type_url; });
  return true;
}

void Status::ForEachPayload(
    const std::function<void(std::string_view, std::string_view)>& visit) const {
  if (ok() || !rep_->payloads) return;
  for (const auto& [type_url, value] : rep_->payloads->all) visit(type_url, value);
}

bool Status::Equal(const Status& a, const Status& b) {
  if (a.code() != b.code() || a.message() != b.message()) return false;
  const auto payloads = [](const Status& status) {
    return status.rep_->payloads ? status.rep_->payloads->all : std::vector<Payload>();
  };
  std::vector<Payload> of_a = payloads(a), of_b = payloads(b);
  return std::is_permutation(of_a.begin(), of_a.end(), of_b.begin(), of_b.end());
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  std::string text = StrCat(StatusCodeName(code()), ": ", message());
  ForEachPayload([&](std::string_view type_url, std::string_view value) {
    const std::string escaped = CEscape(value);
    if (escaped == value) {
      StrAppend(&text, " [", type_url, "='", value, "']");
    } else {
      StrAppend(&text, " [", type_url, ": ", value.size(), " bytes]");
    }
  });
  return text;
}

std::string_view StatusCodeName(StatusCode code) {
  static constexpr std::string_view kNames[] = {"OK",
                                                "CANCELLED",
                                                "UNKNOWN",
                                                "INVALID_ARGUMENT",
                                                "DEADLINE_EXCEEDED",
                                                "NOT_FOUND",
                                                "ALREADY_EXISTS",
                                                "PERMISSION_DENIED",
                                                "RESOURCE_EXHAUSTED",
                                                "FAILED_PRECONDITION",
                                                "ABORTED",
                                                "OUT_OF_RANGE",
                                                "UNIMPLEMENTED",
                                                "INTERNAL",
                                                "UNAVAILABLE",
                                                "DATA_LOSS",
                                                "UNAUTHENTICATED"};
  const auto index = static_cast<std::size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

std::ostream& operator<<(std::ostream& out, StatusCode code) { return out << StatusCodeName(code); }
std::ostream& operator<<(std::ostream& out, const Status& status) {
  return out << status.ToString();
}

}  // namespace millrace
