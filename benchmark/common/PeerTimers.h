// What a program has to write beside a timer library that knows no names and, here, whose loop only
// its own thread may touch: a table of names under a mutex, and requests posted to the loop thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/TimerRows.h"

namespace bench {

// One timer of a peer. `Handle` is the library's own timer object, kept inside by value.
template <class Handle>
struct PeerTimer {
  using Table = std::unordered_multimap<std::string, PeerTimer*>;

  Handle handle{};
  Completion completion{};
  int64_t deadline_ns = 0;
  typename Table::iterator place{};  // meaningful while listed
  bool named = false;                // constant once started
  bool listed = false;               // guarded by the table's mutex: in the table, so undecided
  bool fired = false;                // loop thread only: expired while its cancel was on its way
};

// The thread that removes a timer from the table, under the mutex, decides its outcome. Thread
// safety: every call with `mutex` held.
template <class Timer>
class NameTable {
 public:
  void insert(const std::string& name, Timer* timer) {
    timer->place = table_.emplace(name, timer);
    timer->listed = true;
    timer->named = true;
  }

  bool remove(Timer* timer) {
    if (!timer->listed) return false;
    timer->listed = false;
    table_.erase(timer->place);
    return true;
  }

  // Removes at most `max` timers of the name, calling `each` for each of them.
  template <class Each>
  size_t remove(const std::string& name, size_t max, Each each) {
    size_t count = 0;
    for (auto it = table_.find(name); count < max && it != table_.end() && it->first == name;
         ++count) {
      Timer* const timer = it->second;
      timer->listed = false;
      it = table_.erase(it);
      each(timer);
    }
    return count;
  }

  std::mutex mutex;

 private:
  typename Timer::Table table_;
};

// Lets settle() wait until the loop thread has passed a point.
class Gate {
 public:
  void open() {
    // Notified with the lock held: the waiter owns the gate and destroys it as soon as it may.
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_one();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// Named timers over a loop that only its own thread may touch. `Loop` derives from this and offers:
//   void wake()                  any thread: drain() will be called on the loop thread
//   void arm(Timer*)             loop thread: start the handle for deadline_ns
//   void disarm(Timer*)          loop thread: stop an armed handle
//   void release(Timer*)         loop thread: free a stopped handle and the timer
// and calls drain() after a wake and expired() when a handle fires.
template <class Loop, class Handle>
class PostedTimers {
 public:
  using Timer = PeerTimer<Handle>;

  void start(int64_t delay_ns, Completion completion) {
    Timer* timer = make(delay_ns, completion);
    {
      const std::lock_guard lock(names_.mutex);
      posted_.push_back({Request::kStart, timer});
    }
    loop().wake();
  }

  void start_named(const std::string& name, int64_t delay_ns, Completion completion) {
    Timer* timer = make(delay_ns, completion);
    {
      const std::lock_guard lock(names_.mutex);
      names_.insert(name, timer);
      posted_.push_back({Request::kStart, timer});
    }
    loop().wake();
  }

  size_t cancel(const std::string& name, size_t max) {
    size_t count = 0;
    {
      const std::lock_guard lock(names_.mutex);
      count = names_.remove(name, max, [this](Timer* timer) {
        posted_.push_back({Request::kCancel, timer});
      });
    }
    if (count > 0) loop().wake();
    return count;
  }

  void settle() {
    Gate gate;
    {
      const std::lock_guard lock(names_.mutex);
      posted_.push_back({Request::kOpen, &gate});
    }
    loop().wake();
    gate.wait();
  }

 protected:
  void drain() {
    {
      const std::lock_guard lock(names_.mutex);
      batch_.swap(posted_);
    }
    for (const Request& request : batch_)
      serve(request);
    batch_.clear();
  }

  void expired(Timer* timer) {
    if (timer->named) {
      const std::lock_guard lock(names_.mutex);
      if (!names_.remove(timer)) {
        timer->fired = true;  // the cancel that removed it is posted, and reports
        return;
      }
    }
    const Completion completion = timer->completion;
    loop().release(timer);
    completion.run(completion.context, false);
  }

 private:
  struct Request {
    enum Kind { kStart, kCancel, kOpen } kind;
    void* object;
  };

  Loop& loop() { return static_cast<Loop&>(*this); }

  static Timer* make(int64_t delay_ns, Completion completion) {
    auto* timer = new Timer;
    timer->completion = completion;
    // Without a delay it is due whatever the clock says, also in whole milliseconds.
    timer->deadline_ns = delay_ns > 0 ? now_ns() + delay_ns : 0;
    return timer;
  }

  void serve(const Request& request) {
    if (request.kind == Request::kOpen) {
      static_cast<Gate*>(request.object)->open();
      return;
    }
    auto* timer = static_cast<Timer*>(request.object);
    if (request.kind == Request::kStart) {
      loop().arm(timer);
      return;
    }
    if (!timer->fired) loop().disarm(timer);
    const Completion completion = timer->completion;
    loop().release(timer);
    completion.run(completion.context, true);
  }

  NameTable<Timer> names_;  // its mutex guards posted_ too: one lock per call, not two
  std::vector<Request> posted_;
  std::vector<Request> batch_;  // loop thread only; keeps its capacity
};

}  // namespace bench
