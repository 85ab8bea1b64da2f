#include "kernel/LeaderWatch.h"

#include "kernel/LeaderThreads.h"
#include "kernel/ThreadContext.h"
#include "util/Time.h"

namespace workflow {

void LeaderWatch::add(LeaderThreads* threads) {
  posts_.push_back(Post{threads});
}

bool LeaderWatch::start() {
  return thread_.start("wf-watch", ThreadContext::in_same_runtime([this] { run(); }));
}

void LeaderWatch::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void LeaderWatch::wake() {
  MutexLock lock(mutex_);
  awake_.store(true, std::memory_order_seq_cst);
  changed_.notify_one();
}

bool LeaderWatch::look() {
  bool away = false;
  for (Post& post : posts_) {
    const uint64_t callback_epoch = post.threads->callback_epoch();
    if (callback_epoch != 0 && callback_epoch == post.seen) {
      if (post.threads->cpu_ns() - post.cpu_ns >= kLookNs || post.threads->sleeps()) {
        post.threads->replace_leader();
      }
    } else if (callback_epoch != 0) {
      post.cpu_ns = post.threads->cpu_ns();
    }
    away |= callback_epoch != 0;
    post.seen = callback_epoch;
  }
  return away;
}

void LeaderWatch::run() {
  MutexLock lock(mutex_);
  for (int quiet = 0; !stopping_;) {
    if (!awake_.load(std::memory_order_seq_cst)) {
      changed_.wait(mutex_);
      quiet = 0;
      continue;
    }
    changed_.wait_until(mutex_, monotonic_ns() + kLookNs);
    lock.unlock();
    quiet = look() ? 0 : quiet + 1;
    if (quiet > kQuietLooks) {
      // A leader that becomes absent now either sees that the watch sleeps, or is seen by this
      // look().
      awake_.store(false, std::memory_order_seq_cst);
      if (look()) {
        awake_.store(true, std::memory_order_seq_cst);
        quiet = 0;
      }
    }
    lock.lock();
  }
}

}  // namespace workflow
