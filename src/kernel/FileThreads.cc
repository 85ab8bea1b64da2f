#include "kernel/FileThreads.h"

#include <algorithm>
#include <cerrno>

#include "util/VirtualScheduler.h"

namespace workflow {

namespace {

// The number of threads before any of them has blocked for long, and the highest number.
constexpr int kThreads = 8;
constexpr int kMaxThreads = 128;
// Virtual threads never wait for a disk.
constexpr int kVirtualThreads = 2;

WorkerPool::Options options_for(int most) {
  const int usual = VirtualScheduler::current() ? kVirtualThreads : kThreads;
  return {.name = "wf-file",
          .threads = std::clamp(most, 1, usual),
          .grow_when_starved = true,
          .max_threads = std::clamp(most, 1, kMaxThreads),
          .one_by_one = true};  // what a thread has taken cannot be withdrawn
}

}  // namespace

FileThreads::FileThreads(HandlerPool& handlers, int most)
    : WorkerPool(options_for(most)), handlers_(handlers) {}

int FileThreads::ensure_started() {
  schedule_point();
  if (started_.load(std::memory_order_acquire)) return 0;
  MutexLock lock(starting_);
  if (stopped_) return ECANCELED;
  if (!started_.load(std::memory_order_relaxed)) {
    if (!start()) return EAGAIN;
    started_.store(true, std::memory_order_release);
  }
  return 0;
}

int FileThreads::post(FileOperation* operation, Progress progress) {
  if (const int error = ensure_started()) return error;
  operation->threads_ = this;
  mutex_.lock();
  const bool refused = progress == Progress::kNew && refusing_;
  if (const int error = refused ? ECANCELED : operation->end_reason()) {
    mutex_.unlock();
    return error;
  }
  (progress == Progress::kNew ? queue_ : begun_).push_back(operation);
  waiting_++;
  operation->in_threads_ = FileOperation::Place::kWaiting;
  unlock_and_wake();
  return 0;
}

Runnable* FileThreads::next(Begins /*begins*/) {
  FileOperation* const operation = (begun_.empty() ? queue_ : begun_).pop_front();
  waiting_--;
  operation->in_threads_ = FileOperation::Place::kBegun;
  return operation;
}

bool FileThreads::withdraw(FileOperation* operation) {
  MutexLock lock(mutex_);
  if (operation->in_threads_ != FileOperation::Place::kWaiting) return false;
  FileQueue::remove(operation);
  waiting_--;
  operation->in_threads_ = FileOperation::Place::kElsewhere;
  return true;
}

void FileThreads::execute(FileOperation* operation) {
  RunnableList done;
  operation->finished(operation->request().perform(), done);
  handlers_.post(done);
}

void FileThreads::refuse() {
  RunnableList dropped;
  {
    MutexLock lock(mutex_);
    refusing_ = true;
    while (FileOperation* const operation = queue_.pop_front()) {
      waiting_--;
      operation->in_threads_ = FileOperation::Place::kElsewhere;
      dropped.push_back(operation);
    }
  }
  RunnableList done;
  while (Runnable* operation = dropped.pop_front()) {
    static_cast<FileOperation*>(operation)->aborted(done);
  }
  handlers_.post(done);
}

void FileThreads::stop() {
  bool started;
  {
    MutexLock lock(starting_);
    stopped_ = true;
    started = started_.load(std::memory_order_relaxed);
  }
  if (started) {
    WorkerPool::stop();
  }
}

}  // namespace workflow
