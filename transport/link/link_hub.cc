// SPDX-License-Identifier: Apache-2.0
#include "transport/link/link_hub.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/engine_thread.h"
#include "base/errors.h"
#include "base/exceptions.h"
#include "base/log.h"
#include "base/random.h"
#include "base/strings.h"

namespace millrace {
namespace {

// Enough that one can compute while another reads.
constexpr int kNumThreads = 2;
constexpr int kBacklog = 64;
// Room for a model's worth of small tensors without waiting for the reader.
constexpr int kSocketBuffer = 4 << 20;
// What epoll tells: the id of a link, twice, plus one for the side that waits for room.
constexpr uint64_t kListenerData = 0, kWakeData = 1;
constexpr std::chrono::milliseconds kPollInterval{1};
// After the system had no descriptor for a connection.
constexpr std::chrono::milliseconds kRest{100};

int OpenSpare() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

// Processes with the same one mean the same by a deadline; 0 if that is not known.
uint64_t TimeNamespace() {
  struct stat file{};
  return stat("/proc/self/ns/time", &file) == 0 ? static_cast<uint64_t>(file.st_ino) : 0;
}

std::string RandomBytes() {
  std::string bytes;
  for (int i = 0; i < 2; ++i) {
    const uint64_t bits = RandomId();
    bytes.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  return bytes;
}

// Takes as long for any two strings of a size.
bool SameSecret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

// False if the name is too long.
bool AbstractAddress(std::string_view name, sockaddr_un* address, socklen_t* size) {
  std::memset(address, 0, sizeof(*address));
  if (name.empty() || name.size() + 1 > sizeof(address->sun_path)) return false;
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  *size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return true;
}

bool OfThisUser(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

void SetBuffers(int fd) {
  const int size = kSocketBuffer;  // the system may give less
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

}  // namespace

LinkHub::LinkHub(std::string task, ThreadPool* control, ThreadPool* work, const PeerTable* peers)
    : task_(std::move(task)),
      control_(control),
      work_(work),
      peers_(peers),
      methods_(std::size(methods::kNumbered)) {
  ShareMemory(DefaultBudget(), /*copies=*/false);
}

int64_t LinkHub::DefaultBudget() {
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(memory / 8, kMostShared);
}

void LinkHub::ShareMemory(int64_t budget, bool copies) {
  memory_ = {budget > 0 ? MakeRef<SharedArena>(budget) : nullptr, copies};
}

LinkHub::~LinkHub() {
  StopServing(SteadyClock::now());
  Stop();
}

void LinkHub::AddMethod(std::string path, Handler handler, RpcLane lane) {
  const uint8_t number = methods::NumberOf(path);
  if (number == 0) return;
  MethodStats* const stats =
      counted_methods_ == nullptr ? nullptr : counted_methods_->Add(std::move(path), "link");
  methods_[number] = {std::move(handler), lane == RpcLane::kWork, stats};
}

void LinkHub::Arm(int fd, uint64_t data, uint32_t events, bool add) {
  epoll_event event{};
  event.events = events | EPOLLONESHOT;
  event.data.u64 = data;
  if (epoll_ctl(epoll_, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) != 0) {
    MR_LOG(kWarning, "cannot watch a link: ", std::strerror(errno));
  }
}

Status LinkHub::Start() {
  const auto failed = [this](const char* what) {
    const Status status = errors::Unavailable("no links between tasks on this host: ", what, ": ",
                                              std::strerror(errno));
    for (int* fd : {&epoll_, &listener_, &wake_, &spare_}) {
      if (*fd >= 0) close(std::exchange(*fd, -1));
    }
    return status;
  };
  name_ = StrCat("millrace/", getpid(), "/", Hex16(RandomId()), Hex16(RandomId()));
  token_ = RandomBytes();
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  spare_ = OpenSpare();
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (epoll_ < 0 || wake_ < 0 || listener_ < 0) return failed("no descriptors");
  sockaddr_un address;
  socklen_t size = 0;
  if (!AbstractAddress(name_, &address, &size) ||
      bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener_, kBacklog) != 0) {
    return failed("cannot listen");
  }
  Arm(listener_, kListenerData, EPOLLIN, /*add=*/true);
  // Not once: it wakes all threads.
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeData;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
  for (int i = 0; i < kNumThreads; ++i) threads_.emplace_back([this, i] { ThreadMain(i); });
  return OkStatus();
}

pb::OfferLinkResponse LinkHub::offer(std::string_view caller) {
  pb::OfferLinkResponse offer;
  if (listener_ < 0 || stopping_.load(std::memory_order_relaxed)) return offer;
  offer.set_socket_name(name_);
  if (caller.empty()) {
    offer.set_token(token_);
    return offer;
  }
  MutexLock lock(&mu_);
  std::string& token = tokens_[std::string(caller)];
  if (token.empty()) token = RandomBytes();
  offer.set_token(token);
  return offer;
}

void LinkHub::Connect(const std::string& task, const pb::OfferLinkResponse& offer,
                      std::function<void()> done) {
  sockaddr_un address;
  socklen_t size = 0;
  if (epoll_ < 0 || !AbstractAddress(offer.socket_name(), &address, &size)) return done();
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return done();
  // A local connection is made at once or, to a task elsewhere or too busy to take it, not.
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || !OfThisUser(fd)) {
    close(fd);
    return done();
  }
  SetBuffers(fd);
  const OutFrame hello = Greeting(FrameKind::kHello, task, offer.token());
  // The greeting fits into any socket buffer.
  if (write(fd, hello.head.data(), hello.head.size()) != static_cast<ssize_t>(hello.head.size())) {
    close(fd);
    return done();
  }
  Add(fd, task, std::move(done));
}

void LinkHub::Add(int fd, std::string expected_peer, std::function<void()> on_open) {
  RefPtr<Link> link;
  int write_fd = -1;
  bool kept = false;
  {
    MutexLock lock(&mu_);
    const bool is_crowd = expected_peer.empty() && greeting_ >= kMostGreeting;
    if (!stopping_.load(std::memory_order_acquire) && !is_crowd) {
      // To wait for room apart from waiting for bytes.
      write_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    if (write_fd >= 0) {
      kept = true;
      const uint64_t id = next_id_++;
      link = MakeRef<Link>(fd, id, &methods_, control_, work_, memory_);
      if (!serving_) link->StopServing();
      link->want_write = [this, id] {
        MutexLock lock(&mu_);
        const auto it = links_.find(id);
        if (it != links_.end()) Arm(it->second.write_fd, 2 * id + 1, EPOLLOUT, false);
      };
      Entry& entry = links_[id];
      entry.link = link;
      entry.write_fd = write_fd;
      entry.expected_peer = std::move(expected_peer);
      entry.on_open = on_open;
      entry.greets_by = DeadlineAfter(kGreetingLimit);
      ++greeting_;
    }
  }
  if (!kept) {
    close(fd);
    if (on_open) on_open();
    return;
  }
  Arm(write_fd, 2 * link->id() + 1, 0, /*add=*/true);
  Arm(fd, 2 * link->id(), EPOLLIN, /*add=*/true);
}

void LinkHub::Accept() {
  for (;;) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) break;
      // It would be told at once that there is a connection to take.
      if (AcceptAndClose()) continue;
      MutexLock lock(&mu_);
      listens_again_ = DeadlineAfter(kRest);
      return;
    }
    if (!OfThisUser(fd)) {
      MR_LOG(kWarning, task_, " refused a link to a process of another user");
      close(fd);
      continue;
    }
    SetBuffers(fd);
    Add(fd, "", nullptr);
  }
  Arm(listener_, kListenerData, EPOLLIN, /*add=*/false);
}

