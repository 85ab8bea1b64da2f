#include "kernel/StallWatch.h"

#include <algorithm>

#include "kernel/LeaderThreads.h"
#include "kernel/ThreadContext.h"

namespace workflow {

void StallWatch::add(LeaderThreads* threads) {
  posts_.push_back(Post{.threads = threads, .stall = {}});
}

bool StallWatch::start() {
  return thread_.start("wf-watch", ThreadContext::in_same_runtime([this] { run(); }));
}

void StallWatch::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void StallWatch::wake() {
  MutexLock lock(mutex_);
  awake_.store(true, std::memory_order_seq_cst);
  changed_.notify_one();
}

bool StallWatch::look(int64_t& next_look_ns) {
  const bool is_work_exposed = exposed_.look();
  const int64_t now_ns = wait_now_ns();
  bool away = is_work_exposed;
  next_look_ns = now_ns + (is_work_exposed ? kWorkLookNs : LeaderStall::kLookNs);
  for (Post& post : posts_) {
    if (post.stall.look(*post.threads, now_ns)) {
      post.threads->replace_leader();
    }
    away |= post.stall.is_absent();
    next_look_ns = std::min(next_look_ns, post.stall.next_look_ns());
  }
  return away;
}

void StallWatch::run() {
  wake_promptly();
  MutexLock lock(mutex_);
  int64_t look_ns = 0;
  for (int quiet = 0; !stopping_;) {
    if (!awake_.load(std::memory_order_seq_cst)) {
      changed_.wait(mutex_);
      quiet = 0;
      look_ns = wait_now_ns();  // a callback has just begun: the sooner it is seen, the better
      continue;
    }
    changed_.wait_until(mutex_, look_ns);
    lock.unlock();
    quiet = look(look_ns) ? 0 : quiet + 1;
    if (quiet > kQuietLooks) {
      // A leader that becomes absent now, or a thread that exposes work, either sees that the watch
      // sleeps, or is seen by this look().
      awake_.store(false, std::memory_order_seq_cst);
      if (look(look_ns)) {
        awake_.store(true, std::memory_order_seq_cst);
        quiet = 0;
      }
    }
    lock.lock();
  }
}

}  // namespace workflow
