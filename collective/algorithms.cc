// SPDX-License-Identifier: Apache-2.0
#include "collective/algorithms.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "collective/combine.h"

namespace millrace {
namespace {

// From here on another thread does the arithmetic, so that the sender can go on.
constexpr std::size_t kLargePiece = 64 << 10;
// What is added up in one go: some pieces travel while others are computed.
constexpr int64_t kLargestPiece = 4 << 20;

// `count` elements of `whole` from `begin` on, sharing its buffer.
Tensor Piece(const Tensor& whole, int64_t begin, int64_t count) {
  auto* const data = static_cast<char*>(whole.raw_data());
  return Tensor(whole.dtype(), Shape({count}), RefPtr<Buffer>::Share(whole.buffer()),
                data + begin * static_cast<int64_t>(DataTypeSize(whole.dtype())));
}

void CopyBytes(const Tensor& from, const Tensor& to) {
  if (from.raw_data() != to.raw_data() && to.num_bytes() > 0) {
    std::memcpy(to.raw_data(), from.raw_data(), to.num_bytes());
  }
}

// Counts what is under way, and ends with the first error once nothing is.
class Work : public RefCounted {
 public:
  explicit Work(CollectiveRun run) : run_(std::move(run)) {}

 protected:
  const CollectiveRun& run() const { return run_; }
  const ResolvedCollective& collective() const { return *run_.collective; }

  void Begin() { pending_.fetch_add(1, std::memory_order_relaxed); }
  void End(const Status& status) {
    if (!status.ok()) {
      bool first = false;
      {
        MutexLock lock(&mu_);
        if (error_.ok()) {
          error_ = status;
          first = true;
        }
      }
      if (first) run_.transport->Abort(status);
    }
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    Status error;
    {
      MutexLock lock(&mu_);
      error = error_;
    }
    const CollectiveExecutor::Done done = std::exchange(run_.done, nullptr);
    // The tensors are the kernel's alone again.
    run_.input = run_.output = Tensor();
    Release();
    done(error);
  }

  template <typename W>
  RefPtr<W> Self() {
    return RefPtr<W>::Share(static_cast<W*>(this));
  }

  // Sends without anybody waiting for it but the end.
  void Send(const std::string& key, Tensor piece) {
    Begin();
    run_.transport->Send(key, std::move(piece),
                         [self = Self<Work>()](const Status& status) { self->End(status); });
  }

  // `use` gets the piece, if there is no error: then what Begin began has ended.
  void Receive(const std::string& key, int64_t num_bytes, int src_rank,
               std::function<void(const Tensor&)> use) {
    run_.transport->Receive(
        key, num_bytes, collective(), src_rank,
        [self = Self<Work>(), use = std::move(use)](const Status& status, const Tensor& piece) {
          if (!status.ok()) return self->End(status);
          if (piece.num_bytes() < kLargePiece || self->run_.pool == nullptr) return use(piece);
          self->run_.pool->Schedule([self, use, piece] { use(piece); });
        });
  }

  // Lets go of the tensors.
  virtual void Release() {}

 private:
  CollectiveRun run_;
  std::atomic<int> pending_{1};  // by whoever starts
  Mutex mu_;
  Status error_ ABSL_GUARDED_BY(mu_);
};

class RingReduce : public Work {
 public:
  using Work::Work;

  void Start() {
    const CollectiveParams& params = collective().params;
    const Tensor& output = run().output;
    CopyBytes(run().input, output);
    const auto num_rings = static_cast<int64_t>(collective().rings.size());
    const int64_t num_pieces = collective().group->size() * num_rings;
    const int64_t total = output.num_elements();
    const int64_t size =
        ChunkElements(static_cast<int64_t>(DataTypeSize(params.dtype)), total, num_pieces);
    for (int64_t i = 0; i < num_pieces && i * size < total; ++i) {
      pieces_.push_back(Piece(output, i * size, std::min(size, total - i * size)));
    }
    const int count = static_cast<int>(pieces_.size());
    for (int i = 0; i < count; ++i) {
      Begin();
      Gather(i);
    }
    End(OkStatus());
  }

 private:
  const Ring& ring(int piece) const {
    return collective().rings[piece % collective().rings.size()];
  }
  int first(int piece) const { return piece / static_cast<int>(collective().rings.size()); }
  // The position `steps` before the piece's first one.
  int before_first(int piece, int steps) const {
    const int size = ring(piece).size();
    return ((first(piece) - steps) % size + size) % size;
  }
  std::string Key(int pass, int piece, int position) const {
    return StrCat(run().key, ":", pass, ":", piece, ":", position);
  }

