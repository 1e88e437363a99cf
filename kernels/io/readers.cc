// SPDX-License-Identifier: Apache-2.0
// Readers: they take names of files from a queue and give their records one by one.
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/input_stream.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data_flow/queue.h"
#include "kernels/host_kernels.h"

namespace millrace {
namespace {

// The records of one file.
class WorkUnit {
 public:
  virtual ~WorkUnit() = default;
  // OutOfRange at the end.
  virtual Status Read(std::string* key, std::string* value) = 0;
};
using OpenWork = std::function<StatusOr<std::unique_ptr<WorkUnit>>(const std::string& name)>;

// Thread-safe; waits for names without holding a thread. Requests are served one after another.
class Reader : public Resource {
 public:
  struct Record {
    std::string key, value;
  };
  using Done = std::function<void(Status, std::vector<Record>)>;

  Reader(std::string name, OpenWork open) : name_(std::move(name)), open_(std::move(open)) {}

  // Up to `count` records, at least one; a file's end closes a batch that has some. The errors
  // of `queue` come through: OutOfRange once it is closed and empty.
  void Read(RefPtr<Queue> queue, int64_t count, CancellationManager* cancellation, Done done) {
    Status refused;
    {
      MutexLock lock(&mu_);
      const int64_t id = next_id_++;
      Request request{id, std::move(queue), count, cancellation, -1, std::move(done)};
      if (busy_ && cancellation != nullptr) {
        request.token = cancellation->NextToken();
        if (!cancellation->RegisterCallback(
                request.token, [self = RefPtr<Reader>::Share(this), id] { self->Cancel(id); })) {
          refused = errors::Cancelled("the step was cancelled");
        }
      }
      if (!refused.ok()) {
        done = std::move(request.done);
      } else {
        waiting_.push_back(std::move(request));
        if (busy_) return;
        busy_ = true;
      }
    }
    if (!refused.ok()) return done(std::move(refused), {});
    Serve();
  }

  void Reset() {
    MutexLock lock(&mu_);
    reset_ = true;
    produced_ = completed_ = 0;
  }
  int64_t produced() const {
    MutexLock lock(&mu_);
    return produced_;
  }
  int64_t completed() const {
    MutexLock lock(&mu_);
    return completed_;
  }
  std::string DebugString() const override { return StrCat("Reader ", name_); }

 private:
  struct Request {
    int64_t id;
    RefPtr<Queue> queue;
    int64_t count;
    CancellationManager* cancellation;
    CancellationManager::Token token;
    Done done;
  };
  // What became of asking the queue for a name: the answer may come within the call.
  enum class Asked { kAsking, kAnswered, kWaiting };

  // One waiting request at a time is at work: by whoever made busy_ true, or by the queue's
  // callback. Only that thread touches work_.
  void Serve() {
    for (;;) {
      if (!current_ && !Next()) return;
      std::vector<Record> records;
      Status status = Fill(&records);
      if (status.ok() && records.empty()) {
        if (!AskForName()) return;  // goes on in the callback
        continue;
      }
      Finish(std::move(status), std::move(records));
    }
  }

  bool Next() {
    MutexLock lock(&mu_);
    if (waiting_.empty()) {
      busy_ = false;
      return false;
    }
    current_ = std::move(waiting_.front());
    waiting_.pop_front();
    if (current_->token >= 0) current_->cancellation->TryDeregisterCallback(current_->token);
    if (reset_) {
      work_.reset();
      reset_ = false;
    }
    return true;
  }

  // Records of the file that is open; none if it is at its end.
  Status Fill(std::vector<Record>* records) {
    while (work_ && static_cast<int64_t>(records->size()) < current_->count) {
      Record record;
      const Status status = work_->Read(&record.key, &record.value);
      if (errors::IsOutOfRange(status)) {
        work_.reset();
        MutexLock lock(&mu_);
        ++completed_;
        break;
      }
      MR_RETURN_IF_ERROR(status);
      records->push_back(std::move(record));
    }
    MutexLock lock(&mu_);
    produced_ += static_cast<int64_t>(records->size());
    return OkStatus();
  }

