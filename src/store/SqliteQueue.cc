#include "store/SqliteQueue.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

#include "store/FileStatus.h"
#include "util/Thread.h"
#include "util/Time.h"

namespace workflow {

namespace {

constexpr int64_t kBytes = 4096;
constexpr uint64_t kMagic = 0x3165756575516657;  // "WfQueue1"

// Bytes of the file that are locked; there need not be such bytes.
constexpr int64_t kCreation = 0;
constexpr int64_t kOwner = 1;
constexpr int64_t kTickets = int64_t{1} << 20;
constexpr uint64_t kTicketBytes = uint64_t{1} << 30;

// How often a process that waits looks whether the one before it has died.
constexpr int kLookMs = 5;
constexpr long kDrawAgainNs = 50'000;
// How often a process that waits for a store to be created tries again.
constexpr long kLockAgainNs = 500'000;

int64_t byte_of(uint64_t ticket) {
  return kTickets + static_cast<int64_t>(ticket % kTicketBytes);
}

int say(const std::string& path, int error, std::string* message) {
  *message = path + ": " + std::strerror(error);
  return error;
}

}  // namespace

int SqliteQueue::open(const std::string& path, std::string* message, int patience_ms) {
  path_ = path;
  // As readable and writable as the umask allows, as SQLite does with the store.
  file_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file_.valid()) return say(path, errno, message);
  if (const int error = lock_creation(message, patience_ms)) {
    close();
    return error;
  }
  FileStatus status;
  int error = status.read(file_.get());
  if (error == 0 && status.bytes == 0) {
    // A hole in a mapped file would need a block when it is written, and end us if there is none.
    error = ::posix_fallocate(file_.get(), 0, kBytes);
    if (error == 0 && ::fsync(file_.get()) != 0) {
      error = errno;
    }
  }
  if (error == 0 && status.bytes != 0 && status.bytes < kBytes) {
    *message = path + ": damaged";
    close();
    return EILSEQ;
  }
  void* memory = MAP_FAILED;
  if (error == 0) {
    memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    error = memory == MAP_FAILED ? errno : 0;
  }
  if (error != 0) {
    close();
    return say(path, error, message);
  }
  page_ = static_cast<Page*>(memory);
  if (page_->magic == 0 && page_->identity == 0 && page_->commits == 0) {
    page_->magic = kMagic;
  }
  unlock_creation();
  if (page_->magic != kMagic) {
    *message = path + ": damaged";
    close();
    return EILSEQ;
  }
  return 0;
}

void SqliteQueue::close() {
  if (page_) {
    ::munmap(page_, kBytes);
    page_ = nullptr;
  }
  file_.reset();
  has_ticket_ = false;
}

bool SqliteQueue::is_whole() const {
  FileStatus status;
  return status.read(file_.get()) == 0 && status.bytes >= kBytes;
}

bool SqliteQueue::is_same() const {
  FileStatus opened;
  FileStatus found;
  return opened.read(file_.get()) == 0 && found.read(path_) == 0 && found.is_same_file(opened);
}

int SqliteQueue::lock(int type, int64_t byte) const {
  struct flock lock = {};
  lock.l_type = static_cast<short>(type);
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  while (::fcntl(file_.get(), F_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES) return EBUSY;
    if (errno != EINTR) return errno;
  }
  return 0;
}

std::optional<pid_t> SqliteQueue::holder(int64_t byte) const {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  const bool has_holder = ::fcntl(file_.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  return has_holder ? std::optional(lock.l_pid) : std::nullopt;
}

int SqliteQueue::lock_creation(std::string* message, int patience_ms) {
  const int64_t deadline_ns = monotonic_ns() + patience_ms * kNsPerMs;
  for (;;) {
    const int error = lock(F_WRLCK, kCreation);
    if (error == 0) return 0;
    if (error != EBUSY) return say(path_, error, message);
    if (monotonic_ns() >= deadline_ns) break;
    pause_ns(kLockAgainNs);
  }
  const pid_t holder_id = holder(kCreation).value_or(0);
  *message = path_ + ": " +
             (holder_id > 0 ? "process " + std::to_string(holder_id) : "another process") +
             " is creating or opening the store, and has not got on with it for " +
             std::to_string(patience_ms) + " ms; was it stopped?";
  return EBUSY;
}

void SqliteQueue::unlock_creation() {
  lock(F_UNLCK, kCreation);
}

int SqliteQueue::own() {
  return lock(F_WRLCK, kOwner);
}

bool SqliteQueue::draw_ticket(int64_t deadline_ns) {
  for (;;) {
    uint64_t next = page_->ticket;
    const int error = lock(F_WRLCK, byte_of(next));
    if (error == 0) {
      if (page_->ticket.compare_exchange_strong(next, next + 1)) {
        ticket_ = next;
        return true;
      }
      lock(F_UNLCK, byte_of(next));
    } else if (error != EBUSY || monotonic_ns() >= deadline_ns) {
      return false;
    } else if (page_->ticket == next) {
      pause_ns(kDrawAgainNs);  // another process draws it just now
    }
  }
}

void SqliteQueue::enter(int patience_ms) {
  const int64_t deadline_ns = monotonic_ns() + patience_ms * kNsPerMs;
  has_ticket_ = draw_ticket(deadline_ns);
  if (!has_ticket_) return;
  for (;;) {
    const uint32_t seen = page_->turns;
    if (!holder(byte_of(ticket_ - 1)) || monotonic_ns() >= deadline_ns) return;
    wait(page_->turns, seen, kLookMs);
  }
}

void SqliteQueue::leave() {
  if (has_ticket_) {
    has_ticket_ = false;
    lock(F_UNLCK, byte_of(ticket_));
    page_->turns++;
    wake(page_->turns);
  }
}

void SqliteQueue::committed(int64_t commits) {
  int64_t known = page_->commits;
  while (known < commits && !page_->commits.compare_exchange_weak(known, commits)) {
  }
}

void SqliteQueue::wake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SqliteQueue::wait(std::atomic<uint32_t>& word, uint32_t seen, int timeout_ms) {
  struct timespec timeout = {};
  timeout.tv_sec = timeout_ms / 1000;
  timeout.tv_nsec = timeout_ms % 1000 * kNsPerMs;
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

}  // namespace workflow