// So that who waits first learns that there is no room. False if even that cannot be.
bool LinkHub::AcceptAndClose() {
  MutexLock lock(&mu_);
  if (spare_ < 0) spare_ = OpenSpare();
  if (spare_ < 0) return false;
  close(std::exchange(spare_, -1));
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) close(fd);
  spare_ = OpenSpare();
  return fd >= 0;
}

int LinkHub::Housekeep() {
  std::vector<RefPtr<Link>> silent;
  bool listens = false;
  int64_t left = -1;
  {
    MutexLock lock(&mu_);
    if (greeting_ == 0 && listens_again_ == kNoDeadline) return -1;
    const Deadline now = SteadyClock::now();
    Deadline next = listens_again_;
    if (listens_again_ <= now) {
      listens = true;
      next = listens_again_ = kNoDeadline;
    }
    for (const auto& [id, entry] : links_) {
      if (entry.greets_by <= now) {
        silent.push_back(entry.link);
      } else {
        next = std::min(next, entry.greets_by);
      }
    }
    if (next != kNoDeadline) {
      left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count() + 1;
    }
  }
  for (const RefPtr<Link>& link : silent) {
    MR_LOG(kWarning, task_, " closed a link whose peer did not greet");
    Remove(link, OkStatus());
  }
  if (listens) Arm(listener_, kListenerData, EPOLLIN, /*add=*/false);
  return static_cast<int>(left);
}

RefPtr<Link> LinkHub::ById(uint64_t id) const {
  MutexLock lock(&mu_);
  const auto it = links_.find(id);
  return it == links_.end() ? nullptr : it->second.link;
}

RefPtr<Link> LinkHub::Find(std::string_view task) const {
  MutexLock lock(&mu_);
  const auto it = by_task_.find(task);
  if (it == by_task_.end() || it->second.link->broken()) return nullptr;
  return it->second.link;
}