  // False if the answer is still to come.
  bool AskForName() {
    {
      MutexLock lock(&mu_);
      asked_ = Asked::kAsking;
    }
    Queue* queue = current_->queue.get();
    queue->Dequeue(
        1, false, current_->cancellation,
        [self = RefPtr<Reader>::Share(this)](Status status, std::vector<Queue::Element> elements) {
          self->Open(std::move(status), elements);
          bool resume;
          {
            MutexLock lock(&self->mu_);
            resume = self->asked_ == Asked::kWaiting;
            self->asked_ = Asked::kAnswered;
          }
          if (resume) self->Serve();
        });
    MutexLock lock(&mu_);
    if (asked_ == Asked::kAnswered) return true;
    asked_ = Asked::kWaiting;
    return false;
  }

  void Open(Status status, const std::vector<Queue::Element>& elements) {
    if (status.ok()) {
      const Tensor* name = elements[0].empty() ? nullptr : &elements[0][0];
      if (name == nullptr || name->dtype() != kString || name->num_elements() != 1) {
        status = errors::InvalidArgument("the queue of a reader must hold single strings");
      } else {
        auto work = open_(name->scalar<std::string>());
        if (work.ok()) {
          work_ = *std::move(work);
        } else {
          status = work.status();
        }
      }
    }
    if (!status.ok()) Finish(std::move(status), {});
  }

  void Finish(Status status, std::vector<Record> records) {
    Request request = *std::move(current_);
    current_.reset();
    request.done(std::move(status), std::move(records));
  }

  void Cancel(int64_t id) {
    Done done;
    {
      MutexLock lock(&mu_);
      for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
        if (it->id != id) continue;
        done = std::move(it->done);
        waiting_.erase(it);
        break;
      }
    }
    if (done) done(errors::Cancelled("the step was cancelled while it waited for a reader"), {});
  }

  const std::string name_;
  const OpenWork open_;
  std::unique_ptr<WorkUnit> work_;
  std::optional<Request> current_;
  mutable Mutex mu_;
  bool busy_ ABSL_GUARDED_BY(mu_) = false, reset_ ABSL_GUARDED_BY(mu_) = false;
  Asked asked_ ABSL_GUARDED_BY(mu_) = Asked::kAnswered;
  int64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t produced_ ABSL_GUARDED_BY(mu_) = 0, completed_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Request> waiting_ ABSL_GUARDED_BY(mu_);
};

// --- Kinds of files ---------------------------------------------------------------------------

class RecordUnit : public WorkUnit {
 public:
  RecordUnit(const std::string& name, std::unique_ptr<InputStream> stream)
      : name_(name), reader_(std::move(stream), name) {}
  Status Read(std::string* key, std::string* value) override {
    *key = StrCat(name_, ":", reader_.position());
    return reader_.ReadRecord(value);
  }

 private:
  const std::string name_;
  RecordReader reader_;
};

class LineUnit : public WorkUnit {
 public:
  LineUnit(const std::string& name, std::unique_ptr<InputStream> stream, int64_t skip)
      : name_(name), input_(std::move(stream)), skip_(skip) {}
  Status Read(std::string* key, std::string* value) override {
    for (; skip_ > 0; --skip_, ++line_) MR_RETURN_IF_ERROR(input_.ReadLine(value));
    MR_RETURN_IF_ERROR(input_.ReadLine(value));
    *key = StrCat(name_, ":", ++line_);
    return OkStatus();
  }