  void Gather(int piece) {
    const Ring& r = ring(piece);
    if (r.position == first(piece)) return Gathered(piece);
    const Tensor& own = pieces_[piece];
    Receive(Key(0, piece, r.before()), static_cast<int64_t>(own.num_bytes()), r.order[r.before()],
            [self = Self<RingReduce>(), piece](const Tensor& received) {
              const CollectiveParams& params = self->collective().params;
              const Tensor& own = self->pieces_[piece];
              MergeInto(params.dtype, params.merge, own.raw_data(), received.raw_data(),
                        own.num_elements());
              self->Gathered(piece);
            });
  }

  void Gathered(int piece) {
    const CollectiveParams& params = collective().params;
    const Ring& r = ring(piece);
    const Tensor& own = pieces_[piece];
    if (r.position == before_first(piece, 1)) {
      if (params.final == FinalOp::kDiv) {
        DivideBy(params.dtype, own.raw_data(), own.num_elements(), r.size());
      }
      return Complete(piece);
    }
    Send(Key(0, piece, r.position), own);
    Receive(Key(1, piece, r.before()), static_cast<int64_t>(own.num_bytes()), r.order[r.before()],
            [self = Self<RingReduce>(), piece](const Tensor& received) {
              CopyBytes(received, self->pieces_[piece]);
              self->Complete(piece);
            });
  }

  void Complete(int piece) {
    const Ring& r = ring(piece);
    if (r.position != before_first(piece, 2)) Send(Key(1, piece, r.position), pieces_[piece]);
    End(OkStatus());
  }

  void Release() override { pieces_.clear(); }

  std::vector<Tensor> pieces_;  // number c * rings + ring, as on the wire
};

class RankOrderReduce : public Work {
 public:
  using Work::Work;

  void Start() {
    const Tensor& output = run().output;
    CopyBytes(run().input, output);
    const int64_t total = output.num_elements();
    const auto element_bytes = static_cast<int64_t>(DataTypeSize(output.dtype()));
    const int64_t rounds = 1 + total * element_bytes / (kLargestPiece * size());
    const int64_t elements = ChunkElements(element_bytes, total, rounds * size());
    for (int64_t begin = 0; begin < total; begin += elements) {
      const int64_t count = std::min(elements, total - begin);
      pieces_.emplace_back(Piece(output, begin, count), size());
    }
    for (int i = 0; i < static_cast<int>(pieces_.size()); ++i) {
      if (OwnerOf(i) == rank()) {
        Collect(i);
      } else {
        HandOver(i);
      }
    }
    End(OkStatus());
  }

 private:
  struct Contributions {
    Contributions(Tensor own, int size) : own(std::move(own)), missing(size - 1) {}
    Tensor own;                   // which the result takes the place of
    std::vector<Tensor> parts{};  // by rank; of those that are added up here
    std::atomic<int> missing;
  };

  int size() const { return collective().group->size(); }
  int rank() const { return collective().rank; }
  // Small tensors have one piece: not everybody's is added up by the same member.
  int OwnerOf(int piece) const {
    const auto first = static_cast<uint32_t>(collective().params.instance_key);
    return static_cast<int>((first + static_cast<uint32_t>(piece)) % static_cast<uint32_t>(size()));
  }
  std::string Key(int pass, int piece, int other) const {
    return StrCat(run().key, ":", pass, ":", piece, ":", other);
  }

  void HandOver(int i) {
    Contributions& piece = pieces_[static_cast<std::size_t>(i)];
    const auto bytes = static_cast<int64_t>(piece.own.num_bytes());
    Send(Key(0, i, rank()), piece.own);
    Begin();
    // Whoever has the result has read what is overwritten here.
    Receive(Key(1, i, rank()), bytes, OwnerOf(i),
            [self = Self<RankOrderReduce>(), &piece](const Tensor& received) {
              CopyBytes(received, piece.own);
              self->End(OkStatus());
            });
  }

  void Collect(int i) {
    Contributions& piece = pieces_[static_cast<std::size_t>(i)];
    const auto bytes = static_cast<int64_t>(piece.own.num_bytes());
    piece.parts.resize(static_cast<std::size_t>(size()));
    piece.parts[static_cast<std::size_t>(rank())] = piece.own;
    if (size() == 1) return Merge(i);
    for (int step = 1; step < size(); ++step) {
      const int from = (rank() + step) % size();
      Begin();
      Receive(Key(0, i, from), bytes, from,
              [self = Self<RankOrderReduce>(), &piece, i, from](const Tensor& received) {
                piece.parts[static_cast<std::size_t>(from)] = received;
                if (piece.missing.fetch_sub(1, std::memory_order_acq_rel) == 1) self->Merge(i);
                self->End(OkStatus());
              });
    }
  }

  void Merge(int i) {
    Contributions& piece = pieces_[static_cast<std::size_t>(i)];
    const CollectiveParams& params = collective().params;
    std::vector<const void*> parts;
    for (const Tensor& part : piece.parts) parts.push_back(part.raw_data());
    MergeAll(params.dtype, params.merge, parts, params.final == FinalOp::kDiv ? size() : 1,
             piece.own.raw_data(), piece.own.num_elements());
    piece.parts.clear();
    for (int step = 1; step < size(); ++step) {
      Send(Key(1, i, (rank() + step) % size()), piece.own);
    }
  }

