// SPDX-License-Identifier: Apache-2.0
// Data sets read by programs.
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "millrace/data.h"

namespace millrace {

struct DatasetReader::Impl {
  Graph graph;
  DatasetIterator iterator;
  std::optional<Session> session;
  Callable next;
  bool ended = false;
};

DatasetReader::DatasetReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DatasetReader::DatasetReader(DatasetReader&&) noexcept = default;
DatasetReader& DatasetReader::operator=(DatasetReader&&) noexcept = default;
DatasetReader::~DatasetReader() = default;

StatusOr<DatasetReader> DatasetReader::Create(const Dataset& dataset,
                                              const SessionOptions& options) {
  MR_RETURN_IF_ERROR(dataset.status());
  auto impl = std::make_unique<Impl>();
  impl->iterator = MakeIterator(impl->graph.root(), dataset);
  MR_RETURN_IF_ERROR(impl->graph.status());
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(impl->graph, options));
  impl->session.emplace(std::move(session));
  MR_ASSIGN_OR_RETURN(impl->next, impl->session->MakeCallable({}, impl->iterator.next));
  DatasetReader reader(std::move(impl));
  MR_RETURN_IF_ERROR(reader.Restart());
  return reader;
}

StatusOr<bool> DatasetReader::Next(std::vector<Tensor>* element) {
  if (impl_ == nullptr) return errors::FailedPrecondition("this reader was moved from");
  if (impl_->ended) return false;
  const Status status = impl_->next.Run({}, element);
  if (status.ok()) return true;
  if (!errors::IsOutOfRange(status)) return status;
  impl_->ended = true;
  element->clear();
  return false;
}

Status DatasetReader::Restart() {
  if (impl_ == nullptr) return errors::FailedPrecondition("this reader was moved from");
  impl_->ended = false;
  return impl_->session->RunTargets({impl_->iterator.initializer});
}

StatusOr<std::vector<std::vector<Tensor>>> DatasetReader::ReadAll(int64_t limit) {
  std::vector<std::vector<Tensor>> all;
  for (;;) {
    std::vector<Tensor> element;
    MR_ASSIGN_OR_RETURN(const bool more, Next(&element));
    if (!more) return all;
    if (static_cast<int64_t>(all.size()) == limit) {
      return errors::ResourceExhausted("the data set has more than ", limit,
                                       " elements; Take() limits one without end");
    }
    all.push_back(std::move(element));
  }
}

}  // namespace millrace