 private:
  const std::string name_;
  BufferedInput input_;
  int64_t skip_, line_ = 0;
};

class FixedLengthUnit : public WorkUnit {
 public:
  struct Layout {
    int64_t header = 0, record = 0, footer = 0, hop = 0;
  };
  // `end`: where the records end in the unpacked content.
  FixedLengthUnit(const std::string& name, std::string content, const Layout& layout)
      : name_(name), content_(std::move(content)), layout_(layout), at_(layout.header) {}
  Status Read(std::string* key, std::string* value) override {
    const auto end = static_cast<int64_t>(content_.size()) - layout_.footer;
    if (at_ + layout_.record > end) return errors::OutOfRange("end of file");
    *key = StrCat(name_, ":", number_++);
    value->assign(content_, at_, layout_.record);
    at_ += layout_.hop > 0 ? layout_.hop : layout_.record;
    return OkStatus();
  }

 private:
  const std::string name_, content_;
  const Layout layout_;
  int64_t at_, number_ = 0;
};

// The whole content, or the name itself, once.
class OnceUnit : public WorkUnit {
 public:
  OnceUnit(std::string key, std::string value) : key_(std::move(key)), value_(std::move(value)) {}
  Status Read(std::string* key, std::string* value) override {
    if (given_) return errors::OutOfRange("end of file");
    given_ = true;
    *key = key_;
    *value = value_;
    return OkStatus();
  }

 private:
  const std::string key_, value_;
  bool given_ = false;
};

using Opened = StatusOr<std::unique_ptr<WorkUnit>>;

OpenWork OpenFor(KernelConstruction& c) {
  std::string_view op = c.def().name();
  if (op.ends_with("V2")) op.remove_suffix(2);
  if (op == "TFRecordReader") {
    const std::string compression = c.attr<std::string>("compression_type");
    if (Status s = CheckCompression(compression); !s.ok()) c.SetError(std::move(s));
    return [compression](const std::string& name) -> Opened {
      MR_ASSIGN_OR_RETURN(auto stream, OpenInputStream(PosixFileSystem(), name, compression));
      return std::make_unique<RecordUnit>(name, std::move(stream));
    };
  }
  if (op == "TextLineReader") {
    const int64_t skip = c.attr<int64_t>("skip_header_lines");
    if (skip < 0) c.SetError(errors::InvalidArgument("skip_header_lines must be >= 0 not ", skip));
    return [skip](const std::string& name) -> Opened {
      MR_ASSIGN_OR_RETURN(auto stream, OpenInputStream(PosixFileSystem(), name, ""));
      return std::make_unique<LineUnit>(name, std::move(stream), skip);
    };
  }
  if (op == "FixedLengthRecordReader") {
    const FixedLengthUnit::Layout layout{
        c.attr<int64_t>("header_bytes"), c.attr<int64_t>("record_bytes"),
        c.attr<int64_t>("footer_bytes"), c.attr<int64_t>("hop_bytes")};
    const std::string encoding = c.attrs().GetOr<std::string>("encoding", "");
    if (layout.header < 0 || layout.record <= 0 || layout.footer < 0 || layout.hop < 0) {
      c.SetError(errors::InvalidArgument("record_bytes must be > 0 and the other sizes >= 0"));
    }
    if (Status s = CheckCompression(encoding); !s.ok()) c.SetError(std::move(s));
    return [layout, encoding](const std::string& name) -> Opened {
      MR_ASSIGN_OR_RETURN(auto stream, OpenInputStream(PosixFileSystem(), name, encoding));
      BufferedInput input(std::move(stream));
      std::string content;
      MR_RETURN_IF_ERROR(input.ReadUpTo(SIZE_MAX, &content));
      return std::make_unique<FixedLengthUnit>(name, std::move(content), layout);
    };
  }
  const bool whole = op == "WholeFileReader";
  return [whole](const std::string& name) -> Opened {
    if (!whole) return std::make_unique<OnceUnit>(name, name);
    MR_ASSIGN_OR_RETURN(std::string content, PosixFileSystem()->ReadFile(name));
    return std::make_unique<OnceUnit>(name, std::move(content));
  };
}

class ReaderKernel : public HandleKernel<Reader> {
 public:
  explicit ReaderKernel(KernelConstruction& c) : HandleKernel<Reader>(c), open_(OpenFor(c)) {}