void LinkHub::ThreadMain(int index) {
  pthread_setname_np(pthread_self(), StrCat("mr-link-", index).c_str());
  MarkEngineThread();
  while (!stopping_.load(std::memory_order_acquire)) {
    epoll_event event{};
    const int timeout = Housekeep();
    reading_.fetch_add(1, std::memory_order_relaxed);
    const int n = epoll_wait(epoll_, &event, 1, timeout);
    reading_.fetch_sub(1, std::memory_order_relaxed);
    if (n <= 0) continue;
    if (event.data.u64 == kWakeData) continue;
    if (event.data.u64 == kListenerData) {
      Accept();
      continue;
    }
    const RefPtr<Link> link = ById(event.data.u64 / 2);
    if (!link) continue;
    if (event.data.u64 % 2 == 1) {
      link->Flush();
    } else {
      Serve(link);
    }
  }
}

void LinkHub::Serve(const RefPtr<Link>& link) {
  std::vector<std::unique_ptr<InFrame>> frames;
  const auto next = [&] { return Guarded([&] { return link->Read(&frames); }); };
  StatusOr<FrameReader::Result> read = next();
  // The greeting comes alone; until it is over nobody else may read.
  if (!frames.empty() && link->peer().empty()) {
    if (!Greet(link, *frames.front())) return Remove(link, OkStatus());
    frames.clear();
    if (read.ok() && *read == FrameReader::Result::kOpen) read = next();
  }
  const bool open = read.ok() && *read == FrameReader::Result::kOpen;
  // Whoever reads next may find a cancellation of what was read now.
  std::vector<Link::Incoming> incoming = link->Admit(std::move(frames));
  if (open) Arm(link->fd(), 2 * link->id(), EPOLLIN, /*add=*/false);
  HandleAll(link, std::move(incoming));
  if (open) return;
  if (!read.ok()) MR_LOG(kWarning, "the link to ", link->peer(), ": ", Message(read.status()));
  Remove(link, OkStatus());
}

void LinkHub::HandleAll(const RefPtr<Link>& link, std::vector<Link::Incoming> incoming) {
  DeferScope burst;
  for (std::size_t i = 0; i < incoming.size(); ++i) {
    // Long work runs here only if it holds up neither the next frame nor the next reader.
    HurryScope hurry(i + 1 < incoming.size() || reading_.load(std::memory_order_relaxed) == 0);
    link->Handle(std::move(incoming[i]));
  }
}

OutFrame LinkHub::Greeting(FrameKind kind, const std::string& task,
                           const std::string& token) const {
  pb::LinkHello hello;
  hello.set_task(task_);
  hello.set_token(token);
  hello.set_expected_task(task);
  hello.set_time_namespace(TimeNamespace());
  if (peers_ != nullptr) {
    hello.set_cluster_id(peers_->own().cluster_id);
    hello.set_incarnation(peers_->own().incarnation);
  }
  WireWriter out;
  out.AppendMessage(hello);
  const uint16_t features = memory_.arena ? FrameHeader::kSharesMemory : 0;
  return OutFrame(FrameHeader{.kind = kind, .features = features}, std::move(out));
}

Status LinkHub::CheckHello(const pb::LinkHello& hello) const {
  if (peers_ == nullptr) return OkStatus();
  const Status named = peers_->CheckNames(
      {hello.task(), hello.incarnation(), hello.cluster_id(), hello.expected_task()});
  if (!named.ok() ||
      peers_->StandingOf(hello.task(), hello.incarnation()) != PeerTable::Standing::kRefuted) {
    return named;
  }
  return errors::FailedPrecondition("another process is known to be ", hello.task());
}

// Whether the sender was given the token that it shows, in the name that it greets with.
bool LinkHub::HasToken(const pb::LinkHello& hello) const {
  const auto own = tokens_.find(hello.task());
  return (own != tokens_.end() && SameSecret(hello.token(), own->second)) ||
         SameSecret(hello.token(), token_);
}

void LinkHub::Name(const RefPtr<Link>& link, const pb::LinkHello& hello, bool connected) {
  const bool confirmed =
      connected || peers_ == nullptr ||
      peers_->StandingOf(hello.task(), hello.incarnation()) == PeerTable::Standing::kConfirmed;
  Named& named = by_task_[hello.task()];
  const bool taken = named.link && !named.link->broken();
  if (taken && named.incarnation != hello.incarnation() && (named.confirmed || !confirmed)) {
    return;  // the other end may call this one; calls of this end go to whom they went so far
  }
  named = {link, hello.incarnation(), confirmed};
}

