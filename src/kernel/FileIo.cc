#include "kernel/FileIo.h"

#include <cstdlib>
#include <string_view>

#include "util/VirtualScheduler.h"

namespace workflow {

namespace {

bool ring_wanted(FileBackend backend) {
  // A simulation cannot schedule the kernel's threads.
  if (VirtualScheduler::current()) return false;
  if (backend == FileBackend::kChoose) {
    const char* given = std::getenv(FileIo::kVariable);
    return !given || std::string_view(given) != "threads";
  }
  return backend == FileBackend::kRing;
}

}  // namespace

FileIo::FileIo(HandlerPool& handlers, const Options& options)
    : handlers_(handlers), options_(options), threads_(handlers, options.max_events) {}

FileIo::~FileIo() = default;

void FileIo::choose() {
  schedule_point();
  if (chosen_.load(std::memory_order_acquire)) return;
  MutexLock lock(mutex_);
  if (!chosen_.load(std::memory_order_relaxed)) {
    if (!refusing_ && ring_wanted(options_.backend)) {
      ring_ = FileRing::create(handlers_, threads_, options_.max_events);
    }
    chosen_.store(true, std::memory_order_release);
  }
}

int FileIo::submit(FileOperation* operation) {
  choose();
  if (ring_ && FileRing::suits(operation->request())) return ring_->post(operation);
  return threads_.post(operation, FileThreads::Progress::kNew);
}

bool FileIo::withdraw(FileOperation* operation) {
  return (ring_ && ring_->withdraw(operation)) || threads_.withdraw(operation);
}

FileBackend FileIo::backend() {
  choose();
  return ring_ ? FileBackend::kRing : FileBackend::kThreads;
}

void FileIo::refuse() {
  {
    MutexLock lock(mutex_);
    refusing_ = true;
  }
  if (chosen_.load(std::memory_order_acquire) && ring_) {
    ring_->refuse();
  }
  threads_.refuse();
}

void FileIo::stop() {
  // The ring is stopped first, because it gives operations that it cannot do to the threads.
  if (chosen_.load(std::memory_order_acquire) && ring_) {
    ring_->stop();
  }
  threads_.stop();
}

}  // namespace workflow