 protected:
  StatusOr<RefPtr<Reader>> Make() override { return MakeRef<Reader>(resource_name(), open_); }
  Status CheckSame(const Reader&) const override { return OkStatus(); }

 private:
  const OpenWork open_;
};

// ReaderRead and ReaderReadUpTo, in both forms.
class ReaderReadKernel : public Kernel {
 public:
  explicit ReaderReadKernel(KernelConstruction& c)
      : Kernel(c), one_(!c.def().name().starts_with("ReaderReadUpTo")) {}
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    StatusOr<RefPtr<Reader>> found = LookupHandle<Reader>(ctx, 0);
    if (!found.ok()) return done(found.status());
    StatusOr<RefPtr<Queue>> queue = LookupHandle<Queue>(ctx, 1);
    if (!queue.ok()) return done(queue.status());
    int64_t count = 1;
    if (!one_) {
      const StatusOr<int64_t> given = IntScalar(ctx.input(2), "num_records");
      if (!given.ok()) return done(given.status());
      count = *given;
      if (count <= 0) return done(errors::InvalidArgument("num_records must be > 0"));
    }
    RefPtr<Reader> reader = *std::move(found);
    Reader* raw = reader.get();
    raw->Read(*std::move(queue), count, ctx.cancellation(),
              [this, &ctx, done, reader = std::move(reader)](Status status,
                                                             std::vector<Reader::Record> records) {
                if (status.ok()) status = SetOutputs(ctx, std::move(records));
                done(std::move(status));
              });
  }

 private:
  Status SetOutputs(KernelContext& ctx, std::vector<Reader::Record> records) const {
    const Shape shape = one_ ? Shape() : Shape({static_cast<int64_t>(records.size())});
    MR_ASSIGN_OR_RETURN(Tensor keys, ctx.AllocateTemp(kString, shape));
    MR_ASSIGN_OR_RETURN(Tensor values, ctx.AllocateTemp(kString, shape));
    for (std::size_t i = 0; i < records.size(); ++i) {
      keys.data<std::string>()[i] = std::move(records[i].key);
      values.data<std::string>()[i] = std::move(records[i].value);
    }
    ctx.SetOutput(0, std::move(keys));
    ctx.SetOutput(1, std::move(values));
    return OkStatus();
  }

  const bool one_;
};

// ReaderNumRecordsProduced, ReaderNumWorkUnitsCompleted and ReaderReset, in both forms.
class ReaderStateKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<Reader> reader, LookupHandle<Reader>(ctx, 0));
    if (num_outputs() == 0) {
      reader->Reset();
    } else {
      const bool produced = def().name().starts_with("ReaderNumRecordsProduced");
      ctx.SetOutput(0,
                    Tensor::Scalar<int64_t>(produced ? reader->produced() : reader->completed()));
    }
    return OkStatus();
  }
};

}  // namespace

void RegisterReaderKernels(KernelRegistry& r) {
  for (const char* version : {"", "V2"}) {
    for (const char* op : {"TFRecordReader", "TextLineReader", "FixedLengthRecordReader",
                           "WholeFileReader", "IdentityReader"}) {
      RegisterCpu<ReaderKernel>(r, StrCat(op, version));
    }
    RegisterCpu<ReaderReadKernel>(r, StrCat("ReaderRead", version));
    RegisterCpu<ReaderReadKernel>(r, StrCat("ReaderReadUpTo", version));
    for (const char* op :
         {"ReaderNumRecordsProduced", "ReaderNumWorkUnitsCompleted", "ReaderReset"}) {
      RegisterCpu<ReaderStateKernel>(r, StrCat(op, version));
    }
  }
}

}  // namespace millrace