  void Release() override { pieces_.clear(); }

  std::deque<Contributions> pieces_;  // which stay where they are
};

class RingGather : public Work {
 public:
  using Work::Work;

  void Start() {
    const Tensor& output = run().output;
    const Ring& r = collective().rings[0];
    const int64_t size = run().input.num_elements();
    for (int i = 0; i < r.size(); ++i) pieces_.push_back(Piece(output, i * size, size));
    CopyBytes(run().input, pieces_[r.position]);
    if (size > 0) {
      for (int i = 0; i < r.size(); ++i) {
        Begin();
        if (i == r.position) {
          Pass(i);
        } else {
          Receive(Key(i, r.before()), static_cast<int64_t>(pieces_[i].num_bytes()),
                  r.order[r.before()], [self = Self<RingGather>(), i](const Tensor& received) {
                    CopyBytes(received, self->pieces_[i]);
                    self->Pass(i);
                  });
        }
      }
    }
    End(OkStatus());
  }

 private:
  std::string Key(int piece, int position) const {
    return StrCat(run().key, ":0:", piece, ":", position);
  }
  void Pass(int piece) {
    const Ring& r = collective().rings[0];
    if ((r.position + 1) % r.size() != piece) Send(Key(piece, r.position), pieces_[piece]);
    End(OkStatus());
  }

  void Release() override { pieces_.clear(); }

  std::vector<Tensor> pieces_;
};

class TreeBroadcast : public Work {
 public:
  using Work::Work;

  void Start() {
    plan_ = PlanBroadcast(*collective().group, collective().rank, collective().source_rank);
    if (!plan_.receives) {
      CopyBytes(run().input, run().output);
      return PassOn();
    }
    Receive(Key(plan_.from), static_cast<int64_t>(run().output.num_bytes()), plan_.from.rank,
            [self = Self<TreeBroadcast>()](const Tensor& received) {
              CopyBytes(received, self->run().output);
              self->PassOn();
            });
  }

 private:
  std::string Key(const BroadcastHop& hop) const {
    return StrCat(run().key, ":", hop.subdivision, ":", hop.src_position, ":", hop.dst_position);
  }
  void PassOn() {
    for (const BroadcastHop& hop : plan_.to) Send(Key(hop), run().output);
    End(OkStatus());
  }

  BroadcastTree plan_;
};

// Everybody tells the member of rank 0, which decides and tells everybody.
class Agreement : public Work {
 public:
  Agreement(CollectiveRun run, DecideBytes decide)
      : Work(std::move(run)), decide_(std::move(decide)) {}

  void Start() {
    const int rank = collective().rank, size = collective().group->size();
    if (rank != 0) {
      Send(Key("note", rank), run().input);
      Receive(Key("answer", rank), static_cast<int64_t>(run().output.num_bytes()), 0,
              [self = Self<Agreement>()](const Tensor& answer) {
                CopyBytes(answer, self->run().output);
                self->End(OkStatus());
              });
      return;
    }
    notes_.resize(size);
    notes_[0] = run().input;
    missing_.store(size, std::memory_order_relaxed);
    for (int other = 1; other < size; ++other) {
      Begin();
      Receive(Key("note", other), static_cast<int64_t>(run().output.num_bytes()), other,
              [self = Self<Agreement>(), other](const Tensor& note) {
                self->notes_[other] = note;
                self->Arrived();
                self->End(OkStatus());
              });
    }
    Arrived();
    End(OkStatus());
  }

 private:
  std::string Key(std::string_view what, int rank) const {
    return StrCat(run().key, ":", what, ":", rank);
  }
  void Arrived() {
    if (missing_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    decide_(notes_, run().output);
    for (int other = 1; other < static_cast<int>(notes_.size()); ++other) {
      Send(Key("answer", other), run().output);
    }
  }
  void Release() override {
    notes_.clear();
    decide_ = nullptr;
  }

  DecideBytes decide_;
  std::atomic<int> missing_{0};
  std::vector<Tensor> notes_;
};

}  // namespace

void RunRingReduce(CollectiveRun run) { MakeRef<RingReduce>(std::move(run))->Start(); }
void RunRankOrderReduce(CollectiveRun run) { MakeRef<RankOrderReduce>(std::move(run))->Start(); }
void RunRingGather(CollectiveRun run) { MakeRef<RingGather>(std::move(run))->Start(); }
void RunTreeBroadcast(CollectiveRun run) { MakeRef<TreeBroadcast>(std::move(run))->Start(); }
void RunAgreement(CollectiveRun run, DecideBytes decide) {
  MakeRef<Agreement>(std::move(run), std::move(decide))->Start();
}

}  // namespace millrace