bool LinkHub::Greet(const RefPtr<Link>& link, const InFrame& frame) {
  pb::LinkHello hello;
  const bool parsed = ParseMessage(frame.pieces(), &hello).ok() && !hello.task().empty();
  const Status meant = parsed ? CheckHello(hello) : OkStatus();
  std::function<void()> on_open;
  bool good = false, connected = false;
  {
    MutexLock lock(&mu_);
    const auto it = links_.find(link->id());
    if (it == links_.end()) return false;
    Entry& entry = it->second;
    connected = !entry.expected_peer.empty();
    good = parsed && (connected ? frame.header.kind == FrameKind::kWelcome &&
                                      hello.task() == entry.expected_peer
                                : frame.header.kind == FrameKind::kHello && HasToken(hello));
    good = good && meant.ok();
    if (good) {
      on_open = std::exchange(entry.on_open, nullptr);
      entry.greets_by = kNoDeadline;
      --greeting_;
    }
  }
  if (!good) {
    MR_LOG(kWarning, task_, " refused a link: ",
           meant.ok() ? "its peer did not greet as it should" : Message(meant));
    return false;
  }
  if (counted_peers_ != nullptr) link->set_peer_stats(counted_peers_->Find(hello.task()));
  link->set_peer(hello.task(),
                 hello.time_namespace() != 0 && hello.time_namespace() == TimeNamespace(),
                 (frame.header.features & FrameHeader::kSharesMemory) != 0);
  // The welcome is queued before anything that this end may ask, and goes out when it may ask.
  DeferScope burst;
  if (!connected) link->Send(Greeting(FrameKind::kWelcome, hello.task(), ""));
  {
    MutexLock lock(&mu_);
    Name(link, hello, connected);
  }
  DeferScope::RunDeferred();
  if (on_open) on_open();
  return true;
}

void LinkHub::Remove(const RefPtr<Link>& link, const Status& reason) {
  Entry entry;
  {
    MutexLock lock(&mu_);
    const auto it = links_.find(link->id());
    if (it == links_.end()) return;
    entry = std::move(it->second);
    links_.erase(it);
    if (entry.greets_by != kNoDeadline) --greeting_;
    const auto named = by_task_.find(link->peer());
    if (named != by_task_.end() && named->second.link.get() == link.get()) by_task_.erase(named);
    ending_.push_back(link);
  }
  epoll_ctl(epoll_, EPOLL_CTL_DEL, link->fd(), nullptr);
  epoll_ctl(epoll_, EPOLL_CTL_DEL, entry.write_fd, nullptr);
  link->Break();
  close(entry.write_fd);
  const std::string peer = link->peer();
  if (on_closed_ && !peer.empty() && !stopping_.load(std::memory_order_acquire)) on_closed_(peer);
  link->FailCalls(reason);
  if (entry.on_open) entry.on_open();
  MutexLock lock(&mu_);
  std::erase_if(ending_, [](const RefPtr<Link>& other) {
    return other->num_served() == 0 && other->num_active() == 0;
  });
}

std::vector<RefPtr<Link>> LinkHub::AllLinks() const {
  MutexLock lock(&mu_);
  std::vector<RefPtr<Link>> all = ending_;
  for (const auto& [id, entry] : links_) all.push_back(entry.link);
  return all;
}

void LinkHub::StopServing(Deadline grace) {
  const auto served = [this] {
    int count = 0;
    for (const RefPtr<Link>& link : AllLinks()) count += link->num_served();
    return count;
  };
  {
    MutexLock lock(&mu_);
    serving_ = false;
  }
  for (const RefPtr<Link>& link : AllLinks()) link->StopServing();
  while (served() > 0 && SteadyClock::now() < grace) std::this_thread::sleep_for(kPollInterval);
  for (const RefPtr<Link>& link : AllLinks()) link->CancelServed();
  while (served() > 0) std::this_thread::sleep_for(kPollInterval);
}

void LinkHub::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_.store(true, std::memory_order_release);
  }
  if (epoll_ < 0) return;
  const uint64_t one = 1;
  if (write(wake_, &one, sizeof(one)) < 0) MR_LOG(kWarning, "cannot wake the links' threads");
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  std::vector<RefPtr<Link>> links;
  {
    MutexLock lock(&mu_);
    for (const auto& [id, entry] : links_) links.push_back(entry.link);
  }
  for (const RefPtr<Link>& link : links) {
    Remove(link, MarkDerived(errors::Cancelled("the server ", task_, " is stopping")));
  }
  // Callbacks run on the pool and have nothing to wait for.
  for (const RefPtr<Link>& link : AllLinks()) {
    while (link->num_active() > 0) std::this_thread::sleep_for(kPollInterval);
  }
  for (int* fd : {&listener_, &wake_, &epoll_}) close(std::exchange(*fd, -1));
  if (spare_ >= 0) close(std::exchange(spare_, -1));
}

}  // namespace millrace
