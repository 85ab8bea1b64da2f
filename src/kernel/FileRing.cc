#include "kernel/FileRing.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "kernel/ThreadContext.h"

namespace workflow {

namespace {

// The most that one system call transfers (read(2)).
constexpr size_t kMaxBytes = 0x7ffff000;
// What the kernel lets a completion queue have.
constexpr unsigned kMaxCompletions = 65536;

// The most threads of the kernel for operations that block. They are many, so that a file system
// that does not answer does not soon block the operations of others.
constexpr unsigned kMaxWorkers = 128;

// From 5.12 on, operations that block run on threads of this process, with its credentials and
// limits, and are completed in full as the system call is.
constexpr unsigned kFeatures = IORING_FEAT_NODROP | IORING_FEAT_NATIVE_WORKERS;

constexpr int kOpcodes[] = {IORING_OP_READ,   IORING_OP_WRITE, IORING_OP_READV,
                            IORING_OP_WRITEV, IORING_OP_FSYNC, IORING_OP_ASYNC_CANCEL};

// Whether `fd` refers to a file or block device that has positions. Files whose contents a driver
// generates (/proc, debugfs) may have none, or only for reading. The system calls then refuse
// positions, but the ring does not. Such files belong to no device and have no size. This is also
// true of a few files that do have positions; the threads serve them.
bool has_positions(int fd) {
  struct statx status = {};
  // DONT_SYNC: what is known locally is enough; no file server needs to be asked.
  constexpr int kFlags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
  constexpr unsigned kMask = STATX_TYPE | STATX_SIZE;
  if (::statx(fd, "", kFlags, kMask, &status) != 0 || (status.stx_mask & kMask) != kMask) {
    return false;
  }
  if (S_ISBLK(status.stx_mode)) return true;
  return S_ISREG(status.stx_mode) &&
         (status.stx_dev_major != 0 || (status.stx_size > 0 && ::lseek(fd, 0, SEEK_CUR) >= 0));
}

// Over the limit a write sends SIGXFSZ (setrlimit(2)): to a thread of ours, which blocks it.
bool file_size_limited() {
  struct rlimit limit = {};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

// Errors after which no part of the operation has been done, and the system call may give another
// result: the kernel cannot promise not to wait, has no memory, or was interrupted; or arguments
// are bad, which the ring checks in another order. Other errors must be reported: an error of the
// device may have come after an append, and fsync(2) reports an error only once.
bool to_be_done_again(int result) {
  switch (-result) {
    case EAGAIN:
    case EINTR:
    case ECANCELED:
    case EBADF:
    case EFAULT:
    case EINVAL:
    case EOVERFLOW:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::unique_ptr<FileRing> FileRing::create(HandlerPool& handlers, FileThreads& threads,
                                           int most_in_flight) {
  std::unique_ptr<FileRing> ring;
  int error = ENOMEM;
  try {
    ring.reset(new FileRing(handlers, threads));
    error = ring->open(most_in_flight);
  } catch (const std::bad_alloc&) {
  }
  if (error != 0) {
    ring.reset();
    errno = error;
  }
  return ring;
}

int FileRing::open(int most_in_flight) {
  most_in_flight_ =
      std::clamp(static_cast<unsigned>(std::max(most_in_flight, 1)), 1U, kMaxCompletions / 2);
  wake_fd_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!wake_fd_.valid()) return errno;
  struct io_uring_params params = {};
  params.flags = IORING_SETUP_CQSIZE;
  params.cq_entries = std::max(most_in_flight_ + kMaxCancels + 1, kBatch);
  if (const int result = ::io_uring_queue_init_params(kBatch, &ring_, &params); result < 0) {
    return -result;
  }
  ring_open_ = true;
  if ((params.features & kFeatures) != kFeatures || !supports_all()) return ENOSYS;
  unsigned workers[2] = {kMaxWorkers, 0};  // 0: unchanged
  // A kernel before 5.15 keeps its own limit.
  ::io_uring_register_iowq_max_workers(&ring_, workers);
  const bool started =
      thread_.start("wf-file-ring", ThreadContext::in_same_runtime([this] { thread_main(); }));
  return started ? 0 : EAGAIN;
}

bool FileRing::supports_all() const {
  struct io_uring_probe* probe = ::io_uring_get_probe_ring(const_cast<struct io_uring*>(&ring_));
  if (!probe) return false;
  const bool all = std::all_of(std::begin(kOpcodes), std::end(kOpcodes), [probe](int opcode) {
    return ::io_uring_opcode_supported(probe, opcode) != 0;
  });
  ::io_uring_free_probe(probe);
  return all;
}

FileRing::~FileRing() {
  if (ring_open_) {
    ::io_uring_queue_exit(&ring_);
  }
}

bool FileRing::suits(const FileRequest& request) {
  using Kind = FileRequest::Kind;
  if (request.path || request.offset < 0 || request.size > kMaxBytes) return false;
  const bool vector = request.kind == Kind::kReadVector || request.kind == Kind::kWriteVector;
  if (vector && (request.vector_count < 1 || request.vector_count > IOV_MAX)) return false;
  return has_positions(request.fd) && !(request.writes() && file_size_limited());
}

int FileRing::post(FileOperation* operation) {
  bool wake;
  {
    MutexLock lock(mutex_);
    if (const int error = refusing_ ? ECANCELED : operation->end_reason()) return error;
    waiting_.push_back(operation);
    operation->in_ring_ = FileOperation::Place::kWaiting;
    wake = asleep_ && idle_;
    asleep_ = asleep_ && !wake;
  }
  if (wake) {
    ::eventfd_write(wake_fd_.get(), 1);
  }
  return 0;
}

bool FileRing::withdraw(FileOperation* operation) {
  using Place = FileOperation::Place;
  bool wake = false;
  bool waited = false;
  {
    MutexLock lock(mutex_);
    if (operation->in_ring_ == Place::kWaiting) {
      FileQueue::remove(operation);
      operation->in_ring_ = Place::kElsewhere;
      waited = true;
    } else if (operation->in_ring_ == Place::kBegun) {
      to_cancel_.push_back(operation);
      operation->in_ring_ = Place::kToCancel;
      wake = std::exchange(asleep_, false);
    }
  }
  if (wake) {
    ::eventfd_write(wake_fd_.get(), 1);
  }
  return waited;
}

void FileRing::refuse() {
  RunnableList dropped;
  {
    MutexLock lock(mutex_);
    refusing_ = true;
    while (FileOperation* const operation = waiting_.pop_front()) {
      operation->in_ring_ = FileOperation::Place::kElsewhere;
      dropped.push_back(operation);
    }
  }
  RunnableList done;
  while (Runnable* operation = dropped.pop_front()) {
    static_cast<FileOperation*>(operation)->aborted(done);
  }
  handlers_.post(done);
}

void FileRing::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    asleep_ = false;
  }
  ::eventfd_write(wake_fd_.get(), 1);
  thread_.join();
  ::io_uring_queue_exit(&ring_);
  ring_open_ = false;
}

void FileRing::thread_main() {
  for (Next next = fill(); next != Next::kEnd; next = fill()) {
    submit(next == Next::kWait);
    reap();
  }
}

FileRing::Next FileRing::fill() {
  using Place = FileOperation::Place;
  RunnableList cancels;
  RunnableList batch;
  bool arm;
  Next next;
  {
    MutexLock lock(mutex_);
    unsigned room = ::io_uring_sq_space_left(&ring_);
    arm = !wake_armed_ && !has_ended() && room > 0;
    room -= arm ? 1 : 0;
    while (room > 0 && cancels_in_flight_ < kMaxCancels && !to_cancel_.empty()) {
      FileOperation* const operation = to_cancel_.pop_front();
      operation->in_ring_ = Place::kBegun;
      cancels.push_back(operation);
      cancels_in_flight_++;
      room--;
    }
    while (room > 0 && in_flight_ < most_in_flight_ && !waiting_.empty()) {
      FileOperation* const operation = waiting_.pop_front();
      operation->in_ring_ = Place::kBegun;
      batch.push_back(operation);
      in_flight_++;
      room--;
    }
    next = next_after(wake_armed_ || arm);
    asleep_ = next == Next::kWait;
    idle_ = in_flight_ < most_in_flight_;
  }
  if (arm) {
    prepare_wake();
  }
  while (Runnable* const operation = cancels.pop_front()) {
    prepare_cancel(static_cast<FileOperation*>(operation));
  }
  while (Runnable* const operation = batch.pop_front()) {
    prepare(static_cast<FileOperation*>(operation));
  }
  return next;
}

bool FileRing::has_ended() const {
  return stopping_ && in_flight_ + cancels_in_flight_ == 0;
}

FileRing::Next FileRing::next_after(bool wakeable) {
  if (has_ended()) {
    if (wakeable) {
      ::eventfd_write(wake_fd_.get(), 1);  // ends the read of wake_fd_ that is still in the ring
    }
    return wakeable ? Next::kWait : Next::kEnd;
  }
  const bool more = (!waiting_.empty() && in_flight_ < most_in_flight_) ||
                    (!to_cancel_.empty() && cancels_in_flight_ < kMaxCancels);
  return more || !wakeable ? Next::kSubmit : Next::kWait;
}

void FileRing::prepare(FileOperation* operation) {
  using Kind = FileRequest::Kind;
  const FileRequest request = operation->request();
  struct io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
  const auto size = static_cast<unsigned>(request.size);
  const auto count = static_cast<unsigned>(request.vector_count);
  const auto offset = static_cast<uint64_t>(request.offset);
  switch (request.kind) {
    case Kind::kRead:
      ::io_uring_prep_read(sqe, request.fd, request.buffer, size, offset);
      break;
    case Kind::kWrite:
      ::io_uring_prep_write(sqe, request.fd, request.buffer, size, offset);
      break;
    case Kind::kReadVector:
      ::io_uring_prep_readv(sqe, request.fd, request.vector, count, offset);
      break;
    case Kind::kWriteVector:
      ::io_uring_prep_writev(sqe, request.fd, request.vector, count, offset);
      break;
    case Kind::kSync:
      ::io_uring_prep_fsync(sqe, request.fd, 0);
      break;
    case Kind::kDataSync:
      ::io_uring_prep_fsync(sqe, request.fd, IORING_FSYNC_DATASYNC);
      break;
  }
  if (request.size >= kAsyncBytes) {
    ::io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
  }
  ::io_uring_sqe_set_data(sqe, operation);
}

void FileRing::prepare_cancel(FileOperation* operation) {
  struct io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
  ::io_uring_prep_cancel(sqe, operation, 0);
  ::io_uring_sqe_set_data(sqe, &cancels_in_flight_);
}

void FileRing::prepare_wake() {
  struct io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
  ::io_uring_prep_read(sqe, wake_fd_.get(), &wake_count_, sizeof wake_count_, 0);
  ::io_uring_sqe_set_data(sqe, nullptr);
  wake_armed_ = true;
}

void FileRing::submit(bool wait) {
  const int result = ::io_uring_submit_and_wait(&ring_, wait ? 1 : 0);
  if (result == -EAGAIN || result == -EBUSY || result == -ENOMEM) {
    // The kernel has no memory for more operations now. Those that it did not take stay in the ring
    // for the next time.
    pause_ns(kRetryNs);
  }
}

void FileRing::reap() {
  struct io_uring_cqe* completions[kBatch];
  const unsigned count = ::io_uring_peek_batch_cqe(&ring_, completions, kBatch);
  leave(completions, count);
  RunnableList done;
  for (unsigned i = 0; i < count; i++) {
    void* const data = ::io_uring_cqe_get_data(completions[i]);
    if (data == &cancels_in_flight_) {
      cancels_in_flight_--;
    } else if (data) {
      in_flight_--;
      complete(static_cast<FileOperation*>(data), completions[i]->res, done);
    } else {
      wake_armed_ = false;
    }
  }
  ::io_uring_cq_advance(&ring_, count);
  handlers_.post(done);
}

void FileRing::leave(struct io_uring_cqe* const* completions, unsigned count) {
  MutexLock lock(mutex_);
  for (unsigned i = 0; i < count; i++) {
    void* const data = ::io_uring_cqe_get_data(completions[i]);
    if (data && data != &cancels_in_flight_) {
      auto* const operation = static_cast<FileOperation*>(data);
      if (operation->in_ring_ == FileOperation::Place::kToCancel) {
        FileQueue::remove(operation);
      }
      operation->in_ring_ = FileOperation::Place::kElsewhere;
    }
  }
}

void FileRing::complete(FileOperation* operation, int result, RunnableList& done) {
  if (to_be_done_again(result)) {
    if (const int error = threads_.post(operation, FileThreads::Progress::kBegun)) {
      operation->finished(-error, done);
    }
    return;
  }
  // A transfer that was cut short by its cancellation looks like one that came to the file's end.
  const int end_reason = operation->end_reason();
  const bool is_whole =
      end_reason == 0 || result < 0 || static_cast<size_t>(result) == operation->request().bytes();
  operation->finished(is_whole ? result : -end_reason, done);
}

}  // namespace workflow
