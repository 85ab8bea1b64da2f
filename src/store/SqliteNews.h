#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "store/SqliteQueue.h"
#include "util/Thread.h"

namespace workflow {

// Tells the other processes that have the store open when they should look, and listens to them
// with a thread of its own. News may get lost, because every process looks into the store once a
// second anyway.
//
// Thread-safe, except that start() and stop() are called by one thread. `changed` is called by the
// thread of this object, with no lock held, and not after stop().
class SqliteNews {
 public:
  explicit SqliteNews(SqliteQueue& queue) : queue_(queue) {}
  ~SqliteNews() { stop(); }
  SqliteNews(const SqliteNews&) = delete;
  SqliteNews& operator=(const SqliteNews&) = delete;

  // Does nothing if the system refuses a thread: news is not heard then.
  void start(std::function<void()> changed);
  void stop();

  void tell();

 private:
  // A thread that was woken before it slept would sleep until the next news.
  static constexpr int kMaxSleepMs = 1000;

  // `word` is the counter as it was seen last, and `told` is what other processes have added to it.
  void listen(uint32_t word, uint32_t told);

  SqliteQueue& queue_;
  std::function<void()> changed_;
  Thread thread_;
  // Accesses to these two and to the counter in the page are sequentially consistent by default. It
  // would be enough that tell() releases when it raises the counter, and that the thread acquires
  // when it reads the counter: what the thread has to see of these two is changed before the one,
  // and is read after the other.
  std::atomic<bool> stops_{false};
  // How much of the counter in the page this object has added. Raised before the counter, so that
  // the rest is never taken for more than other processes have announced.
  std::atomic<uint32_t> own_{0};
};

}  // namespace workflow
